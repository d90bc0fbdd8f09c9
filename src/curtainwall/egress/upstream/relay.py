"""Relays one permitted request with the real key, and streams its reply back: counted, searched for keys, cut if the meter says so.

If the client leaves, the reply is read a little longer, since providers report usage at its end.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from curtainwall.egress.ports import MIB, CountedUsage, EgressBounds, Meter, ModelCall, ModelCallEnd
from curtainwall.egress.refusals import REASONS, Broke, Dialect, Reason, Refused
from curtainwall.egress.upstream.accounts import Accounts
from curtainwall.egress.upstream.exchange import Outgoing, ProviderExchange
from curtainwall.egress.upstream.http1 import passable
from curtainwall.egress.upstream.pool import UpstreamPool
from curtainwall.egress.upstream.providers import Provider
from curtainwall.egress.upstream.sentinels import Keyring
from curtainwall.egress.upstream.usage import StreamUsage, WholeUsage, request_usage
from curtainwall.host import Unreachable, Wire

Header = tuple[bytes, bytes]


class KeyRedactor:
    """Looks for secrets in one reply, and overwrites them in place, so that lengths stay correct."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._secrets = tuple(secrets)
        self._kept = b""
        self.redacted = 0

    def headers(self, headers: Sequence[Header]) -> Sequence[Header]:
        """Return the headers that may pass."""
        whole = b"\n".join([part for header in headers for part in header])
        if not any(secret in whole for secret in self._secrets):
            return headers
        clean = [header for header in headers if not any(secret in part for secret in self._secrets for part in header)]
        self.redacted += len(headers) - len(clean)
        return clean

    def feed(self, data: bytes) -> bytes:
        """Return the part of the reply so far that may pass."""
        whole = self._kept + data if self._kept else data
        for secret in self._secrets:
            if secret in whole:
                self.redacted += 1
                whole = whole.replace(secret, b"*" * len(secret))
        held = self._partial_secret(whole)
        self._kept = whole[len(whole) - held :] if held else b""
        return whole[: len(whole) - held] if held else whole

    def rest(self) -> bytes:
        """Return what was held back, now that the reply has ended."""
        rest, self._kept = self._kept, b""
        return rest

    def _partial_secret(self, whole: bytes) -> int:
        """Return how many bytes at the end may be the beginning of a secret."""
        longest = 0
        for secret in self._secrets:
            at = whole.find(secret[:1], max(0, len(whole) - len(secret) + 1))
            while at >= 0:
                if secret.startswith(whole[at:]):
                    longest = max(longest, len(whole) - at)
                    break
                at = whole.find(secret[:1], at + 1)
        return longest


_LAST_CHUNK: Final = b"0\r\n\r\n"
_STATUS_LINES: Final = {status: f"HTTP/1.1 {status} {reason}".encode() for status, reason in REASONS.items()}
_UNAUTHORISED: Final = 401
_OK: Final = 200
# For a reply whose client has left; if the provider sends more than this, the estimate counts.
_MOST_READ_ON: Final = 4 * MIB


@dataclass(slots=True)
class Relay:
    """Relays requests of one connection to a provider."""

    wire: Wire
    pool: UpstreamPool
    bounds: EgressBounds
    meter: Meter
    accounts: Accounts
    provider: Provider
    keyring: Keyring

    async def run(self, outgoing: Outgoing, dialect: Dialect, *, close: bool) -> bool:
        """Relay a request that calls no model; return whether the connection can be kept; raise `Refused` only before the reply begins."""
        return await _RelayedRequest(self, dialect, None, close=close).run(outgoing)

    async def run_call(self, outgoing: Outgoing, dialect: Dialect, call: ModelCall, release: Callable[[], None], *, close: bool) -> bool:
        """Relay a model call in the same way, and account for it; `release` is called once nothing of it is held."""
        return await self.accounts.settle(call, _RelayedRequest(self, dialect, call, close=close), outgoing, release)


class _RelayedRequest:
    """The state of one request in transit."""

    def __init__(self, relay: Relay, dialect: Dialect, call: ModelCall | None, *, close: bool) -> None:
        self._relay = relay
        self._wire = relay.wire
        self._dialect = dialect
        self._call = call
        self._close = close
        self._stream: StreamUsage | None = None
        self._whole: WholeUsage | None = None
        self._exchange: ProviderExchange | None = None
        self._read_on = 0
        self.ended = ModelCallEnd("left")

    @property
    def is_sent(self) -> bool:
        """Tell whether the provider has the whole request."""
        return self._exchange is not None and self._exchange.is_sent

    @property
    def counted(self) -> CountedUsage:
        """Return the usage so far; a sent request costs money even if nobody waits for the reply."""
        if usage := self._stream or self._whole:
            return usage.counted
        exchange, call = self._exchange, self._call
        if call is None or exchange is None or not exchange.is_sent or exchange.status not in {0, _OK}:
            return CountedUsage()
        return request_usage(call.size)

    async def run(self, outgoing: Outgoing) -> bool:
        exchange = None
        try:
            exchange = await self._send(outgoing)
            return await self._pass(exchange)
        except Refused as refusal:
            self.ended = ModelCallEnd("broken", why=refusal.reason)
            raise
        finally:
            if exchange is not None:
                exchange.let_go()

    async def _send(self, outgoing: Outgoing) -> ProviderExchange:
        """Send the request and return the exchange once the reply begins; a refused key is renewed once."""
        key = await self._relay.keyring.header(outgoing.carrier)
        exchange = await self._send_once(outgoing, key)
        if exchange.status == _UNAUTHORISED:
            try:
                new_key = await self._relay.keyring.renew(key, outgoing.carrier)
            except BaseException:
                exchange.abort()
                raise
            if new_key is not None:
                exchange.abort()
                exchange = await self._send_once(outgoing, new_key)
        return exchange

    async def _send_once(self, outgoing: Outgoing, key: Header) -> ProviderExchange:
        relay = self._relay
        try:
            wire = await relay.pool.take(relay.provider.upstream)
        except Unreachable as fault:
            raise Refused(502, str(fault)) from None
        self._exchange = exchange = ProviderExchange(relay.pool, relay.provider.upstream, wire, relay.bounds.silence)
        try:
            await exchange.start(outgoing, key)
        except Broke as fault:
            exchange.abort()
            raise Refused(502, str(fault)) from None
        except BaseException:
            exchange.abort()
            raise
        return exchange

    async def _pass(self, exchange: ProviderExchange) -> bool:
        status, redactor = exchange.status, KeyRedactor(self._relay.keyring.secrets)
        self.ended = ModelCallEnd("left", status)
        headers = exchange.by_name
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            exchange.abort()
            raise Refused(502, "the provider answered in an encoding that was not asked for")
        is_stream = headers.get(b"content-type", b"").lower().startswith(b"text/event-stream")
        if self._call is not None and status == _OK:
            # Not a bound method of ours: that would make a reference cycle, which only the garbage collector frees.
            on_count = partial(self._relay.meter.counts, self._call)
            if is_stream:
                self._stream = StreamUsage(self._dialect, self._call.size, on_count)
            else:
                self._whole = WholeUsage(self._dialect, self._call.size, on_count)
        pending_head = self._head(exchange, redactor)
        if not exchange.has_begun:
            self._wire.write(pending_head)
            pending_head = b""
        try:
            while data := await exchange.read():
                passing = data if self._stream is None else data[: self._stream.feed(data)]
                if self._whole is not None:
                    self._whole.feed(data)
                content = redactor.feed(passing)
                if self._stream is not None and self._stream.stopped is not None:
                    return self._stop(exchange, pending_head, content + redactor.rest(), self._stream.stopped)
                self._wire.write(pending_head + _framed(content, exchange.length))
                pending_head = b""
                if self._wire.is_lost:
                    self._read_on += len(data)
                    if self._read_on > _MOST_READ_ON:
                        return False
                await self._drain()
        except Broke as fault:
            self.ended = ModelCallEnd("broken", status, str(fault))
            return self._broke(exchange, pending_head, redactor.rest(), str(fault), is_stream=is_stream)
        self._wire.write(pending_head + _framed(redactor.rest(), exchange.length) + (_LAST_CHUNK if exchange.length is None else b""))
        if self._whole is not None:
            self._whole.finish()
        self.ended = ModelCallEnd("refused" if status >= 400 else "left" if self._wire.is_lost else "done", status)
        await self._drain()
        return not self._close

    async def _drain(self) -> None:
        """Wait until the client reads more; hang up if it reads nothing for too long."""
        if self._wire.keeps_up or self._wire.is_lost:
            return
        try:
            await self._wire.drain(self._relay.bounds.stalled)
        except (OSError, TimeoutError):
            self._wire.abort()

    def _head(self, exchange: ProviderExchange, redactor: KeyRedactor) -> bytes:
        passing = redactor.headers(passable(exchange.headers, exchange.by_name))
        lines = [_STATUS_LINES.get(exchange.status) or b"HTTP/1.1 %d Said" % exchange.status, *map(b": ".join, passing)]
        lines.append(b"transfer-encoding: chunked" if exchange.length is None else b"content-length: %d" % exchange.length)
        if self._close:
            lines.append(b"connection: close")
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def _stop(self, exchange: ProviderExchange, pending_head: bytes, content: bytes, why: str) -> bool:
        """End the stream as the provider would on an error, and hang up on the provider."""
        exchange.abort()
        self.ended = ModelCallEnd("stopped", exchange.status, why)
        if exchange.length is not None:
            self._wire.abort()
            return False
        self._wire.write(pending_head + _framed(content + Reason(403, why).event(self._dialect), None) + _LAST_CHUNK)
        return not self._close

    def _broke(self, exchange: ProviderExchange, pending_head: bytes, rest: bytes, why: str, *, is_stream: bool) -> bool:
        """Tell the client that the reply is cut off: in a stream with an event, otherwise by hanging up."""
        if not is_stream or exchange.length is not None:
            self._wire.abort()
            return False
        separator = b"" if self._stream is None or self._stream.is_between_events else b"\n\n"
        self._wire.write(pending_head + _framed(rest + separator + Reason(502, why).event(self._dialect), None) + _LAST_CHUNK)
        return not self._close


def _framed(content: bytes, length: int | None) -> bytes:
    if length is not None or not content:
        return content
    return b"%x\r\n%b\r\n" % (len(content), content)


async def linger(wire: Wire, seconds: float) -> None:
    """Keep reading briefly, so that a client that is still sending sees its answer, then close."""
    try:
        async with asyncio.timeout(seconds):
            while await wire.read():
                pass
    except TimeoutError:
        wire.abort()
    wire.finish()
