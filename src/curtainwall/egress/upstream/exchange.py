"""One request to a provider and its reply, as far as the provider's side of it goes."""

import asyncio
from typing import Final, NamedTuple

from curtainwall.egress.refusals import Broke
from curtainwall.egress.upstream.http1 import Framing, reply_framing, request_head, take_head
from curtainwall.egress.upstream.pool import UpstreamPool
from curtainwall.egress.upstream.providers import Carrier
from curtainwall.host import Wire
from curtainwall.model import HostFacts

Header = tuple[bytes, bytes]

_MOST_NOTES: Final = 16
_PLAIN: Final = (b"accept-encoding", b"identity")


class Outgoing(NamedTuple):
    """What is sent to a provider, complete but for the key."""

    start: bytes
    carrier: Carrier
    body: bytes | None


class ProviderExchange:
    """A reply that has begun: its status and headers are known, the rest is read on."""

    def __init__(self, pool: UpstreamPool, facts: HostFacts, wire: Wire, silence: float) -> None:
        self._pool = pool
        self._facts = facts
        self._wire = wire
        self._silence = silence
        self._first = b""
        self._may_stay = False
        self._framing: Framing | None = None
        self.is_sent = False
        """Whether the provider was sent the whole request."""
        self.status = 0
        self.length: int | None = None
        """How long the reply is, where the provider said so."""
        self.headers: list[Header] = []
        self.told: dict[bytes, bytes] = {}

    @property
    def has_begun(self) -> bool:
        """Tell whether something of the reply's content is there already."""
        return bool(self._first)

    async def start(self, outgoing: Outgoing, key: Header) -> None:
        """Send the request and read the reply's head; raise `Broke`."""
        length = () if outgoing.body is None else ((b"content-length", b"%d" % len(outgoing.body)),)
        head = request_head(outgoing.start, (key, _PLAIN, *length))
        try:
            self._wire.write(head + (outgoing.body or b""))
            if not self._wire.keeps_up:
                await self._taken()
            self.is_sent = True
        except OSError:
            raise Broke("the connection to the provider broke") from None
        await self._read_head()

    async def _taken(self) -> None:
        """Return when the provider has taken the request, however slowly; raise `Broke` where it takes nothing for so long."""
        left = self._wire.unsent
        while True:
            try:
                return await self._wire.drain(self._silence)
            except TimeoutError:
                if self._wire.unsent >= left:
                    raise Broke(f"the provider took nothing of the request for {self._silence:g} seconds") from None
                left = self._wire.unsent

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
                    framing.ended(said=not self._wire.is_cut)
                    self._may_stay = False
                    break
            if content := framing.feed(data):
                return content
        return b""

    def let_go(self) -> None:
        """Keep the connection where its reply was read to the end, close it otherwise."""
        framing = self._framing
        if self._may_stay and framing is not None and framing.done and not framing.spoilt and not self._first:
            self._pool.give_back(self._facts, self._wire)
        else:
            self.abort()
        self._may_stay = False

    def abort(self) -> None:
        """Close the provider's connection at once."""
        self._wire.abort()

    async def _came(self, until: float | None = None) -> bytes:
        try:
            return await self._wire.read(self._silence if until is None else until - asyncio.get_running_loop().time())
        except TimeoutError:
            raise Broke(f"the provider was silent for {self._silence:g} seconds") from None
        except OSError:
            raise Broke("the connection to the provider broke") from None

    async def _read_head(self) -> None:
        data = b""
        for _ in range(_MOST_NOTES):
            # From its first bytes on, the whole head has so long, in however many pieces it comes.
            until = None
            while (found := take_head(data)) is None:
                if data and until is None:
                    until = asyncio.get_running_loop().time() + self._silence
                came = await self._came(until)
                if not came:
                    raise Broke("the provider hung up without an answer")
                data += came
            answered, data = found
            if answered.status >= 200:
                self.status, self.headers, self.told, self._may_stay = answered
                self._framing = reply_framing(self.status, self.headers, self.told)
                self.length = self._framing.length
                self._first = data
                return
            if answered.status == 101:
                break
        raise Broke("the provider does not come to an answer")
