"""The people who may use the web pages, and the files with their tokens."""

import getpass
import os
from collections.abc import Mapping
from pathlib import Path

from curtainwall.config.loader import read_plain
from curtainwall.config.schema import Config

WEB = "web"
_MIN_TOKEN_LENGTH = 32


def web_operators(config: Config) -> frozenset[str]:
    """Return who may answer on the web; without a list, the user who runs this process."""
    configured = config.web.operators
    channel_operators = config.channels[WEB].operators if WEB in config.channels else ()
    return frozenset((*configured, *channel_operators)) if configured is not None else frozenset(channel_operators or (_account(),))


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.geteuid()}"


def web_files(config: Config) -> tuple[str, ...]:
    """Return the files that would give an agent access: tokens, and the key of the certificate."""
    return (*config.web.tokens.values(), *([config.web.key] if config.web.key else []))


def web_tokens(config: Config) -> Mapping[str, str]:
    """Return the permanent tokens by person; skip those that cannot be read or are too short."""
    tokens: dict[str, str] = {}
    for user, name in config.web.tokens.items():
        try:
            token = read_plain(Path(name).expanduser()).decode().strip()
        except (OSError, UnicodeDecodeError):
            continue
        if len(token) >= _MIN_TOKEN_LENGTH:
            tokens[user] = token
    return tokens
