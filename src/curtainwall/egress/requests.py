"""Reads the requests of clients: plain heads quickly, all others with h11, with limits on size and time."""

import asyncio
import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Final, NamedTuple

import h11

from curtainwall.egress.ports import EgressBounds
from curtainwall.egress.refusals import Refused
from curtainwall.host import Wire

Header = tuple[bytes, bytes]

_WHOLE = re.compile(rb"(GET|POST|CONNECT) ([!-~]+) HTTP/1\.1(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]++: [!-~](?:[\t -~]*[!-~])?)*+")
_LENGTH = re.compile(rb"0|[1-9][0-9]{0,14}")
_LENGTH_LINES: Final = (b"\r\ncontent-length: ", b"\r\nContent-Length: ")
_LONGEST_KEPT: Final = 8 * 1024
# Headers that change where a body ends, or what may follow it, are left to a library that handles every case.
_NOT_PLAIN: Final = frozenset(b"transfer-encoding expect upgrade trailer".split())


class PlainHead(NamedTuple):
    """A head whose body has a known length and begins at `end`. Header names are lower case and unique."""

    method: str
    target: str
    headers: list[Header]
    names: AbstractSet[bytes]
    length: int
    end: int

    def shape(self, data: bytes) -> "HeadTemplate | None":
        """Return a template of this head, given its bytes, or None if it is long or spells `Content-Length` in an unusual way."""
        start = max(data.find(line, 0, self.end) + len(line) for line in _LENGTH_LINES)
        if self.end > _LONGEST_KEPT or start < len(_LENGTH_LINES[0]):
            return None
        return HeadTemplate(data[:start], data[data.find(b"\r\n", start) : self.end])


class HeadTemplate(NamedTuple):
    """A head without the value of its content length, which is all that differs between most requests of a client."""

    before: bytes
    after: bytes

    def again(self, data: bytes, most: int) -> tuple[int, int] | None:
        """Return the length of the body and where it begins, if the bytes start with the same head except for that length."""
        start, rest = len(self.before), len(self.after)
        if not data.startswith(self.before):
            return None
        at = data.find(b"\r", start, start + 16)
        if at < 0 or at + rest > most or not data.startswith(self.after, at):
            return None
        digits = data[start:at]
        return (int(digits), at + rest) if _LENGTH.fullmatch(digits) else None


def plain_head(data: bytes, most: int) -> PlainHead | None:
    """Return the head at the start of the bytes, or None if it is incomplete, too big, or not plain. It always agrees with h11."""
    end = data.find(b"\r\n\r\n", 0, most)
    if end < 0:
        return None
    request = _WHOLE.fullmatch(data, 0, end)
    if request is None:
        return None
    headers = [(name.lower(), value) for name, _, value in [line.partition(b": ") for line in data[:end].split(b"\r\n")[1:]]]
    by_name = dict(headers)
    if len(by_name) < len(headers) or b"host" not in by_name or not _NOT_PLAIN.isdisjoint(by_name):
        return None
    # `keep-alive` is what most clients send, and the default.
    if by_name.get(b"connection", b"keep-alive").lower() != b"keep-alive":
        return None
    length = by_name.get(b"content-length", b"0")
    if not _LENGTH.fullmatch(length):
        return None
    return PlainHead(request[1].decode(), request[2].decode(), headers, by_name.keys(), int(length), end + 4)


_MOST_HEADERS: Final = 100
_UNREAD: Final = 1024 * 1024
_TOO_LONG: Final = "the request's head is too long"


class HeldBytes:
    """Counts the bytes of requests that are held for one session."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0

    def take(self, size: int) -> None:
        """Reserve room; raise `Refused` if there is none."""
        if self.held + size > self._most:
            raise Refused(503, "too much is being sent at once; wait for other requests to end", fatal=True)
        self.held += size


class RequestHead(NamedTuple):
    """One request's head without the length of its body; header names are lower case."""

    method: str
    target: str
    headers: Sequence[Header]
    names: AbstractSet[bytes]

    def all(self, name: bytes) -> list[str]:
        """Return every value of a header."""
        return [value.decode("latin-1") for header, value in self.headers if header == name] if name in self.names else []

    @property
    def wants_to_close(self) -> bool:
        """Tell whether the client ends the connection after this request."""
        return b"connection" in self.names and any("close" in value.lower() for value in self.all(b"connection"))

    @property
    def wants_upgrade(self) -> bool:
        """Tell whether the client wants to switch protocols."""
        return b"upgrade" in self.names


class RequestReader:
    """Reads the requests of one connection."""

    def __init__(self, wire: Wire, bounds: EgressBounds, load: HeldBytes) -> None:
        self._wire = wire
        self._bounds = bounds
        self._load = load
        self._http: h11.Connection | None = None
        self._rest = b""
        self._taken = 0
        self._is_whole = False
        self._length: int | None = None
        self._is_awaited = False
        self._last: tuple[HeadTemplate, RequestHead] | None = None

    @property
    def rest(self) -> bytes:
        """Return the bytes that came after what was read."""
        return self._rest or (self._http.trailing_data[0] if self._http is not None else b"")

    async def head(self) -> RequestHead | None:
        """Return the next request's head, or None if the client has hung up; raise `Refused`."""
        self._http, self._is_whole, self._length, self._is_awaited = None, False, None, False
        try:
            data = self._rest or await self._wire.read(self._bounds.idle)
        except TimeoutError:
            return None
        if not data:
            return None
        self._rest = b""
        if self._last is not None and (repeat := self._last[0].again(data, self._bounds.head)) is not None:
            self._length, self._rest = repeat[0], data[repeat[1] :]
            self._require_bounded_body()
            return self._last[1]
        plain = plain_head(data, self._bounds.head)
        if plain is None:
            return await self._careful_head(data)
        self._length, self._rest = plain.length, data[plain.end :]
        head = self._head(plain.method, plain.target, plain.headers, plain.names)
        template = plain.shape(data)
        self._last = None if template is None else (template, head)
        return head

    async def _careful_head(self, data: bytes) -> RequestHead | None:
        """Return a head that comes in pieces or is not plain, or None if the client has hung up; raise `Refused`."""
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=self._bounds.head)
        self._http.receive_data(data)
        loop = asyncio.get_running_loop()
        # The deadline is for the whole head, however many pieces it comes in.
        deadline = loop.time() + self._bounds.sending
        try:
            while (event := self._next(self._http)) is h11.NEED_DATA:
                data = await self._wire.read(deadline - loop.time())
                if not data:
                    return None
                self._http.receive_data(data)
        except TimeoutError:
            raise Refused(408, "the request did not come to an end", fatal=True) from None
        if not isinstance(event, h11.Request):
            return None
        return self._from_h11(self._http, event)

    async def body(self) -> bytes:
        """Return the whole body; raise `Refused`. `release` frees the room that it takes."""
        if self._length is not None:
            return await self._body_of(self._length)
        http, pieces, size = self._chunked(), list[bytes](), 0
        while True:
            event = self._next(http)
            if event is h11.NEED_DATA:
                self._go_ahead()
                http.receive_data(await self._more())
            elif isinstance(event, h11.Data):
                piece = bytes(event.data)
                size += len(piece)
                if size > self._bounds.body:
                    raise Refused(413, f"the body is longer than {self._bounds.body} bytes", fatal=True)
                self._take(len(piece))
                pieces.append(piece)
            else:
                self._end(http, event)
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _body_of(self, length: int) -> bytes:
        """Return a body of a known length. A failure here ends the connection, so that nothing is read twice."""
        data = self._rest
        if len(data) == length:
            # The usual case: head and body came together, and nothing else did.
            self._take(length)
            self._rest, self._is_whole = b"", True
            return data
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
        """Answer a client that waits for `100 Continue` before it sends its body."""
        if self._is_awaited:
            self._is_awaited = False
            self._wire.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def discard(self) -> bool:
        """Skip a body that nobody wants; tell whether the connection can go on after it."""
        if self._is_whole:
            return True
        try:
            return await (self._discard_chunks() if self._length is None else self._discard_length(self._length))
        except Refused:
            return False

    async def _discard_length(self, length: int) -> bool:
        if length > _UNREAD:
            return False
        while len(self._rest) < length:
            self._rest += await self._more()
        self._rest, self._is_whole = self._rest[length:], True
        return True

    async def _discard_chunks(self) -> bool:
        http, size = self._chunked(), 0
        while not isinstance(event := self._next(http), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                http.receive_data(await self._more())
            elif isinstance(event, h11.Data):
                size += len(event.data)
                if size > _UNREAD:
                    return False
            else:
                return False
        self._end(http, event)
        return True

    def _chunked(self) -> h11.Connection:
        """Return the connection that reads a body in chunks."""
        assert self._http is not None
        return self._http

    def release(self) -> None:
        """Free the room of the last body."""
        self._load.held -= self._taken
        self._taken = 0

    def hand_over(self) -> Callable[[], None]:
        """Return a function that frees the room of the last body instead of `release`, for a request that outlives its connection."""
        size, self._taken = self._taken, 0

        def give_back() -> None:
            self._load.held -= size

        return give_back

    def _from_h11(self, http: h11.Connection, event: h11.Request) -> RequestHead:
        headers = [(bytes(name), bytes(value)) for name, value in event.headers]
        # Older libraries send CONNECT as HTTP/1.0, and then HTTP/1.1 inside.
        if event.http_version != b"1.1" and event.method != b"CONNECT":
            raise Refused(505, "HTTP/1.1 is spoken here", fatal=True)
        names = frozenset(name for name, _ in headers)
        is_chunked, lengths = b"transfer-encoding" in names, [value for name, value in headers if name == b"content-length"]
        if is_chunked and lengths:
            raise Refused(400, "the request has two lengths, which programs read differently", fatal=True)
        if not is_chunked:
            # h11 has checked that there is at most one, and that it is a number.
            self._length, self._rest = int(lengths[0]) if lengths else 0, http.trailing_data[0]
        self._is_awaited = http.they_are_waiting_for_100_continue
        if sum(map(len, chain(*headers))) + len(event.target) > self._bounds.head:
            raise Refused(431, _TOO_LONG, fatal=True)
        return self._head(event.method.decode("ascii"), event.target.decode("ascii"), headers, names)

    def _head(self, method: str, target: str, headers: Sequence[Header], names: AbstractSet[bytes]) -> RequestHead:
        """Return the head after checking the number of headers and the length of the body."""
        if len(headers) > _MOST_HEADERS:
            raise Refused(431, _TOO_LONG, fatal=True)
        self._require_bounded_body()
        return RequestHead(method, target, [header for header in headers if header[0] != b"content-length"], names)

    def _require_bounded_body(self) -> None:
        if self._length is not None and self._length > self._bounds.body:
            raise Refused(413, f"the body is longer than {self._bounds.body} bytes", fatal=True)

    async def _more(self) -> bytes:
        try:
            data = await self._wire.read(self._bounds.sending)
        except TimeoutError:
            raise Refused(408, "the request did not come to an end", fatal=True) from None
        if not data:
            raise ConnectionResetError("the client is gone")
        return data

    def _next(self, http: h11.Connection) -> "h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]":
        try:
            return http.next_event()
        except h11.RemoteProtocolError as fault:
            raise Refused(fault.error_status_hint, "the request is not HTTP as it should be", fatal=True) from None

    def _end(self, http: h11.Connection, event: object) -> None:
        if not isinstance(event, h11.EndOfMessage):
            raise Refused(400, "the request is not HTTP as it should be", fatal=True)
        self._rest = http.trailing_data[0]
        self._is_whole = True
