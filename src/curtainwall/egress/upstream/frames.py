"""Where a provider's reply ends, and the reply without its framing: by length, in chunks, or until the connection ends."""

from collections.abc import Mapping
from typing import Final, Protocol

from curtainwall.egress.refusal import Broke

Headers = list[tuple[bytes, bytes]]

_LONGEST_LINE: Final = 4096
_LONGEST_TRAILER: Final = 16 * 1024
_BIGGEST_CHUNK_SIZE: Final = 16  # digits
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")
_NO_BODY: Final = frozenset((204, 304))
_TOO_EARLY: Final = "the provider hung up in the middle of its reply"


class Framing(Protocol):
    """Takes what came from a provider and gives what it says."""

    length: int | None
    done: bool
    spoilt: bool  # something came after the end, so the connection is good for nothing more

    def feed(self, data: bytes) -> bytes:
        """Return the content in what came; raise `Broke` for what is no such framing. Nothing is fed once it is done."""
        ...

    def ended(self, *, said: bool) -> None:
        """Take note that the connection ended, and whether the provider said so; raise `Broke` where that was too early."""
        ...


def framing_of(status: int, headers: Headers, told: Mapping[bytes, bytes]) -> Framing:
    """Return how a reply is framed whose headers are told by name as well."""
    if status in _NO_BODY:
        return _Length(0)
    if b"transfer-encoding" in told:
        if [value.lower() for name, value in headers if name == b"transfer-encoding"] != [b"chunked"]:
            raise Broke("the provider answered in a framing that is not known")
        return _Chunks()
    length = told.get(b"content-length")
    # Whoever read the head has seen to it that there is one at most, and that it is a number.
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

    def ended(self, *, said: bool) -> None:  # noqa: ARG002 - the framing says itself where the end is
        if not self.done:
            raise Broke(_TOO_EARLY)


class _UntilTheEnd:
    length: int | None = None
    spoilt = True

    def __init__(self) -> None:
        self.done = False

    def feed(self, data: bytes) -> bytes:
        return data

    def ended(self, *, said: bool) -> None:
        # Whoever is between us can end a connection, but not say in TLS that it was meant.
        if not said:
            raise Broke(_TOO_EARLY)
        self.done = True


class _Chunks:
    length: int | None = None

    def __init__(self) -> None:
        self.done: bool = False
        self.spoilt = False
        self._left: int = 0  # of the chunk that is being read
        self._rest: bytes = b""  # a line that is not whole yet
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

    def ended(self, *, said: bool) -> None:  # noqa: ARG002 - the framing says itself where the end is
        if not self.done:
            raise Broke(_TOO_EARLY)


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].rstrip(b" \t") if b";" in line or line[-1:] in {b" ", b"\t"} else line
    if not 0 < len(digits) <= _BIGGEST_CHUNK_SIZE or not _HEX.issuperset(digits):
        raise Broke("the provider's chunks are not framed as they should be")
    return int(digits, 16)
