"""Serve a session's tools on a Unix socket: each connection turns bytes into calls and sends replies, all within bounds."""

import asyncio
import select
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, cast

from mcp_types.jsonrpc import INVALID_REQUEST

from curtainwall.host import BACKLOG, SocketFile
from curtainwall.model import Clock, Feed, Gate, SessionId, TurnId, session_stream
from curtainwall.tools.mcp_in.bounds import McpBounds, SocketLoad
from curtainwall.tools.mcp_in.calls import CallParts, McpCalls
from curtainwall.tools.mcp_in.frames import (
    FrameFault,
    LineBuffer,
    McpNotification,
    McpRequest,
    RequestId,
    error_line,
    parse_frame,
    reply_line,
)
from curtainwall.tools.mcp_in.handshake import ProtocolEra, ServerDescription, Specs
from curtainwall.tools.mcp_in.progress import ProgressNotes

_PAUSE_AT = 1024 * 1024


class ReplyWriter:
    """The writing half of a connection."""

    def __init__(self, transport: asyncio.Transport, bounds: McpBounds) -> None:
        self._transport = transport
        self._bounds = bounds
        self._loop = asyncio.get_running_loop()
        self._lines: list[bytes] = []
        self._cutter: asyncio.TimerHandle | None = None
        self._hangs_up: select.epoll | None = None
        self.is_paused = False
        transport.set_write_buffer_limits(high=min(_PAUSE_AT, bounds.unread))

    def send(self, line: bytes) -> None:
        """Send a line soon."""
        if not self._lines:
            self._loop.call_soon(self.flush)
        self._lines.append(line)

    def flush(self) -> None:
        """Send pending lines now; disconnect a peer that left too much unread."""
        lines, self._lines = self._lines, []
        if lines and not self._transport.is_closing():
            self._transport.write(b"".join(lines))
            if self._transport.get_write_buffer_size() > self._bounds.unread:
                self._transport.abort()

    def pause(self) -> None:
        """Note that the peer does not read, and start its timeout."""
        self.is_paused = True
        self._cut_later()

    def resume(self) -> None:
        """Note that it reads again."""
        self.is_paused = False
        self.forget()

    def close(self) -> None:
        """Send what is left and close; disconnect a peer that does not read it in time."""
        self.flush()
        self._transport.close()
        self._cut_later()

    def forget(self) -> None:
        """Cancel the timeout."""
        if self._cutter is not None:
            self._cutter.cancel()
            self._cutter = None

    def watch(self) -> None:
        """Abort the connection as soon as the peer also closes its reading side, since nobody will read what we send.

        After the peer's end of file there is nothing to read, so the loop would not notice.
        """
        peer = cast("socket.socket | None", self._transport.get_extra_info("socket"))
        if self._hangs_up is None and peer is not None and peer.fileno() >= 0:
            self._hangs_up = select.epoll()
            # Register for no events except those that are always reported: hang-up and error.
            self._hangs_up.register(peer.fileno(), 0)
            self._loop.add_reader(self._hangs_up.fileno(), self._transport.abort)

    def unwatch(self) -> None:
        """Stop watching for the peer to hang up."""
        if self._hangs_up is not None:
            self._loop.remove_reader(self._hangs_up.fileno())
            self._hangs_up.close()
            self._hangs_up = None

    def _cut_later(self) -> None:
        if self._cutter is None:
            self._cutter = self._loop.call_later(self._bounds.patience, self._transport.abort)


# The number of frames to process before other tasks get a turn.
_FRAMES_A_TURN = 16
_EMPTY = b"{}"


class ConnectionParts(CallParts, Protocol):
    """The parts of its server that a connection uses."""

    connections: "set[McpConnection]"


class McpConnection(asyncio.Protocol):
    """The protocol of one connection, of either era."""

    def __init__(self, parts: ConnectionParts) -> None:
        self._parts = parts
        self._load = parts.load
        self._bounds = parts.load.bounds
        self._loop = asyncio.get_running_loop()
        self._era = ProtocolEra()
        self._lines = LineBuffer(self._bounds.line)
        self._calls = McpCalls(parts, self)
        self._faults = 0
        self._next_turn: asyncio.Handle | None = None
        self._has_ended = False
        self._is_shut = False

    # Callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, or refuse it if there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        self._replies = ReplyWriter(self._transport, self._bounds)
        self._parts.connections.add(self)
        if len(self._parts.connections) > self._bounds.connections:
            self._shut(FrameFault(INVALID_REQUEST, f"there are {self._bounds.connections} connections to this session; close one"))

    def data_received(self, data: bytes) -> None:
        """Buffer the data and process its frames."""
        if self._is_shut:
            return
        if not self._load.take(len(data)):
            self._shut(FrameFault(INVALID_REQUEST, "too much is waiting on this session's socket; read the replies first"))
            return
        self._lines.feed(data)
        if self._next_turn is None:
            self._take_turn()

    def eof_received(self) -> bool:
        """Answer the calls still in flight, then close."""
        self._has_ended = True
        self._replies.watch()
        self._close_when_done()
        return True

    def pause_writing(self) -> None:
        """Stop reading from a peer that does not read."""
        self._replies.pause()
        self.go_on()

    def resume_writing(self) -> None:
        """Read again."""
        self._replies.resume()
        self.go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything."""
        del exc
        self._is_shut = True
        self._parts.connections.discard(self)
        self._load.give_back(self._lines.clear())
        self._replies.forget()
        self._replies.unwatch()
        if self._next_turn is not None:
            self._next_turn.cancel()
        self._calls.leave()

    # Called by the calls and the server

    def send(self, line: bytes) -> None:
        """Send a line."""
        self._replies.send(line)

    def go_on(self) -> None:
        """Continue reading, but only while there is room."""
        if self._is_shut:
            return
        if self._next_turn is not None or self._replies.is_paused or self._calls.is_full:
            self._transport.pause_reading()
            return
        if not self._has_ended:
            self._transport.resume_reading()
        if self._lines.is_fresh:
            self._next_turn = self._loop.call_soon(self._take_turn)
        self._close_when_done()

    def cut(self) -> None:
        """End the connection from our side, at once."""
        self._transport.abort()

    # Frames

    def _take_turn(self) -> None:
        self._next_turn = None
        for _ in range(_FRAMES_A_TURN):
            if self._is_shut or self._replies.is_paused or self._calls.is_full:
                break
            if rest := self._load.rests_for():
                self._next_turn = self._loop.call_later(rest, self._take_turn)
                break
            try:
                line = self._lines.next()
            except FrameFault as fault:
                self._shut(fault)
                break
            if line is None:
                break
            if not self._take(line):
                self._load.give_back(len(line) + 1)
        self.go_on()

    def _take(self, line: bytes) -> bool:
        """Process a line; return whether its bytes are held for a call."""
        if not line or line.isspace():
            return False
        began = time.perf_counter()
        try:
            frame = parse_frame(line, self._bounds)
        except FrameFault as fault:
            self._complain(None, fault)
            return False
        finally:
            self._load.spent(time.perf_counter() - began)
        match frame:
            case McpRequest():
                try:
                    return self._answer(frame, len(line) + 1)
                except FrameFault as fault:
                    self._complain(frame.id, fault)
            case McpNotification(method="notifications/cancelled"):
                self._calls.cancel(frame.params.get("requestId"))
            case _:
                pass
        return False

    def _answer(self, request: McpRequest, size: int) -> bool:
        if request.id in self._calls:
            # The reply to the first one must stay the only one with this id.
            self._complain(None, FrameFault(INVALID_REQUEST, "this id names a request that is still in flight; give each its own"))
            return False
        version, greetings = self._era.admit(request), self._parts.greetings
        match request.method:
            case "tools/call":
                self._calls.add(request, version, size)
                return True
            case "tools/list":
                result = greetings.tools(version, request.params)
            case "initialize":
                result = greetings.initialize(self._era.agree(request.params.get("protocolVersion")))
            case "server/discover":
                result = greetings.discover(version)
            case _:
                result = _EMPTY
        self.send(reply_line(request.id, result))
        return False

    # Ends

    def _complain(self, id_: RequestId | None, fault: FrameFault) -> None:
        if fault.fatal:
            self._shut(fault)
            return
        self.send(error_line(id_, fault))
        if id_ is None:
            self._faults += 1
            if self._faults >= self._bounds.faults:
                self._shut(FrameFault(INVALID_REQUEST, f"{self._faults} frames meant nothing; this is no MCP client"))

    def _shut(self, fault: FrameFault) -> None:
        """Report the fault and close the connection."""
        if self._is_shut:
            return
        self._is_shut = True
        self._load.give_back(self._lines.clear())
        self._transport.pause_reading()
        self.send(error_line(None, fault))
        self._replies.close()

    def _close_when_done(self) -> None:
        """Close once everything that came before the peer's end of file is answered."""
        if self._has_ended and not self._is_shut and not self._calls and not self._lines.is_fresh:
            self._is_shut = True
            self._replies.close()


class McpServer:
    """One session's tools as an MCP server."""

    def __init__(  # noqa: PLR0913 - each is one thing that `compose` decides
        self,
        session: SessionId,
        gate: Gate,
        feed: Feed,
        specs: Specs,
        clock: Clock,
        bounds: McpBounds | None = None,
        turn: TurnId | None = None,
        joint: str = "__",
    ) -> None:
        self.session = session
        self.turn = turn
        self.gate = gate
        self.clock = clock
        self.greetings = ServerDescription(specs, joint)
        self.load = SocketLoad(bounds or McpBounds())
        self.notes = ProgressNotes(feed, session_stream(session), slow=self.load.bounds.slow, every=self.load.bounds.note_every)
        self.tasks: set[asyncio.Task[None]] = set()
        self.connections: set[McpConnection] = set()

    @asynccontextmanager
    async def open(self, path: Path, *, mode: int = 0o600, owner: int | None = None) -> AsyncGenerator[None]:
        """Serve the socket at this path; raise `TryLater` if another process does, and `Broken` if it cannot be created."""
        file = SocketFile.open(path, mode, owner)
        server = await asyncio.get_running_loop().create_unix_server(lambda: McpConnection(self), sock=file.listener, backlog=BACKLOG)
        try:
            yield
        finally:
            server.close()
            await self.close()
            file.remove()

    async def enter(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the far end of a new connection, for a peer in this process."""
        near, far = socket.socketpair()
        await asyncio.get_running_loop().create_unix_connection(lambda: McpConnection(self), sock=near)
        return await asyncio.open_unix_connection(sock=far)

    async def close(self) -> None:
        """Abort every connection and wait for its calls to end."""
        for connection in tuple(self.connections):
            connection.cut()
        # Each connection learns of the abort in the next iteration of the loop, and then drops its calls.
        await asyncio.sleep(0)
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.notes.close()
