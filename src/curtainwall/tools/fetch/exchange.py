"""One request and its answer over one connection that is then closed: framing by h11, sizes bounded, nothing remembered."""

import asyncio
import zlib
from dataclasses import dataclass
from typing import Final, Protocol

import h11

from curtainwall.host import Connection
from curtainwall.tools.fetch.headers import Headers, header_of
from curtainwall.tools.runners import CannotDo

_PIECE: Final = 65_536
_BIGGEST_HEAD: Final = 65_536
_MOST_MEMBERS: Final = 64
_MOST_NOTES: Final = 16
ENCODINGS: Final = "gzip, deflate"


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent: the target is path and query, the headers are complete but for the length of the body."""

    method: str
    target: str
    headers: Headers
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, decoded; `cut` where it was longer than may be."""

    status: int
    headers: Headers
    body: bytes
    cut: bool = False


async def exchange(connection: Connection, request: Request, limit: int) -> Reply:
    """Send one request and read its answer, of which at most `limit` bytes are kept; raise `CannotDo` for what is no HTTP."""
    wire = h11.Connection(h11.CLIENT, max_incomplete_event_size=_BIGGEST_HEAD)
    try:
        await _send(connection, wire, request)
        return await _receive(connection, wire, limit)
    except h11.RemoteProtocolError as fault:
        raise CannotDo(f"the server's answer is not HTTP as it should be: {fault}") from None
    except h11.LocalProtocolError:
        # Its words may hold what we were about to send.
        raise CannotDo("the request could not be written as HTTP") from None
    except zlib.error:
        raise CannotDo("the server's answer says that it is compressed, and is not") from None
    except OSError as fault:
        raise CannotDo(f"the connection broke: {(fault.strerror or type(fault).__name__).lower()}") from None


async def _send(connection: Connection, wire: h11.Connection, request: Request) -> None:
    length = () if request.body is None else (("Content-Length", str(len(request.body))),)
    head = h11.Request(method=request.method, target=request.target, headers=[*request.headers, *length])
    pieces = [wire.send(head), wire.send(h11.Data(data=request.body)) if request.body else b"", wire.send(h11.EndOfMessage())]
    connection.writer.write(b"".join(piece for piece in pieces if piece))
    await connection.writer.drain()


async def _receive(connection: Connection, wire: h11.Connection, limit: int) -> Reply:
    status, headers = 0, Headers()
    content: _Content = _Plain(limit)
    received = notes = 0
    while True:
        event = wire.next_event()
        if event is h11.NEED_DATA:
            piece = await connection.reader.read(_PIECE)
            received += len(piece)
            if received > limit + _BIGGEST_HEAD and content.full:
                break
            if received > 2 * (limit + _BIGGEST_HEAD):
                raise CannotDo("the server's answer is mostly framing; it was cut off")
            wire.receive_data(piece)
            # A server that sends faster than we read would otherwise have the loop to itself.
            await asyncio.sleep(0)
        elif isinstance(event, h11.InformationalResponse):
            notes += 1
            if notes > _MOST_NOTES or event.status_code == 101:
                raise CannotDo("the server does not come to an answer")
        elif isinstance(event, h11.Response):
            status, headers = event.status_code, _told(event)
            content = _content_for(header_of(headers, "content-encoding"), limit)
        elif isinstance(event, h11.Data):
            content.feed(bytes(event.data))
            if content.full:
                break
        elif isinstance(event, h11.EndOfMessage):
            break
        elif isinstance(event, h11.ConnectionClosed):
            raise CannotDo("the server closed the connection without an answer")
        else:
            raise CannotDo("the server wants to speak something else than HTTP")
    return Reply(status, headers, content.result, cut=content.full)


def _told(response: h11.Response) -> Headers:
    # Latin-1 is what HTTP means by a byte; servers that write UTF-8 are read as they meant it.
    def text(value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.decode("latin-1")

    return tuple((text(name), text(value)) for name, value in response.headers)


class _Content(Protocol):
    """A body as it comes in, decoded up to a ceiling."""

    @property
    def full(self) -> bool: ...
    @property
    def result(self) -> bytes: ...
    def feed(self, piece: bytes) -> None: ...


class _Plain:
    def __init__(self, limit: int) -> None:
        self._kept = bytearray()
        self._limit = limit

    @property
    def full(self) -> bool:
        return len(self._kept) > self._limit

    @property
    def result(self) -> bytes:
        return bytes(self._kept[: self._limit])

    @property
    def room(self) -> int:
        """Return how much may come, with one byte beyond the limit that tells that there was more."""
        return self._limit + 1 - len(self._kept)

    def feed(self, piece: bytes) -> None:
        self._kept += piece[: self.room]


class _Compressed(_Plain):
    """Inflates no further than the ceiling, whatever a few bytes claim to be."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._inflate = zlib.decompressobj(wbits=47)
        self._members = 1
        self._begun = False

    def feed(self, piece: bytes) -> None:
        if not self._begun and piece:
            self._begun = True
            # `deflate` means zlib's format, and some servers send it bare.
            if piece[0] & 0x0F != 8 and piece[:1] != b"\x1f":
                self._inflate = zlib.decompressobj(wbits=-15)
        while piece and self.room > 0:
            if self._inflate.eof:
                self._members += 1
                if self._members > _MOST_MEMBERS:
                    raise CannotDo("the server's answer is compressed in too many pieces")
                self._inflate = zlib.decompressobj(wbits=47)
            super().feed(self._inflate.decompress(piece, self.room))
            piece = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail


class _Unasked(_Plain):
    """Refuses the first byte of what is encoded in a way that we cannot bound; an answer without a body passes."""

    def feed(self, piece: bytes) -> None:  # noqa: ARG002 - none of it is looked at
        raise CannotDo(f"the server's answer is encoded in a way that was not asked for (only {ENCODINGS} is read)")


def _content_for(encoding: str, limit: int) -> _Content:
    match encoding.strip().lower():
        case "" | "identity":
            return _Plain(limit)
        case "gzip" | "x-gzip" | "deflate":
            return _Compressed(limit)
        case _:
            return _Unasked(limit)
