"""Who the people of the web are, and which of our files they sign in with."""

import getpass
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from curtainwall.app.config import Config
from curtainwall.app.home import Home
from curtainwall.app.plain_files import read_plain
from curtainwall.app.web_listener import require_listener
from curtainwall.model import Broken
from curtainwall.runtime import SystemClock

if TYPE_CHECKING:
    from curtainwall.channels.web.sign_ins import SignIns

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


def sign_ins_of(home: Home, config: Config, run: str = "") -> "SignIns":
    """Return the sign-ins of this house, the same for every process; codes are for one run of the pages' service."""
    # Start-up time: every command wants to know who the people are, and few of them what draws pages.
    from curtainwall.channels.web.sign_ins import SignIns

    return SignIns(home.root / "keys" / "web-sign-ins.json", SystemClock().now, config.web.signed_in * 1000, run)


def sign_in_link(home: Home, config: Config, user: str | None = None, run: str | None = None) -> str:
    """Return a link that signs a person in once; raise where that person may not enter, or where the link would not lead to us.

    Only the service itself, which holds the port, names its run.
    """
    operators = web_operators(config)
    user = user or min(operators)
    if user not in operators and user not in config.web.users:
        known = ", ".join(sorted(operators | {*config.web.users}))
        raise Broken(f"`{user}` is neither among `web.operators` nor `web.users` (now: {known}); add the name there")
    run = run or require_listener(home, config.web).run
    return f"{config.web.address}/sign-in?code={sign_ins_of(home, config, run).new_code(user)}"
