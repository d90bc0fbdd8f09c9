"""One request to a provider and its reply, as far as the provider's side of it goes."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from curtainwall.egress.framing import Framing, framing_of
from curtainwall.egress.heads import request_head, take_head
from curtainwall.egress.providers import Carrier
from curtainwall.egress.refusal import Broke
from curtainwall.egress.upstreams import Upstreams
from curtainwall.host import Connection
from curtainwall.model import HostFacts

Header = tuple[bytes, bytes]

_PIECE: Final = 256 * 1024
_MOST_NOTES: Final = 16


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What is sent to a provider, complete but for the key."""

    method: str
    target: str
    host: str
    headers: Sequence[Header]
    carrier: Carrier
    body: bytes | None


class Exchange:
    """A reply that has begun: its status and headers are known, the rest is read on."""

    def __init__(self, pool: Upstreams, facts: HostFacts, connection: Connection, silence: float) -> None:
        self._pool = pool
        self._facts = facts
        self._connection = connection
        self._silence = silence
        self._first = b""
        self._may_stay = False
        self._framing: Framing | None = None
        self._waits_since: float | None = None
        self._was_silent = False
        self._loop = asyncio.get_running_loop()
        # One look now and then, rather than a timer for each piece.
        self._watch = self._loop.call_later(silence, self._look)
        self.status = 0
        self.headers: list[Header] = []

    @property
    def length(self) -> int | None:
        """Return how long the reply is, where the provider said so."""
        return self._framing.length if self._framing else None

    @property
    def has_begun(self) -> bool:
        """Tell whether something of the reply's content is there already."""
        return bool(self._first)

    async def start(self, outgoing: Outgoing, key: Header) -> None:
        """Send the request and read the reply's head; raise `Broke`."""
        length = () if outgoing.body is None else ((b"content-length", b"%d" % len(outgoing.body)),)
        headers = [(b"host", outgoing.host.encode()), *outgoing.headers, key, (b"accept-encoding", b"identity"), *length]
        writer = self._connection.writer
        try:
            writer.write(request_head(outgoing.method, outgoing.target, headers) + (outgoing.body or b""))
            await writer.drain()
        except OSError:
            raise Broke("the connection to the provider broke") from None
        await self._read_head()

    async def read(self) -> bytes:
        """Return the next content as soon as it is there, nothing at the end; raise `Broke`."""
        framing = self._framing
        assert framing is not None
        while not framing.done:
            if self._first:
                data, self._first = self._first, b""
            else:
                data = await self._came()
                if not data:
                    framing.ended()
                    self._may_stay = False
                    break
            if content := framing.feed(data):
                return content
        return b""

    def let_go(self) -> None:
        """Keep the connection where its reply was read to the end, close it otherwise."""
        self._watch.cancel()
        framing = self._framing
        if self._may_stay and framing is not None and framing.done and not framing.spoilt and not self._first:
            self._pool.give_back(self._facts, self._connection)
        else:
            self.abort()
        self._may_stay = False

    def abort(self) -> None:
        """Close the provider's connection at once."""
        self._watch.cancel()
        with suppress(OSError):
            self._connection.writer.transport.abort()

    async def _came(self) -> bytes:
        self._waits_since = self._loop.time()
        try:
            data = await self._connection.reader.read(_PIECE)
        except OSError:
            raise Broke("the connection to the provider broke") from None
        finally:
            self._waits_since = None
        if self._was_silent:
            raise Broke(f"the provider was silent for {self._silence:g} seconds")
        return data

    def _look(self) -> None:
        """Hang up on a provider that was waited for long enough; while a client does not read, nobody waits for the provider."""
        now = self._loop.time()
        left = self._silence if self._waits_since is None else self._waits_since + self._silence - now
        if left <= 0:
            self._was_silent = True
            self._connection.writer.transport.abort()
        else:
            self._watch = self._loop.call_later(left, self._look)

    async def _read_head(self) -> None:
        data = b""
        for _ in range(_MOST_NOTES):
            while (found := take_head(data)) is None:
                came = await self._came()
                if not came:
                    raise Broke("the provider hung up without an answer")
                data += came
            answered, data = found
            if answered.status >= 200:
                self.status, self.headers, self._may_stay = answered.status, answered.headers, answered.stays
                self._framing = framing_of(self.status, self.headers)
                self._first = data
                return
            if answered.status == 101:
                break
        raise Broke("the provider does not come to an answer")
