"""Sign-in links for the pages, made only while the kernel shows our own socket at that port.

Otherwise the code would be handed to any process that answers at the address, including one of another user.
"""

import os
import secrets
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from curtainwall.channels.web.sign_ins import SignIns
from curtainwall.config.loader import read_plain
from curtainwall.config.schema import Config
from curtainwall.config.web import WebSection
from curtainwall.config.web_people import web_operators
from curtainwall.host.home import Home
from curtainwall.model import Broken, Frozen, TryLater
from curtainwall.runtime import SystemClock

_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
_LISTENS = "0A"


class WebListener(Frozen):
    """The socket that the pages are served on, and the run of the service that made it; a code is valid for that run only."""

    run: str
    host: str
    port: int
    inode: int


@contextmanager
def announce_listener(home: Home, web: WebSection, server_socket: socket.socket) -> Generator[WebListener]:
    """Record which socket is ours while it listens; on a full disk the pages are served, but no links can be made."""
    listener = WebListener(run=secrets.token_hex(16), host=web.host, port=web.port, inode=os.fstat(server_socket.fileno()).st_ino)
    path = _path(home)
    draft = path.with_name(f".{path.name}.{listener.run}")
    with suppress(OSError):
        draft.touch(0o600, exist_ok=False)
        draft.write_text(listener.model_dump_json(), encoding="ascii")
        draft.replace(path)
    try:
        yield listener
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
            if _recorded(home) == listener:
                path.unlink()


def require_listener(home: Home, web: WebSection) -> WebListener:
    """Return the listener that links lead to; raise `TryLater`, with what to do, if it is not our own socket."""
    listener = _recorded(home)
    if listener is None or not _is_listening(listener):
        raise TryLater(
            f"no link was made: nothing serves the pages of `{home.root}`, and whoever else holds port {web.port} would get its code; "
            "start `curtainwall serve` and read there whether the port is taken (run both in the same container, if in any)"
        )
    if (listener.host, listener.port) != (web.host, web.port):
        raise TryLater(
            f"no link was made: the pages are served at port {listener.port} on `{listener.host}`, and the configuration says "
            f"port {web.port} on `{web.host}`; restart `curtainwall serve`"
        )
    return listener


def _path(home: Home) -> Path:
    return home.root / "run" / "web.json"


def _recorded(home: Home) -> WebListener | None:
    with suppress(OSError, ValidationError):
        return WebListener.model_validate_json(read_plain(_path(home)))
    return None


def _is_listening(listener: WebListener) -> bool:
    """Tell whether the kernel has that very socket at that port. No other process can listen there meanwhile."""
    for table in _TABLES:
        with suppress(OSError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                _, local, _, state, _, _, _, _, _, inode, *_ = line.split()
                if state == _LISTENS and int(inode) == listener.inode and int(local.rpartition(":")[2], 16) == listener.port:
                    return True
    return False


def sign_ins_of(home: Home, config: Config, run: str = "") -> SignIns:
    """Return the sign-ins of this home, shared by every process; codes are for one run of the service."""
    return SignIns(home.root / "keys" / "web-sign-ins.json", SystemClock().now, config.web.signed_in * 1000, run)


def sign_in_link(home: Home, config: Config, user: str | None = None, run: str | None = None) -> str:
    """Return a link that signs a person in once; raise if that person may not enter, or if the link would not lead to us.

    Only the service itself, which holds the port, passes its run.
    """
    operators = web_operators(config)
    user = user or min(operators)
    if user not in operators and user not in config.web.users:
        known = ", ".join(sorted(operators | {*config.web.users}))
        raise Broken(f"`{user}` is neither among `web.operators` nor `web.users` (now: {known}); add the name there")
    run = run or require_listener(home, config.web).run
    return f"{config.web.address}/sign-in?code={sign_ins_of(home, config, run).new_code(user)}"
