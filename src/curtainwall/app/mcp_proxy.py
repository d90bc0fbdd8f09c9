"""`curtainwall mcp-proxy`: MCP on stdin and stdout for clients that cannot use a session's socket, which is all that this leads to."""

import asyncio
import contextlib
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from curtainwall.app.finding import find_session
from curtainwall.app.home import Home, private_directory
from curtainwall.app.wiring import Setup, files_of, open_house, open_store, set_up
from curtainwall.model import SessionId, TryLater
from curtainwall.tools.mcp_in import Door, is_served

_PIECE = 65_536


def mcp_proxy(
    session: Annotated[str, typer.Option("--session", metavar="ID", help="the session, by its id or the beginning of it")],
) -> None:
    """Speak MCP on stdin and stdout for one session; where no process serves its socket, this one does."""
    setup = set_up()
    with open_store(setup.home) as store:
        found = find_session(store.index, session).session
    path = mcp_socket_of(setup.home, found)
    if is_served(path):
        pump(path)
    else:
        asyncio.run(_serve(setup, found, path))


def mcp_socket_of(home: Home, session: SessionId) -> Path:
    """Return where a session's agent finds its tools."""
    return home.root / "run" / session / "mcp.sock"


async def _serve(setup: Setup, session: SessionId, path: Path) -> None:
    async with open_house(setup) as wired, wired.house.hold(session), files_of(wired, session):
        private_directory(path.parent)
        door = Door(session, wired.gate, wired.house.feed, wired.tools.listing, wired.house.clock)
        async with door.open(path):
            await asyncio.to_thread(pump, path)


def pump(path: Path) -> None:
    """Carry bytes between stdin, socket and stdout until one of them ends; what was asked before stdin ended is still answered."""
    has_ended = threading.Event()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.connect(str(path))
        # Nothing interrupts a read of stdin, so the thread that waits there must not keep the program alive.
        threading.Thread(target=_forward, args=(peer, has_ended), daemon=True).start()
        while data := _received(peer):
            _write_all(data)
    if not has_ended.is_set():
        raise TryLater("the process that serves this session has ended the connection; start again")


def _forward(peer: socket.socket, has_ended: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(sys.stdin.fileno(), _PIECE):
            peer.sendall(data)
        has_ended.set()
        peer.shutdown(socket.SHUT_WR)


def _received(peer: socket.socket) -> bytes:
    try:
        return peer.recv(_PIECE)
    except ConnectionResetError:
        return b""


def _write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(sys.stdout.fileno(), view) :]


if __name__ == "__main__":
    typer.run(mcp_proxy)
