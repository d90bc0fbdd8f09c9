"""The heads that clients send in practice, read quickly: one spelling of everything, and whatever is spelt otherwise is left to h11."""

import re
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

Header = tuple[bytes, bytes]

_WHOLE = re.compile(rb"(GET|POST|CONNECT) ([!-~]+) HTTP/1\.1(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]++: [!-~](?:[\t -~]*[!-~])?)*+")
_LENGTH = re.compile(rb"0|[1-9][0-9]{0,14}")
_LENGTH_LINES: Final = (b"\r\ncontent-length: ", b"\r\nContent-Length: ")
_LONGEST_KEPT: Final = 8 * 1024
# What changes where a body ends, or what may come after it, is read by a library that has thought of everything.
_NOT_PLAIN: Final = frozenset(b"transfer-encoding expect upgrade trailer".split())


class PlainHead(NamedTuple):
    """A head whose body has a known length; `end` is where that begins. Header names are in lower case, and none stands twice."""

    method: str
    target: str
    headers: list[Header]
    names: AbstractSet[bytes]
    length: int
    end: int

    def shape(self, data: bytes) -> "Shape | None":
        """Return the shape of this head in the bytes that it was read from, or None where it is long or says its length in no usual way."""
        start = max(data.find(line, 0, self.end) + len(line) for line in _LENGTH_LINES)
        if self.end > _LONGEST_KEPT or start < len(_LENGTH_LINES[0]):
            return None
        return Shape(data[:start], data[data.find(b"\r\n", start) : self.end])


class Shape(NamedTuple):
    """A head around the length of its body, which is all that differs in what most clients send one after the other."""

    before: bytes
    after: bytes

    def again(self, data: bytes, most: int) -> tuple[int, int] | None:
        """Return the length of a body and where it begins, where the bytes begin with the same head but for that length."""
        start, rest = len(self.before), len(self.after)
        if not data.startswith(self.before):
            return None
        at = data.find(b"\r", start, start + 16)
        if at < 0 or at + rest > most or not data.startswith(self.after, at):
            return None
        digits = data[start:at]
        return (int(digits), at + rest) if _LENGTH.fullmatch(digits) else None


def plain_head(data: bytes, most: int) -> PlainHead | None:
    """Return the head that the bytes begin with, or None where it is not whole, too big, or not plain. It never means what h11 does not."""
    end = data.find(b"\r\n\r\n", 0, most)
    if end < 0:
        return None
    request = _WHOLE.fullmatch(data, 0, end)
    if request is None:
        return None
    headers = [(name.lower(), value) for name, _, value in [line.partition(b": ") for line in data[:end].split(b"\r\n")[1:]]]
    told = dict(headers)
    if len(told) < len(headers) or b"host" not in told or not _NOT_PLAIN.isdisjoint(told):
        return None
    # What most clients say, and what goes without saying.
    if told.get(b"connection", b"keep-alive").lower() != b"keep-alive":
        return None
    length = told.get(b"content-length", b"0")
    if not _LENGTH.fullmatch(length):
        return None
    return PlainHead(request[1].decode(), request[2].decode(), headers, told.keys(), int(length), end + 4)
