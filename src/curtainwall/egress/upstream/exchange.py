"""One request to a provider and its reply, on the provider's side of the proxy."""

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
    """A request to a provider, complete except for the key."""

    start: bytes
    carrier: Carrier
    body: bytes | None


class ProviderExchange:
    """Sends a request and reads its reply: the status and headers first, then the content."""

    def __init__(self, pool: UpstreamPool, facts: HostFacts, wire: Wire, silence: float) -> None:
        self._pool = pool
        self._facts = facts
        self._wire = wire
        self._silence = silence
        self._first = b""
        self._is_reusable = False
        self._framing: Framing | None = None
        self.is_sent = False
        """Whether the provider was sent the whole request."""
        self.status = 0
        self.length: int | None = None
        """The length of the reply, if the provider sent it."""
        self.headers: list[Header] = []
        self.by_name: dict[bytes, bytes] = {}

    @property
    def has_begun(self) -> bool:
        """Tell whether some of the reply's content has already come."""
        return bool(self._first)

    async def start(self, outgoing: Outgoing, key: Header) -> None:
        """Send the request and read the reply's head; raise `Broke`."""
        length = () if outgoing.body is None else ((b"content-length", b"%d" % len(outgoing.body)),)
        head = request_head(outgoing.start, (key, _PLAIN, *length))
        try:
            self._wire.write(head + (outgoing.body or b""))
            if not self._wire.keeps_up:
                await self._drain()
            self.is_sent = True
        except OSError:
            raise Broke("the connection to the provider broke") from None
        await self._read_head()

    async def _drain(self) -> None:
        """Wait until the provider has taken the request, however slowly; raise `Broke` if it takes nothing for too long."""
        unsent = self._wire.unsent
        while True:
            try:
                return await self._wire.drain(self._silence)
            except TimeoutError:
                if self._wire.unsent >= unsent:
                    raise Broke(f"the provider took nothing of the request for {self._silence:g} seconds") from None
                unsent = self._wire.unsent

    async def read(self) -> bytes:
        """Return the next content as soon as it comes, or nothing at the end; raise `Broke`."""
        framing = self._framing
        assert framing is not None
        while not framing.done:
            if self._first:
                data, self._first = self._first, b""
            else:
                data = await self._receive()
                if not data:
                    framing.ended(announced=not self._wire.is_cut)
                    self._is_reusable = False
                    break
            if content := framing.feed(data):
                return content
        return b""

    def let_go(self) -> None:
        """Return the connection to the pool if its reply was read to the end; close it otherwise."""
        framing = self._framing
        if self._is_reusable and framing is not None and framing.done and not framing.spoilt and not self._first:
            self._pool.give_back(self._facts, self._wire)
        else:
            self.abort()
        self._is_reusable = False

    def abort(self) -> None:
        """Close the provider's connection at once."""
        self._wire.abort()

    async def _receive(self, deadline: float | None = None) -> bytes:
        try:
            return await self._wire.read(self._silence if deadline is None else deadline - asyncio.get_running_loop().time())
        except TimeoutError:
            raise Broke(f"the provider was silent for {self._silence:g} seconds") from None
        except OSError:
            raise Broke("the connection to the provider broke") from None

    async def _read_head(self) -> None:
        data = b""
        for _ in range(_MOST_NOTES):
            # The deadline starts with the first bytes and is for the whole head, however many pieces it comes in.
            deadline = None
            while (parsed := take_head(data)) is None:
                if data and deadline is None:
                    deadline = asyncio.get_running_loop().time() + self._silence
                piece = await self._receive(deadline)
                if not piece:
                    raise Broke("the provider hung up without an answer")
                data += piece
            head, data = parsed
            if head.status >= 200:
                self.status, self.headers, self.by_name, self._is_reusable = head
                self._framing = reply_framing(self.status, self.headers, self.by_name)
                self.length = self._framing.length
                self._first = data
                return
            if head.status == 101:
                break
        raise Broke("the provider does not come to an answer")
