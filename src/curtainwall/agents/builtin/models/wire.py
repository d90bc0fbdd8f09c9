"""What really came on the wire: the bytes of one answer, kept up to a limit while the provider's library reads them."""

from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Final, cast

import httpx2
from pydantic import JsonValue

MOST_KEPT: Final = 8 * 1024 * 1024
_CONNECT_SECONDS: Final = 30.0
_LAST_PIECES: Final = 16
_POOL: Final = httpx2.Limits(max_connections=100, max_keepalive_connections=10, keepalive_expiry=30.0)


class Tape:
    """The answer to one request as it came."""

    def __init__(self) -> None:
        self.status = 0
        self.size = 0
        self._encoding = ""
        self._pieces: list[bytes] = []

    def begin(self, response: httpx2.Response) -> None:
        """Record an answer from its beginning; whatever was recorded before is dropped."""
        self.status, self.size, self._pieces = response.status_code, 0, []
        self._encoding = response.headers.get("content-encoding", "")
        response.stream = _Heard(cast("httpx2.AsyncByteStream", response.stream), self)

    def take(self, piece: bytes) -> None:
        """Keep a piece, as far as there is room."""
        room = MOST_KEPT - self.size
        if room > 0:
            self._pieces.append(piece[:room])
        self.size += len(piece)

    def ending(self) -> bytes:
        """Return the last bytes, which say whether the answer came to its end."""
        return b"".join(self._pieces[-_LAST_PIECES:])

    def told(self) -> dict[str, JsonValue]:
        """Return what was recorded: the status, the text, and how many bytes did not fit."""
        told: dict[str, JsonValue] = {"status": self.status, "body": b"".join(self._pieces).decode(errors="replace")}
        if self.size > MOST_KEPT:
            told["left_out"] = self.size - MOST_KEPT
        if self._encoding not in {"", "identity"}:
            # We ask for plain text; a server that sends something else all the same is quoted by length alone.
            told |= {"body": "", "encoding": self._encoding, "left_out": self.size}
        return told


class _Heard(httpx2.AsyncByteStream):
    """A stream of bytes that tells a tape of each."""

    def __init__(self, stream: httpx2.AsyncByteStream, tape: Tape) -> None:
        self._stream = stream
        self._tape = tape

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._tape.take(piece)
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


LISTENING: ContextVar[Tape | None] = ContextVar("LISTENING", default=None)
"""The tape of the request that is being sent."""


async def _record(response: httpx2.Response) -> None:
    tape = LISTENING.get()
    if tape is not None:
        tape.begin(response)


def timeouts(silence_seconds: float) -> httpx2.Timeout:
    """Return the time after which a provider that sends no byte is given up."""
    return httpx2.Timeout(connect=min(_CONNECT_SECONDS, silence_seconds), read=silence_seconds, write=silence_seconds, pool=silence_seconds)


def recording_client(silence_seconds: float) -> httpx2.AsyncClient:
    """Return a client whose answers are recorded; it follows no redirect, since a key would go along."""
    return httpx2.AsyncClient(
        timeout=timeouts(silence_seconds),
        limits=_POOL,
        follow_redirects=False,
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [_record]},
    )
