"""The heads of what we say to a provider and of what it answers: written from checked parts, read strictly and with bounds."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from curtainwall.egress.refusal import Broke

Header = tuple[bytes, bytes]

_BIGGEST: Final = 64 * 1024
_MOST_HEADERS: Final = 200
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [^\r\n]*)?")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00\r\n]*?)[ \t]*")


@dataclass(frozen=True, slots=True)
class Answered:
    """The head of an answer; header names are in lower case, `stays` says that the connection can be used again."""

    status: int
    headers: list[Header]
    stays: bool


def request_head(method: str, target: str, headers: Sequence[Header]) -> bytes:
    """Return a request's head. INVARIANT: no part of it ends a line; h11 has read the client's parts, but a key is only text to us."""
    lines = [f"{method} {target} HTTP/1.1".encode("ascii"), *(b"%b: %b" % header for header in headers)]
    head = b"\r\n".join(lines)
    if head.count(b"\n") != len(headers) or head.count(b"\r") != len(headers):
        raise Broke("the request could not be written as HTTP")
    return head + b"\r\n\r\n"


def take_head(data: bytes) -> tuple[Answered, bytes] | None:
    """Return an answer's head and what came after it, or None where it is not whole yet; raise `Broke`."""
    end = data.find(b"\r\n\r\n")
    if end < 0 or end > _BIGGEST:
        if len(data) > _BIGGEST:
            raise Broke("the provider's answer has a head without end")
        return None
    first, *lines = data[:end].split(b"\r\n")
    status = _STATUS.fullmatch(first)
    if status is None or len(lines) > _MOST_HEADERS:
        raise Broke("the provider's answer is not HTTP as it should be")
    headers: list[Header] = []
    lengths: set[bytes] = set()
    closes = status[1] == b"0"
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None:
            raise Broke("the provider's answer is not HTTP as it should be")
        name, value = match[1].lower(), match[2]
        if name == b"content-length":
            lengths.add(value)
        elif name == b"connection":
            closes = closes or b"close" in value.lower()
        headers.append((name, value))
    if len(lengths) > 1 or not all(re.fullmatch(rb"[0-9]{1,15}", length) for length in lengths):
        raise Broke("the provider's answer has no one length")
    return Answered(int(status[2]), headers, not closes), data[end + 4 :]
