"""Who may use the web pages, and the files that let them in."""

import getpass
import os
from collections.abc import Mapping
from pathlib import Path

from curtainwall.config.loader import read_plain
from curtainwall.config.schema import Config

WEB = "web"
_SHORTEST_TOKEN = 32


def web_operators(config: Config) -> frozenset[str]:
    """Return who may answer on the web; without a list, whoever runs this."""
    told = config.web.operators
    also = config.channels[WEB].operators if WEB in config.channels else ()
    return frozenset((*told, *also)) if told is not None else frozenset(also or (_account(),))


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.geteuid()}"


def web_files(config: Config) -> tuple[str, ...]:
    """Return the files that would let an agent in: tokens, and the key of the certificate."""
    return (*config.web.tokens.values(), *([config.web.key] if config.web.key else []))


def web_tokens(config: Config) -> Mapping[str, str]:
    """Return the standing tokens by whom they belong to; one that cannot be read, or is too short, lets nobody in."""
    found: dict[str, str] = {}
    for user, name in config.web.tokens.items():
        try:
            token = read_plain(Path(name).expanduser()).decode().strip()
        except (OSError, UnicodeDecodeError):
            continue
        if len(token) >= _SHORTEST_TOKEN:
            found[user] = token
    return found
