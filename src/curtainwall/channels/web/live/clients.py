"""Browsers that listen: each has a bounded queue, and one that does not keep up is sent away to come back from its cursor."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable

_MOST_WAITING = 512
BEAT_SECONDS = 15.0
"""How often a stream that has nothing to say says that it is still there."""
_LOOK_SECONDS = 0.5
"""How long a reader who was welcome counts as such: looking with every word would cost more than the words."""


def sse_message(event: str, data: str, seq: int | None = None) -> bytes:
    """Return one message of an event stream; with a number, a reader who was cut off goes on behind it."""
    lines = [f"id: {seq}"] if seq is not None else []
    lines += [f"event: {event}", *(f"data: {line}" for line in data.replace("\r", "").split("\n"))]
    return ("\n".join(lines) + "\n\n").encode("utf-8", "replace")


def sse_json(event: str, data: object) -> bytes:
    """Return one message that holds a value in place of a piece of the page."""
    return sse_message(event, json.dumps(data))


class StreamClient:
    """One open stream."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.is_over = False

    def tell(self, message: bytes) -> None:
        """Hand over a message; one who has too many waiting is let go."""
        if self.is_over:
            return
        if self._waiting.qsize() >= _MOST_WAITING:
            self.leave()
        else:
            self._waiting.put_nowait(message)

    def leave(self) -> None:
        """End the stream behind what is waiting already."""
        if not self.is_over:
            self.is_over = True
            self._waiting.put_nowait(None)

    async def messages(self, is_welcome: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Go on with what is told, several messages at once where they wait, and a beat where nothing is.

        INVARIANT: nothing is told to whoever has been signed out for longer than a moment, however much there is to tell.
        """
        looked = -_LOOK_SECONDS
        while True:
            try:
                async with asyncio.timeout(BEAT_SECONDS):
                    first = await self._waiting.get()
            except TimeoutError:
                first = b": still here\n\n"
            if time.monotonic() - looked >= _LOOK_SECONDS:
                looked = time.monotonic()
                if not is_welcome():
                    return
            parts = [first]
            while not self._waiting.empty():
                parts.append(self._waiting.get_nowait())
            yield b"".join(part for part in parts if part is not None)
            if None in parts:
                return


class StreamGroup:
    """The streams that hear the same."""

    def __init__(self) -> None:
        self._clients: set[StreamClient] = set()

    def __len__(self) -> int:
        return len(self._clients)

    def join(self, client: StreamClient) -> None:
        """Tell a client everything from here on."""
        self._clients.add(client)

    def part(self, client: StreamClient) -> None:
        """Tell a client nothing more."""
        self._clients.discard(client)

    def tell(self, message: bytes) -> None:
        """Tell everybody."""
        for client in tuple(self._clients):
            client.tell(message)
            if client.is_over:
                self._clients.discard(client)

    def close(self) -> None:
        """Send everybody away."""
        for client in tuple(self._clients):
            client.leave()
        self._clients.clear()
