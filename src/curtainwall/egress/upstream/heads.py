"""The heads of what we say to a provider and of what it answers: written from checked parts, read strictly and with bounds."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from curtainwall.egress.refusal import Broke, Refused

Header = tuple[bytes, bytes]

_BIGGEST: Final = 64 * 1024
_MOST_HEADERS: Final = 200
_LENGTH = re.compile(rb"[0-9]{1,15}")
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [^\r\n]*)?")
# Most heads are written in the same plain way, and then need no look at each line.
_PLAIN = re.compile(_STATUS.pattern + rb"(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]++: [!-~](?:[\t -~]*[!-~])?)*+")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00\r\n]*?)[ \t]*")


class Answered(NamedTuple):
    """The head of an answer; header names are in lower case, `stays` says that the connection can be used again.

    `told` has the headers by name; of one that stands more than once it has the last.
    """

    status: int
    headers: list[Header]
    told: dict[bytes, bytes]
    stays: bool


def request_start(method: str, target: str, headers: Sequence[Header]) -> bytes:
    """Return the beginning of a request's head; raise `Refused`. INVARIANT: no part of a head ends a line."""
    start = b"\r\n".join([f"{method} {target} HTTP/1.1".encode("ascii"), *map(b": ".join, headers)])
    if start.count(b"\n") != len(headers) or start.count(b"\r") != len(headers):
        raise Refused(400, "the request could not be written as HTTP")
    return start


def request_head(start: bytes, headers: Sequence[Header]) -> bytes:
    """Return a whole head that begins so; raise `Broke`. A key is only text to us, so the same is seen to here."""
    rest = b"\r\n".join(map(b": ".join, headers))
    if rest.count(b"\n") != len(headers) - 1 or rest.count(b"\r") != len(headers) - 1:
        raise Broke("the request could not be written as HTTP")
    return b"%b\r\n%b\r\n\r\n" % (start, rest)


def take_head(data: bytes) -> tuple[Answered, bytes] | None:
    """Return an answer's head and what came after it, or None where it is not whole yet; raise `Broke`."""
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
    told = dict(headers)
    length = told.get(b"content-length")
    if length is not None and (not _LENGTH.fullmatch(length) or any(each != length for each in _all(b"content-length", headers, told))):
        raise Broke("the provider's answer has no one length")
    closes = status[1] == b"0" or (b"connection" in told and b"close" in b",".join(_all(b"connection", headers, told)).lower())
    return Answered(int(status[2]), headers, told, not closes), data[end + 4 :]


def _all(name: bytes, headers: list[Header], told: dict[bytes, bytes]) -> list[bytes]:
    """Return every value of a header that is there; mostly none stands twice."""
    return [told[name]] if len(told) == len(headers) else [value for each, value in headers if each == name]


def _header(line: bytes) -> Header:
    match = _HEADER.fullmatch(line)
    if match is None:
        raise Broke("the provider's answer is not HTTP as it should be")
    return match[1].lower(), match[2]
