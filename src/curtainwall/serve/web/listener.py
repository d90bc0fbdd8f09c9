"""Who holds the port of the pages: `serve` writes down its own socket, and a link is made only if the kernel still has that socket there.

A code that signs somebody in would otherwise be handed to whichever process answers at the address, also to one of another user.
"""

import os
import secrets
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from curtainwall.config.plain_files import read_plain
from curtainwall.config.web import WebSection
from curtainwall.host.home import Home
from curtainwall.model import Frozen, TryLater

_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
_LISTENS = "0A"


class WebListener(Frozen):
    """The socket that the pages are served on, and the run of the service that made it; a code is good for that run alone."""

    run: str
    host: str
    port: int
    inode: int


@contextmanager
def announced(home: Home, web: WebSection, ear: socket.socket) -> Generator[WebListener]:
    """Write down which socket is ours for as long as it listens; on a full disk the pages are served, and there are no links to them."""
    made = WebListener(run=secrets.token_hex(16), host=web.host, port=web.port, inode=os.fstat(ear.fileno()).st_ino)
    place = _place(home)
    draft = place.with_name(f".{place.name}.{made.run}")
    with suppress(OSError):
        draft.touch(0o600, exist_ok=False)
        draft.write_text(made.model_dump_json(), encoding="ascii")
        draft.replace(place)
    try:
        yield made
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
            if _written(home) == made:
                place.unlink()


def require_listener(home: Home, web: WebSection) -> WebListener:
    """Return what serves the pages of a home where links lead to; raise `TryLater`, with what to do, if that is not our own socket."""
    found = _written(home)
    if found is None or not _is_listening(found):
        raise TryLater(
            f"no link was made: nothing serves the pages of `{home.root}`, and whoever else holds port {web.port} would get its code; "
            "start `curtainwall serve` and read there whether the port is taken (run both in the same container, if in any)"
        )
    if (found.host, found.port) != (web.host, web.port):
        raise TryLater(
            f"no link was made: the pages are served at port {found.port} on `{found.host}`, and the configuration says port {web.port} on "
            f"`{web.host}`; restart `curtainwall serve`"
        )
    return found


def _place(home: Home) -> Path:
    return home.root / "run" / "web.json"


def _written(home: Home) -> WebListener | None:
    with suppress(OSError, ValidationError):
        return WebListener.model_validate_json(read_plain(_place(home)))
    return None


def _is_listening(found: WebListener) -> bool:
    """Tell whether the kernel has that very socket at that port. No other process can listen there meanwhile."""
    for table in _TABLES:
        with suppress(OSError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                _, local, _, state, _, _, _, _, _, inode, *_ = line.split()
                if state == _LISTENS and int(inode) == found.inode and int(local.rpartition(":")[2], 16) == found.port:
                    return True
    return False
