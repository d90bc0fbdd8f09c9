"""The heads that clients send in practice, read quickly: one spelling of everything, and whatever is spelt otherwise is left to h11."""

import re
from dataclasses import dataclass
from typing import Final

Header = tuple[bytes, bytes]

_WHOLE = re.compile(
    rb"(?P<method>GET|POST|CONNECT) (?P<target>[!-~]+) HTTP/1\.1(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]++: [!-~](?:[\t -~]*[!-~])?)*+"
)
_LENGTH = re.compile(rb"0|[1-9][0-9]{0,14}")
# What changes where a body ends, or what may come after it, is read by a library that has thought of everything.
_NOT_PLAIN: Final = frozenset(b"transfer-encoding expect upgrade connection trailer".split())


@dataclass(frozen=True, slots=True)
class PlainHead:
    """A head whose body has a known length; `end` is where that begins. Header names are in lower case."""

    method: str
    target: str
    headers: list[Header]
    names: frozenset[bytes]
    length: int
    end: int


def plain_head(data: bytes, most: int) -> PlainHead | None:
    """Return the head that the bytes begin with, or None where it is not whole, too big, or not plain. It never means what h11 does not."""
    end = data.find(b"\r\n\r\n", 0, most)
    if end < 0:
        return None
    request = _WHOLE.fullmatch(data, 0, end)
    if request is None:
        return None
    parts = [line.partition(b": ") for line in data[:end].split(b"\r\n")[1:]]
    headers = [(name.lower(), value) for name, _, value in parts]
    names = [name for name, _ in headers]
    if names.count(b"host") != 1 or names.count(b"content-length") > 1 or not _NOT_PLAIN.isdisjoint(names):
        return None
    length = next((value for name, value in headers if name == b"content-length"), b"0")
    if not _LENGTH.fullmatch(length):
        return None
    return PlainHead(request["method"].decode(), request["target"].decode(), headers, frozenset(names), int(length), end + 4)
