"""Requests as they come from a client: heads and bodies by h11, bounded in size and time, one after the other."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import h11

from curtainwall.egress.refusal import Refused
from curtainwall.egress.terms import Bounds
from curtainwall.egress.wire import Wire

Header = tuple[bytes, bytes]

_MOST_HEADERS: Final = 100
_UNREAD: Final = 1024 * 1024


class Load:
    """How much of what clients sent is held for one session."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0

    def take(self, size: int) -> None:
        """Make room; raise `Refused` where there is none."""
        if self.held + size > self._most:
            raise Refused(503, "too much is being sent at once; wait for other requests to end", fatal=True)
        self.held += size


@dataclass(frozen=True, slots=True)
class Head:
    """One request's head; header names are in lower case."""

    method: str
    target: str
    headers: Sequence[Header]
    names: frozenset[bytes]

    def all(self, name: bytes) -> list[str]:
        """Return every value of a header."""
        return [value.decode("latin-1") for told, value in self.headers if told == name] if name in self.names else []

    @property
    def wants_to_close(self) -> bool:
        """Tell whether the client ends the connection after this request."""
        return any("close" in value.lower() for value in self.all(b"connection"))

    @property
    def wants_upgrade(self) -> bool:
        """Tell whether the client wants to talk something else from here on."""
        return b"upgrade" in self.names


class Requests:
    """The requests of one connection."""

    def __init__(self, wire: Wire, bounds: Bounds, load: Load) -> None:
        self._wire = wire
        self._bounds = bounds
        self._load = load
        self._http = h11.Connection(h11.SERVER)
        self._rest = b""
        self._taken = 0
        self._is_whole = False
        self._length: int | None = None
        self._is_awaited = False

    @property
    def rest(self) -> bytes:
        """Return what came after what was read."""
        return self._rest or self._http.trailing_data[0]

    async def head(self) -> Head | None:
        """Return the next request's head, or None where the client has ended; raise `Refused`."""
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=self._bounds.head)
        self._is_whole, self._length = False, None
        came = bool(self._rest)
        if came:
            self._http.receive_data(self._rest)
            self._rest = b""
        loop, seconds, until = asyncio.get_running_loop(), self._bounds.idle, 0.0
        try:
            while (event := self._next()) is h11.NEED_DATA:
                if came:
                    # The whole head has to be there by then, in however many pieces it comes.
                    until = until or loop.time() + self._bounds.sending
                    seconds = until - loop.time()
                data = await self._wire.read(seconds)
                if not data:
                    return None
                came = True
                self._http.receive_data(data)
        except TimeoutError:
            if not came:
                return None
            raise Refused(408, "the request did not come to an end", fatal=True) from None
        if not isinstance(event, h11.Request):
            return None
        return self._seen(event)

    async def body(self) -> bytes:
        """Return the whole body; raise `Refused`. What it takes is given back by `release`."""
        if self._length is not None:
            return await self._body_of(self._length)
        pieces, size = list[bytes](), 0
        while True:
            event = self._next()
            if event is h11.NEED_DATA:
                self._go_ahead()
                self._http.receive_data(await self._more())
            elif isinstance(event, h11.Data):
                piece = bytes(event.data)
                size += len(piece)
                if size > self._bounds.body:
                    raise Refused(413, f"the body is longer than {self._bounds.body} bytes", fatal=True)
                self._take(len(piece))
                pieces.append(piece)
            else:
                self._end(event)
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _body_of(self, length: int) -> bytes:
        """Return a body of a known length; whoever fails in here ends the connection, so that nothing of it is read twice."""
        data = self._http.trailing_data[0]
        pieces, size = [data], len(data)
        self._take(size)
        while size < length:
            self._go_ahead()
            data = await self._more()
            self._take(len(data))
            pieces.append(data)
            size += len(data)
        whole = b"".join(pieces)
        self._rest, self._is_whole = whole[length:], True
        return whole[:length]

    def _take(self, size: int) -> None:
        self._load.take(size)
        self._taken += size

    def _go_ahead(self) -> None:
        """Tell a client that waits for a word from us before it sends its body."""
        if self._is_awaited:
            self._is_awaited = False
            self._wire.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def discard(self) -> bool:
        """Read past a body that nobody wants; tell whether the connection can go on after it."""
        if self._is_whole:
            return True
        size = 0
        try:
            while not isinstance(event := self._next(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    self._http.receive_data(await self._more())
                elif isinstance(event, h11.Data):
                    size += len(event.data)
                    if size > _UNREAD:
                        return False
                else:
                    return False
        except Refused:
            return False
        self._end(event)
        return True

    def release(self) -> None:
        """Give back what the last body took."""
        self._load.held -= self._taken
        self._taken = 0

    def _seen(self, event: h11.Request) -> Head:
        headers = [(bytes(name), bytes(value)) for name, value in event.headers]
        if len(headers) > _MOST_HEADERS or sum(len(name) + len(value) for name, value in headers) + len(event.target) > self._bounds.head:
            raise Refused(431, "the request's head is too long", fatal=True)
        if event.http_version != b"1.1":
            raise Refused(505, "HTTP/1.1 is spoken here", fatal=True)
        head = Head(event.method.decode("ascii"), event.target.decode("ascii"), headers, frozenset(name for name, _ in headers))
        if head.all(b"transfer-encoding") and head.all(b"content-length"):
            raise Refused(400, "the request has two lengths, which programs read differently", fatal=True)
        # h11 has seen to it that there is one at most, and that it is a number.
        lengths = head.all(b"content-length")
        self._length = int(lengths[0]) if lengths else None
        self._is_awaited = self._http.they_are_waiting_for_100_continue
        if self._length is not None and self._length > self._bounds.body:
            raise Refused(413, f"the body is longer than {self._bounds.body} bytes", fatal=True)
        return head

    async def _more(self) -> bytes:
        try:
            data = await self._wire.read(self._bounds.sending)
        except TimeoutError:
            raise Refused(408, "the request did not come to an end", fatal=True) from None
        if not data:
            raise ConnectionResetError("the client is gone")
        return data

    def _next(self) -> "h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]":
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as fault:
            raise Refused(fault.error_status_hint, "the request is not HTTP as it should be", fatal=True) from None

    def _end(self, event: object) -> None:
        if not isinstance(event, h11.EndOfMessage):
            raise Refused(400, "the request is not HTTP as it should be", fatal=True)
        self._rest = self._http.trailing_data[0]
        self._is_whole = True
