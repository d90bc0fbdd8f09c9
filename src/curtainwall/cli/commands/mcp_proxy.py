"""`curtainwall mcp-proxy`: MCP on stdin and stdout for clients that cannot use a session's socket; it leads to that socket only."""

import asyncio
import contextlib
import json
import os
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, cast

import typer
from pydantic import JsonValue

from curtainwall.cli.screen import hint
from curtainwall.compose.ask_files import ask_files_of
from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.setup import Setup, load_setup
from curtainwall.compose.store import open_store
from curtainwall.host import is_served
from curtainwall.host.home import Home, private_directory
from curtainwall.host.user import local_user
from curtainwall.model import SessionId, TryLater, session_stream
from curtainwall.operations.lookup import find_session
from curtainwall.operations.open import complete_opening
from curtainwall.runtime import Actor
from curtainwall.runtime.gate.waits import OrphanedAsks
from curtainwall.session import CallStatus, fold, lift
from curtainwall.tools.mcp_in import McpServer

_PIECE = 65_536
_LOOK_AGAIN = 1.0
_LONGEST_LOOKED_AT = 16 * 1024 * 1024


def mcp_proxy(
    session: Annotated[str, typer.Option("--session", metavar="ID", help="the session, by its id or the beginning of it")],
) -> None:
    """Speak MCP on stdin and stdout for one session; where no process serves its socket, this one does."""
    setup = load_setup()
    with open_store(setup.home) as store:
        session_id = find_session(store.index, session).session
    path = mcp_socket_of(setup.home, session_id)
    if is_served(path):
        pump(path, lambda: _waiting(setup.home, session_id))
    else:
        asyncio.run(_serve(setup, session_id, path))


def mcp_socket_of(home: Home, session: SessionId) -> Path:
    """Return the socket where a session's agent finds its tools."""
    return home.root / "run" / session / "mcp.sock"


async def _serve(setup: Setup, session: SessionId, path: Path) -> None:
    async with open_gate(setup) as wired, wired.registry.hold(session) as actor, ask_files_of(wired, session):
        # A session of one task was closed with it; who starts this wants its tools again.
        await complete_opening(wired.registry, session, local_user())
        orphans = OrphanedAsks(wired.registry)
        await _keep_answers(wired, actor, session, orphans)
        private_directory(path.parent)
        server = McpServer(session, wired.gate, wired.registry.feed, wired.tools.listing, wired.registry.clock)
        async with server.open(path):
            await asyncio.to_thread(pump, path, lambda: _waiting(setup.home, session))


async def _keep_answers(wired: GatedSessions, actor: Actor, session: SessionId, orphans: OrphanedAsks) -> None:
    """Keep the answers to asks from clients of an earlier proxy, so that the next identical request gets each once."""
    for call, open_ in tuple(actor.state.calls.items()):
        if open_.turn is None and open_.standing is CallStatus.ANSWERED:
            await wired.gate.drop(session, call, "the agent was gone when the answer came")
        elif open_.turn is None and open_.standing is CallStatus.ASKED and open_.approval is not None:
            orphans.keep(session, call, open_.approval, actor.seq)


def _waiting(home: Home, session: SessionId) -> int:
    """Return how many calls of a session wait for a human."""
    with open_store(home) as store:
        state = fold(lift(entry) for entry in store.log.read(session_stream(session)))
    return sum(call.standing is CallStatus.ASKED for call in state.calls.values())


class _Unanswered:
    """Tracks requests whose replies have not come yet; lines that are too long to parse are ignored."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._lock = threading.Lock()
        self._rest = {"there": b"", "back": b""}

    def __len__(self) -> int:
        return len(self._ids)

    def sent(self, data: bytes) -> None:
        """Track the data that goes to the session."""
        for frame in self._frames("there", data):
            method, params = frame.get("method"), frame.get("params")
            if isinstance(method, str) and "id" in frame:
                with self._lock:
                    self._ids.add(json.dumps(frame["id"]))
            elif method == "notifications/cancelled" and isinstance(params, dict):
                self._settle(cast("dict[str, JsonValue]", params).get("requestId"))

    def received(self, data: bytes) -> None:
        """Track the data that comes from the session."""
        for frame in self._frames("back", data):
            if "method" not in frame:
                self._settle(frame.get("id"))

    def _settle(self, id_: JsonValue) -> None:
        with self._lock:
            self._ids.discard(json.dumps(id_))

    def _frames(self, direction: str, data: bytes) -> Iterator[dict[str, JsonValue]]:
        *lines, rest = (self._rest[direction] + data).split(b"\n")
        # A line that is too long is cut, so that it does not parse.
        self._rest[direction] = rest[:_LONGEST_LOOKED_AT]
        for line in lines:
            with contextlib.suppress(ValueError, RecursionError):
                frame = json.loads(line)
                if isinstance(frame, dict):
                    yield cast("dict[str, JsonValue]", frame)


def pump(path: Path, waiting: Callable[[], int]) -> None:
    """Copy bytes between stdin, socket and stdout until one of them ends.

    Requests from before the end of stdin are still answered, except those that wait for a human: such an ask stays open without us.
    """
    has_ended, unanswered = threading.Event(), _Unanswered()
    ended, ending = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer, open(ended, "rb"):
        peer.connect(str(path))
        # Nothing interrupts a read of stdin, so the reading thread must not keep the program alive.
        threading.Thread(target=_forward, args=(peer, unanswered, has_ended, ending), daemon=True).start()
        while True:
            watched = [peer] if has_ended.is_set() else [peer, ended]
            ready, _, _ = select.select(watched, [], [], _LOOK_AGAIN if has_ended.is_set() else None)
            if peer in ready:
                data = _received(peer)
                if not data:
                    break
                unanswered.received(data)
                _write_all(data)
            elif not ready and 0 < len(unanswered) <= waiting():
                hint("stdin has ended; what a human is asked stays open (`curtainwall approvals list`), and the answer is kept")
                return
    if not has_ended.is_set():
        raise TryLater("the process that serves this session has ended the connection; start again")


def _forward(peer: socket.socket, unanswered: _Unanswered, has_ended: threading.Event, ending: int) -> None:
    with contextlib.suppress(OSError), open(ending, "wb"):
        while data := os.read(sys.stdin.fileno(), _PIECE):
            unanswered.sent(data)
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
