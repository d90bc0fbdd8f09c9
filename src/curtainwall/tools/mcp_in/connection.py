"""One connection of an MCP client: bytes to frames to calls, never more of any of them than the bounds allow."""

import asyncio
import time
from typing import Protocol, cast

from mcp_types.jsonrpc import INVALID_REQUEST

from curtainwall.tools.mcp_in.calls import Calls
from curtainwall.tools.mcp_in.calls import Room as CallRoom
from curtainwall.tools.mcp_in.eras import Era
from curtainwall.tools.mcp_in.frames import Fault, Lines, Notification, Request, RequestId, complaint, parse, reply
from curtainwall.tools.mcp_in.replies import Replies

# So many frames are taken before others get their turn.
_FRAMES_A_TURN = 16
_EMPTY = b"{}"


class Room(CallRoom, Protocol):
    """What a connection needs of the door that it came through."""

    connections: "set[Connection]"


class Connection(asyncio.Protocol):
    """The protocol of one connection, of either era."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._load = room.load
        self._bounds = room.load.bounds
        self._loop = asyncio.get_running_loop()
        self._era = Era()
        self._lines = Lines(self._bounds.line)
        self._calls = Calls(room, self)
        self._faults = 0
        self._next_turn: asyncio.Handle | None = None
        self._has_ended = False
        self._is_shut = False

    # What the loop tells us

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, or turn the peer away where too many are there."""
        self._transport = cast("asyncio.Transport", transport)
        self._replies = Replies(self._transport, self._bounds)
        self._room.connections.add(self)
        if len(self._room.connections) > self._bounds.connections:
            self._shut(Fault(INVALID_REQUEST, f"there are {self._bounds.connections} connections to this session; close one"))

    def data_received(self, data: bytes) -> None:
        """Keep what came and take the frames in it."""
        if self._is_shut:
            return
        if not self._load.take(len(data)):
            self._shut(Fault(INVALID_REQUEST, "too much is waiting on this session's socket; read the replies first"))
            return
        self._lines.feed(data)
        if self._next_turn is None:
            self._take_turn()

    def eof_received(self) -> bool:
        """Answer what is still in flight; then there is nothing left to say."""
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
        """Let go of everything."""
        del exc
        self._is_shut = True
        self._room.connections.discard(self)
        self._load.give_back(self._lines.clear())
        self._replies.forget()
        self._replies.unwatch()
        if self._next_turn is not None:
            self._next_turn.cancel()
        self._calls.leave()

    # What calls and door tell us

    def send(self, line: bytes) -> None:
        """Send a line."""
        self._replies.send(line)

    def go_on(self) -> None:
        """Read on, but only while there is room for what would come."""
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
            except Fault as fault:
                self._shut(fault)
                break
            if line is None:
                break
            if not self._take(line):
                self._load.give_back(len(line) + 1)
        self.go_on()

    def _take(self, line: bytes) -> bool:
        """Do what a line says, and tell whether its bytes are held for a call."""
        if not line or line.isspace():
            return False
        began = time.perf_counter()
        try:
            frame = parse(line, self._bounds)
        except Fault as fault:
            self._complain(None, fault)
            return False
        finally:
            self._load.spent(time.perf_counter() - began)
        match frame:
            case Request():
                try:
                    return self._answer(frame, len(line) + 1)
                except Fault as fault:
                    self._complain(frame.id, fault)
            case Notification(method="notifications/cancelled"):
                self._calls.cancel(frame.params.get("requestId"))
            case _:
                pass
        return False

    def _answer(self, request: Request, size: int) -> bool:
        if request.id in self._calls:
            # The reply to the first one must stay the only one with this id.
            self._complain(None, Fault(INVALID_REQUEST, "this id names a request that is still in flight; give each its own"))
            return False
        version, greetings = self._era.admit(request), self._room.greetings
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
        self.send(reply(request.id, result))
        return False

    # Ends

    def _complain(self, id_: RequestId | None, fault: Fault) -> None:
        if fault.fatal:
            self._shut(fault)
            return
        self.send(complaint(id_, fault))
        if id_ is None:
            self._faults += 1
            if self._faults >= self._bounds.faults:
                self._shut(Fault(INVALID_REQUEST, f"{self._faults} frames meant nothing; this is no MCP client"))

    def _shut(self, fault: Fault) -> None:
        """Say what was wrong and end."""
        if self._is_shut:
            return
        self._is_shut = True
        self._load.give_back(self._lines.clear())
        self._transport.pause_reading()
        self.send(complaint(None, fault))
        self._replies.close()

    def _close_when_done(self) -> None:
        """Close when all is answered that came before the peer's last word."""
        if self._has_ended and not self._is_shut and not self._calls and not self._lines.is_fresh:
            self._is_shut = True
            self._replies.close()
