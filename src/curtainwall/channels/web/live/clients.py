"""Event stream clients: each has a bounded queue, and one that falls behind is disconnected, to resume from its cursor."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable

_MOST_QUEUED = 512
BEAT_SECONDS = 15.0
"""How often an idle stream sends a sign of life."""
_CHECK_SECONDS = 0.5
"""How long a permission check stays valid: checking for every message would cost more than the messages."""


def sse_message(event: str, data: str, seq: int | None = None) -> bytes:
    """Return one message of an event stream; with a number, a reader that was cut off can resume after it."""
    lines = [f"id: {seq}"] if seq is not None else []
    lines += [f"event: {event}", *(f"data: {line}" for line in data.replace("\r", "").split("\n"))]
    return ("\n".join(lines) + "\n\n").encode("utf-8", "replace")


def sse_json(event: str, data: object) -> bytes:
    """Return one message that holds a value instead of a piece of the page."""
    return sse_message(event, json.dumps(data))


class StreamClient:
    """One open stream."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.is_over = False

    def send(self, message: bytes) -> None:
        """Queue a message; disconnect a client that has too many waiting."""
        if self.is_over:
            return
        if self._queue.qsize() >= _MOST_QUEUED:
            self.leave()
        else:
            self._queue.put_nowait(message)

    def leave(self) -> None:
        """End the stream after the messages already queued."""
        if not self.is_over:
            self.is_over = True
            self._queue.put_nowait(None)

    async def messages(self, is_welcome: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Yield messages, several at once if they are queued, and a sign of life if there are none.

        INVARIANT: a person who has been signed out for longer than a moment receives nothing more, however much is queued.
        """
        checked_at = -_CHECK_SECONDS
        while True:
            try:
                async with asyncio.timeout(BEAT_SECONDS):
                    first = await self._queue.get()
            except TimeoutError:
                first = b": still here\n\n"
            if time.monotonic() - checked_at >= _CHECK_SECONDS:
                checked_at = time.monotonic()
                if not is_welcome():
                    return
            parts = [first]
            while not self._queue.empty():
                parts.append(self._queue.get_nowait())
            yield b"".join(part for part in parts if part is not None)
            if None in parts:
                return


class StreamGroup:
    """The streams that receive the same messages."""

    def __init__(self) -> None:
        self._clients: set[StreamClient] = set()

    def __len__(self) -> int:
        return len(self._clients)

    def join(self, client: StreamClient) -> None:
        """Send a client everything from now on."""
        self._clients.add(client)

    def part(self, client: StreamClient) -> None:
        """Stop sending to a client."""
        self._clients.discard(client)

    def send(self, message: bytes) -> None:
        """Send a message to every client."""
        for client in tuple(self._clients):
            client.send(message)
            if client.is_over:
                self._clients.discard(client)

    def close(self) -> None:
        """Disconnect every client."""
        for client in tuple(self._clients):
            client.leave()
        self._clients.clear()
