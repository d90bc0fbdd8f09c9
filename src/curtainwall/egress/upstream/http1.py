"""HTTP/1.1 with a provider: filters headers, writes and reads heads, and finds the end of a reply."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from curtainwall.egress.refusals import Broke, Refused

Header = tuple[bytes, bytes]

_BIGGEST: Final = 64 * 1024
_MOST_HEADERS: Final = 200
_LENGTH = re.compile(rb"[0-9]{1,15}")
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [^\r\n]*)?")
# Most heads match this plain form, and then need no check of each line.
_PLAIN = re.compile(_STATUS.pattern + rb"(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]++: [!-~](?:[\t -~]*[!-~])?)*+")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00\r\n]*?)[ \t]*")


class ReplyHead(NamedTuple):
    """The head of a reply; header names are lower case, and `stays` means that the connection can be reused.

    `by_name` has the headers by name; of a repeated header it has the last value.
    """

    status: int
    headers: list[Header]
    by_name: dict[bytes, bytes]
    stays: bool


def request_start(method: str, target: str, headers: Sequence[Header]) -> bytes:
    """Return the beginning of a request's head; raise `Refused`. INVARIANT: no part of a head contains a line end."""
    start = b"\r\n".join([f"{method} {target} HTTP/1.1".encode("ascii"), *map(b": ".join, headers)])
    if start.count(b"\n") != len(headers) or start.count(b"\r") != len(headers):
        raise Refused(400, "the request could not be written as HTTP")
    return start


def request_head(start: bytes, headers: Sequence[Header]) -> bytes:
    """Return the whole head with this start; raise `Broke`. A key is arbitrary text, so its line ends are checked here as well."""
    rest = b"\r\n".join(map(b": ".join, headers))
    if rest.count(b"\n") != len(headers) - 1 or rest.count(b"\r") != len(headers) - 1:
        raise Broke("the request could not be written as HTTP")
    return b"%b\r\n%b\r\n\r\n" % (start, rest)


def take_head(data: bytes) -> tuple[ReplyHead, bytes] | None:
    """Return a reply's head and the bytes after it, or None if it is not complete yet; raise `Broke`."""
    end = data.find(b"\r\n\r\n")
    if end < 0 or end > _BIGGEST:
        if len(data) > _BIGGEST:
            raise Broke("the provider's answer has a head without end")
        return None
    lines = data[:end].split(b"\r\n")
    plain = _PLAIN.fullmatch(data, 0, end)
    status = plain or _STATUS.fullmatch(lines[0])
    if status is None or len(lines) > _MOST_HEADERS + 1:
        raise Broke("the provider's answer is not HTTP as it should be")
    del lines[0]
    if plain:
        headers = [(name.lower(), value) for name, _, value in [line.partition(b": ") for line in lines]]
    else:
        headers = [_header(line) for line in lines]
    by_name = dict(headers)
    length = by_name.get(b"content-length")
    if length is not None and (not _LENGTH.fullmatch(length) or any(each != length for each in _all(b"content-length", headers, by_name))):
        raise Broke("the provider's answer has no one length")
    closes = status[1] == b"0" or (b"connection" in by_name and b"close" in b",".join(_all(b"connection", headers, by_name)).lower())
    return ReplyHead(int(status[2]), headers, by_name, not closes), data[end + 4 :]


def _all(name: bytes, headers: list[Header], by_name: dict[bytes, bytes]) -> list[bytes]:
    """Return every value of a header that is present; mostly none is repeated."""
    return [by_name[name]] if len(by_name) == len(headers) else [value for each, value in headers if each == name]


def _header(line: bytes) -> Header:
    match = _HEADER.fullmatch(line)
    if match is None:
        raise Broke("the provider's answer is not HTTP as it should be")
    return match[1].lower(), match[2]


Headers = list[tuple[bytes, bytes]]

_LONGEST_LINE: Final = 4096
_LONGEST_TRAILER: Final = 16 * 1024
_BIGGEST_CHUNK_SIZE: Final = 16  # digits
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")
_NO_BODY: Final = frozenset((204, 304))
_TOO_EARLY: Final = "the provider hung up in the middle of its reply"


class Framing(Protocol):
    """Extracts the content from the bytes of a reply."""

    length: int | None
    done: bool
    spoilt: bool  # something came after the end, so the connection cannot be reused

    def feed(self, data: bytes) -> bytes:
        """Return the content in these bytes; raise `Broke` if the framing is invalid. Must not be called once done."""
        ...

    def ended(self, *, announced: bool) -> None:
        """Handle the end of the connection, and whether the provider announced it; raise `Broke` if it came too early."""
        ...


def reply_framing(status: int, headers: Headers, by_name: Mapping[bytes, bytes]) -> Framing:
    """Return the framing of a reply, given its headers as a list and by name."""
    if status in _NO_BODY:
        return _Length(0)
    if b"transfer-encoding" in by_name:
        if [value.lower() for name, value in headers if name == b"transfer-encoding"] != [b"chunked"]:
            raise Broke("the provider answered in a framing that is not known")
        return _Chunks()
    length = by_name.get(b"content-length")
    # `take_head` has checked that there is only one, and that it is a number.
    return _UntilTheEnd() if length is None else _Length(int(length))


class _Length:
    def __init__(self, length: int) -> None:
        self.length: int | None = length
        self._left = length
        self.done = not length
        self.spoilt = False

    def feed(self, data: bytes) -> bytes:
        if len(data) > self._left:
            self.spoilt = True
            data = data[: self._left]
        self._left -= len(data)
        self.done = not self._left
        return data

    def ended(self, *, announced: bool) -> None:  # noqa: ARG002 - the framing says itself where the end is
        if not self.done:
            raise Broke(_TOO_EARLY)


class _UntilTheEnd:
    length: int | None = None
    spoilt = True

    def __init__(self) -> None:
        self.done = False

    def feed(self, data: bytes) -> bytes:
        return data

    def ended(self, *, announced: bool) -> None:
        # An attacker in between can cut a connection, but cannot forge the end of TLS.
        if not announced:
            raise Broke(_TOO_EARLY)
        self.done = True


class _Chunks:
    length: int | None = None

    def __init__(self) -> None:
        self.done: bool = False
        self.spoilt = False
        self._left: int = 0  # of the chunk that is being read
        self._rest: bytes = b""  # an incomplete line
        self._after_chunk = False
        self._in_trailer = False
        self._trailer: int = 0

    def feed(self, data: bytes) -> bytes:
        at = 0
        if self._left:
            if len(data) < self._left:
                self._left -= len(data)
                return data
            at, self._left = self._left, 0
            self._after_chunk = True
            pieces = [data[:at]]
        else:
            pieces = list[bytes]()
            if self._rest:
                data, self._rest = self._rest + data, b""
        size = len(data)
        while at < size:
            if self.done:
                self.spoilt = True
                break
            if self._after_chunk:
                if size - at < 2:
                    break
                if data[at : at + 2] != b"\r\n":
                    raise Broke("the provider's chunks are not framed as they should be")
                at += 2
                self._after_chunk = False
                continue
            end = data.find(b"\r\n", at, at + _LONGEST_LINE)
            if end < 0:
                if size - at >= _LONGEST_LINE:
                    raise Broke("the provider's chunks are not framed as they should be")
                break
            if self._in_trailer:
                self._trailer += end - at + 2
                if self._trailer > _LONGEST_TRAILER:
                    raise Broke("the provider's trailer does not end")
                self.done = end == at
                at = end + 2
                continue
            length = _chunk_size(data[at:end])
            at = end + 2
            if not length:
                self._in_trailer = True
                continue
            pieces.append(data[at : at + length])
            if size - at < length:
                self._left = length - (size - at)
                at = size
            else:
                at += length
                self._after_chunk = True
        self._rest = data[at:]
        return b"".join(pieces) if len(pieces) != 1 else pieces[0]

    def ended(self, *, announced: bool) -> None:  # noqa: ARG002 - the framing says itself where the end is
        if not self.done:
            raise Broke(_TOO_EARLY)


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].rstrip(b" \t") if b";" in line or line[-1:] in {b" ", b"\t"} else line
    if not 0 < len(digits) <= _BIGGEST_CHUNK_SIZE or not _HEX.issuperset(digits):
        raise Broke("the provider's chunks are not framed as they should be")
    return int(digits, 16)


_HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding upgrade".split()
)
_NOT_SENT: Final = _HOP_BY_HOP | frozenset(
    b"host content-length content-encoding accept-encoding expect cookie forwarded via x-real-ip max-forwards".split()
)
# Headers that offer a protocol that would bypass us, or let a provider recognize a client.
_NOT_PASSED: Final = _HOP_BY_HOP | frozenset(b"content-length set-cookie set-cookie2 alt-svc strict-transport-security".split())


def sendable(headers: Sequence[Header]) -> list[Header]:
    """Return the client's headers that a provider gets: nothing about the hop, the framing, or the origin."""
    hop_only = _hop_headers([value for name, value in headers if name == b"connection"])
    return [it for it in headers if it[0] not in _NOT_SENT and it[0] not in hop_only and it[0][:12] != b"x-forwarded-"]


def passable(headers: Sequence[Header], by_name: Mapping[bytes, bytes]) -> list[Header]:
    """Return the provider's headers that a client gets, given them as a list and by name."""
    if b"connection" not in by_name:
        return [it for it in headers if it[0] not in _NOT_PASSED]
    hop_only = _hop_headers([value for name, value in headers if name == b"connection"])
    return [it for it in headers if it[0] not in _NOT_PASSED and it[0] not in hop_only]


def _hop_headers(values: Sequence[bytes]) -> frozenset[bytes]:
    """Return the headers that `Connection` values declare to be for this hop only."""
    return frozenset(part.strip().lower() for value in values for part in value.split(b","))
