"""Exchange one HTTP request and reply over one connection: headers are checked, h11 does the framing, and sizes are bounded."""

import asyncio
import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Final, Protocol
from urllib.parse import parse_qsl, unquote_plus

import h11

from curtainwall.facts import quoted
from curtainwall.facts.secrets.names import is_secret_key
from curtainwall.host import Connection
from curtainwall.model import record
from curtainwall.tools.runners import CannotDo

Headers = tuple[tuple[str, str], ...]

USER_AGENT: Final = "curtainwall"
_LONGEST: Final = 8_192
_LONGEST_SHOWN: Final = 2_048
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_UNSOUND = re.compile(r"[^\t\x20-\x7e]")

_MAY_SEND: Final = frozenset(
    (
        "accept accept-language cache-control content-language content-type dnt if-match if-modified-since if-none-match if-range "
        "if-unmodified-since pragma prefer priority range user-agent"
    ).split()
)
# Some frameworks let these override the method, path or sender that was judged.
_MISLEADING = re.compile(r"x-(?:http-method|method|original|rewrite|forwarded|real-ip|client-ip|host|override|remote)\b.*")
# After a redirect to another origin, only these go along: nothing that identifies the agent or what it knows of the first.
_GO_ELSEWHERE: Final = frozenset("accept accept-language cache-control user-agent".split())
_OF_A_BODY: Final = frozenset("content-language content-type".split())

_SHOWN: Final = frozenset(
    (
        "accept-ranges age allow cache-control content-disposition content-language content-length content-range content-type date "
        "deprecation etag expires last-modified link location ratelimit-limit ratelimit-remaining ratelimit-reset retry-after sunset vary "
        "www-authenticate x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset x-request-id x-total-count"
    ).split()
)


def request_headers(written: Mapping[str, str]) -> Headers:
    """Return the headers that an agent set; raise `CannotDo` for one that is reserved, secret, or invalid."""
    headers: dict[str, tuple[str, str]] = {}
    for name, value in written.items():
        lowered = name.lower()
        if not _NAME.fullmatch(name) or lowered in headers:
            raise CannotDo(f"{quoted(name)} is no name of a header, or stands there twice")
        if is_secret_key(name) or lowered in {"proxy-authorization", "authentication"}:
            raise CannotDo(f"the header {quoted(name)} carries a secret; name a `credential` instead, and it is sent for you")
        if not _may_send(lowered):
            raise CannotDo(
                f"the header {quoted(name)} cannot be set; free are {', '.join(sorted(_MAY_SEND))} and those that begin with `x-`"
            )
        if len(value) > _LONGEST or _UNSOUND.search(value):
            raise CannotDo(f"the value of the header {quoted(name)} is too long, or holds a line break or a letter that is not plain ASCII")
        headers[lowered] = (name, value.strip())
    return tuple(headers.values())


def require_one_credential(written: Headers, sent: Headers, credential: str) -> None:
    """Raise `CannotDo` if an agent set the header that carries a credential: of two, it is unknown which one a server uses."""
    carrying = {name.lower() for name, _ in sent}
    for name, _ in written:
        if name.lower() in carrying:
            raise CannotDo(f"the header {quoted(name)} carries the credential `{credential}`; leave it out, it is sent for you")


def has_parameter(target: str, name: str) -> bool:
    """Tell whether a request's target names a parameter, in any spelling."""
    parameters = parse_qsl(target.partition("?")[2].replace(";", "&"), keep_blank_values=True)
    return unquote_plus(name) in {key for key, _ in parameters}


def _may_send(name: str) -> bool:
    custom = name.startswith("x-") or name.endswith("-version")
    return name in _MAY_SEND or (custom and not _MISLEADING.fullmatch(name))


def headers_after(written: Mapping[str, str], *, same_origin: bool, keeps_body: bool) -> dict[str, str]:
    """Return the headers that go along with a redirect."""
    kept = written if same_origin else {name: value for name, value in written.items() if name.lower() in _GO_ELSEWHERE | _OF_A_BODY}
    return {name: value for name, value in kept.items() if keeps_body or name.lower() not in _OF_A_BODY}


def shown_headers(headers: Headers) -> dict[str, str]:
    """Return the reply headers that an agent may see, merged and truncated, never a cookie."""
    shown: dict[str, str] = {}
    for name, value in headers:
        lowered = name.lower()
        if lowered in _SHOWN:
            joined = f"{shown[lowered]}, {value}" if lowered in shown else value
            shown[lowered] = joined if len(joined) <= _LONGEST_SHOWN else f"{joined[:_LONGEST_SHOWN]}…"
    return shown


def header_of(headers: Iterable[tuple[str, str]], name: str) -> str:
    """Return the first value of a header, or an empty text."""
    return next((value for key, value in headers if key.lower() == name), "")


_PIECE: Final = 65_536
_BIGGEST_HEAD: Final = 65_536
_MOST_MEMBERS: Final = 64
_MOST_NOTES: Final = 16
ENCODINGS: Final = "gzip, deflate"


@record
class HttpRequest:
    """A request: the target is path and query, and the headers are complete except for the content length."""

    method: str
    target: str
    headers: Headers
    body: bytes | None = None


@record
class HttpReply:
    """A decoded reply; `cut` says that it exceeded the limit."""

    status: int
    headers: Headers
    body: bytes
    cut: bool = False


async def exchange(connection: Connection, request: HttpRequest, limit: int) -> HttpReply:
    """Send one request and read its reply, keeping at most `limit` bytes; raise `CannotDo` if it is not valid HTTP."""
    wire = h11.Connection(h11.CLIENT, max_incomplete_event_size=_BIGGEST_HEAD)
    try:
        await _send(connection, wire, request)
        return await _receive(connection, wire, limit)
    except h11.RemoteProtocolError as error:
        raise CannotDo(f"the server's answer is not HTTP as it should be: {error}") from None
    except h11.LocalProtocolError:
        # Its message may contain what we were about to send.
        raise CannotDo("the request could not be written as HTTP") from None
    except zlib.error:
        raise CannotDo("the server's answer says that it is compressed, and is not") from None
    except OSError as error:
        raise CannotDo(f"the connection broke: {(error.strerror or type(error).__name__).lower()}") from None


async def _send(connection: Connection, wire: h11.Connection, request: HttpRequest) -> None:
    length = () if request.body is None else (("Content-Length", str(len(request.body))),)
    head = h11.Request(method=request.method, target=request.target, headers=[*request.headers, *length])
    pieces = [wire.send(head), wire.send(h11.Data(data=request.body)) if request.body else b"", wire.send(h11.EndOfMessage())]
    connection.writer.write(b"".join(piece for piece in pieces if piece))
    await connection.writer.drain()


async def _receive(connection: Connection, wire: h11.Connection, limit: int) -> HttpReply:
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
            # Otherwise a server that sends faster than we read would monopolise the loop.
            await asyncio.sleep(0)
        elif isinstance(event, h11.InformationalResponse):
            notes += 1
            if notes > _MOST_NOTES or event.status_code == 101:
                raise CannotDo("the server does not come to an answer")
        elif isinstance(event, h11.Response):
            status, headers = event.status_code, _headers_of(event)
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
    return HttpReply(status, headers, content.result, cut=content.full)


def _headers_of(response: h11.Response) -> Headers:
    # HTTP headers are Latin-1, but many servers send UTF-8, so try that first.
    def text(value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.decode("latin-1")

    return tuple((text(name), text(value)) for name, value in response.headers)


class _Content(Protocol):
    """A body decoded as it arrives, up to a limit."""

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
        """Return how many more bytes to keep, including one beyond the limit that shows there was more."""
        return self._limit + 1 - len(self._kept)

    def feed(self, piece: bytes) -> None:
        self._kept += piece[: self.room]


class _Compressed(_Plain):
    """Inflates no further than the limit, whatever the compressed size."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._inflate = zlib.decompressobj(wbits=47)
        self._members = 1
        self._begun = False

    def feed(self, piece: bytes) -> None:
        if not self._begun and piece:
            self._begun = True
            # `deflate` means the zlib format, but some servers send raw deflate.
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
    """Refuses the first byte of a body in an unsupported encoding; a reply without a body passes."""

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
