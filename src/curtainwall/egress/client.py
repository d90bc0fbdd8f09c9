"""One client connection, from its CONNECT to its end: TLS and requests to a provider, or a blind tunnel if one is allowed."""

import asyncio
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

from curtainwall.egress.admission import AdmittedRequest, SessionProvider, admit
from curtainwall.egress.authority import Authority
from curtainwall.egress.bodies import parse_body, render_body, settle_actions
from curtainwall.egress.ports import Decide, EgressBounds, Judge, Meter, ModelCall, ProviderAction, always
from curtainwall.egress.refusals import Dialect, Reason, Refusal, Refusals, Refused, answer
from curtainwall.egress.requests import HeldBytes, RequestHead, RequestReader
from curtainwall.egress.upstream.accounts import Accounts
from curtainwall.egress.upstream.exchange import Outgoing
from curtainwall.egress.upstream.pool import UpstreamPool
from curtainwall.egress.upstream.providers import KNOWN_HOSTS, ProviderEndpoint
from curtainwall.egress.upstream.relay import Relay, linger
from curtainwall.facts import Unclear, canonical_url
from curtainwall.host import Connection, Dialler, Unreachable, Wire
from curtainwall.model import HostFacts, record

_PIECE: Final = 64 * 1024
_TARGET = re.compile(r"([A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*):([0-9]{1,5})")


def connect_target(text: str) -> tuple[str, int]:
    """Return the host and port of a CONNECT; raise `Refused` for anything but a plain name."""
    match = _TARGET.fullmatch(text)
    if match is None or len(match[1]) > 253:
        raise Refused(
            400, "name a host and a port, as in `api.example.com:443`; the host without a dot at its end", fatal=True, kind="host"
        )
    host, port = match[1].lower(), int(match[2])
    if "xn--" in host:
        raise Refused(403, "international names are not reached from here", fatal=True, kind="host")
    if host.rpartition(".")[2].isdigit() or host.rpartition(".")[2].startswith("0x"):
        raise Refused(403, "addresses are not reached from here; name a host", fatal=True, kind="host")
    if not 0 < port < 65536:
        raise Refused(400, "there is no such port", fatal=True, kind="host")
    return host, port


def tunnel_facts(host: str, port: int, own_ports: frozenset[int]) -> HostFacts:
    """Return the facts for the decision about a connection whose content nobody sees."""
    try:
        facts = canonical_url(f"https://{host}:{port}", own_ports).facts
    except Unclear as fault:
        raise Refused(403, str(fault), fatal=True, kind="host") from None
    return facts.model_copy(update={"secure": False})


async def tunnel(wire: Wire, connection: Connection, idle: float, holds: Callable[[], bool] = always) -> None:
    """Forward bytes both ways until both sides end, one is lost, it is idle for too long, or the permission ends."""
    loop = asyncio.get_running_loop()

    def received() -> None:
        # If the time is already up, both tasks are about to be cancelled.
        if not limit.expired():
            limit.reschedule(loop.time() + idle)
        if not holds():
            raise ConnectionAbortedError("it has to be asked for anew")

    async def out() -> None:
        while data := await wire.read():
            received()
            connection.writer.write(data)
            await connection.writer.drain()
        connection.writer.write_eof()

    async def back() -> None:
        while data := await connection.reader.read(_PIECE):
            received()
            wire.write(data)
            await wire.drain(idle)
        if not wire.is_lost:
            wire.transport.write_eof()

    try:
        async with asyncio.timeout(idle) as limit, asyncio.TaskGroup() as tasks:
            tasks.create_task(out())
            tasks.create_task(back())
    except* (OSError, TimeoutError):
        wire.abort()
    finally:
        connection.writer.transport.abort()


_HTTPS: Final = 443
_LINGER: Final = 2.0


@dataclass(slots=True)
class ProxyCounters:
    """Counts of what happened on one session's socket, for diagnostics."""

    connections: int = 0
    turned_away: int = 0
    requests: int = 0
    refused: int = 0
    calls: int = 0
    tunnels: int = 0


@record
class ProxyParts:
    """What all client connections of one session share."""

    providers: Mapping[str, SessionProvider]
    authority: Authority
    pool: UpstreamPool
    dialler: Dialler
    meter: Meter
    accounts: Accounts
    judge: Judge
    decide: Decide
    bounds: EgressBounds
    own_ports: frozenset[int]
    load: HeldBytes
    refusals: Refusals
    counters: ProxyCounters = field(default_factory=ProxyCounters)


class ProxyConnection:
    """One connection from a program in the session."""

    def __init__(self, parts: ProxyParts, wire: Wire) -> None:
        self._parts = parts
        self._wire = wire
        self._last: tuple[RequestHead, AdmittedRequest] | None = None

    async def serve(self) -> None:
        """Serve until the client hangs up or must be cut off."""
        try:
            provider = await self._accept_connect()
            if provider is not None:
                await self._serve_requests(provider)
        except (OSError, TimeoutError, ssl.SSLError):
            self._wire.abort()
        finally:
            self._wire.finish()

    async def _accept_connect(self) -> SessionProvider | None:
        """Read the CONNECT and answer it; return the provider to speak TLS for, or None if the connection is done."""
        parts, wire = self._parts, self._wire
        requests = RequestReader(wire, parts.bounds, parts.load)
        head = None
        try:
            head = await requests.head()
            if head is None:
                return None
            parts.counters.requests += 1
            if head.method != "CONNECT":
                raise Refused(403, "only CONNECT is served here: use https, and this socket as the proxy for it", fatal=True, kind="host")
            host, port = connect_target(head.target)
            provider = parts.providers.get(host)
            if wire.holds_more or requests.rest:
                raise Refused(400, "wait for the answer to CONNECT before sending more", fatal=True)
            if provider is None:
                await self._tunnel(host, port)
                return None
            if port != _HTTPS:
                raise Refused(403, f"`{host}` is reached on port {_HTTPS} alone", fatal=True, kind="host")
            context = await parts.authority.context(host)
        except Refused as refusal:
            parts.counters.refused += 1
            self._note(refusal, head)
            wire.write(answer(refusal.status, f"curtainwall: {refusal.reason}\n".encode(), content_type="text/plain", close=True))
            await linger(wire, _LINGER)
            return None
        wire.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await wire.secure(context, parts.bounds.handshake)
        return provider

    async def _tunnel(self, host: str, port: int) -> None:
        parts = self._parts
        if host in KNOWN_HOSTS:
            raise Refused(403, f"this session has no access to `{host}`", fatal=True, kind="host")
        facts = tunnel_facts(host, port, parts.own_ports)
        ruling = await parts.decide(facts)
        if not ruling.allowed:
            kind = None if ruling.is_logged else "host"
            raise Refused(403, ruling.reason or f"`{host}` may not be reached", fatal=True, kind=kind)
        try:
            connection = await parts.dialler.connect(facts)
        except Unreachable as fault:
            raise Refused(502, str(fault), fatal=True) from None
        parts.counters.tunnels += 1
        self._wire.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await tunnel(self._wire, connection, parts.bounds.idle, ruling.holds)

    async def _serve_requests(self, access: SessionProvider) -> None:
        parts, wire = self._parts, self._wire
        requests = RequestReader(wire, parts.bounds, parts.load)
        relay = Relay(wire, parts.pool, parts.bounds, parts.meter, parts.accounts, access.provider, access.keyring)
        goes_on, head = True, None
        dialect = access.provider.endpoints[0].dialect
        while goes_on:
            # A client that does not read its answers gets no more of them, neither ours nor a provider's.
            if not wire.keeps_up:
                await wire.drain(parts.bounds.stalled)
            head = None
            try:
                head = await requests.head()
                if head is None:
                    return
                parts.counters.requests += 1
                goes_on = await self._serve(head, requests, access, relay)
            except Refused as refusal:
                parts.counters.refused += 1
                self._note_at(access, refusal, head)
                requests.release()
                goes_on = not refusal.fatal and await requests.discard() and not (head is not None and head.wants_to_close)
                body = Reason(refusal.status, refusal.reason).body(dialect)
                wire.write(answer(refusal.status, body, content_type="application/json", close=not goes_on))
                if not goes_on:
                    await linger(wire, _LINGER)
            finally:
                requests.release()

    def _note(self, refusal: Refused, head: RequestHead | None) -> None:
        """Record that the proxy itself refused something, if it is of a recorded kind."""
        if refusal.kind is not None:
            method, (host, path) = ("", ("", "")) if head is None else (head.method, _host_and_path(head.target))
            self._parts.refusals.note(Refusal(refusal.kind, host, method, path, refusal.reason))

    def _note_at(self, access: SessionProvider, refusal: Refused, head: RequestHead | None) -> None:
        """Record that a request to a provider was refused, if it is of a recorded kind; a foreign key always is."""
        key = "" if head is None else access.keyring.foreign_key(head.headers)
        kind = "key" if key else refusal.kind
        if kind is not None:
            method, path = ("", "") if head is None else (head.method, head.target.partition("?")[0])
            self._parts.refusals.note(Refusal(kind, access.provider.host, method, path, refusal.reason, key))

    async def _serve(self, head: RequestHead, requests: RequestReader, access: SessionProvider, relay: Relay) -> bool:
        """Check one request and forward it; tell whether the connection goes on."""
        parts, name = self._parts, access.provider.name
        admitted = self._admit(head, access)
        endpoint = admitted.endpoint
        body, removed, model = await self._body(requests, admitted, name)
        outgoing = Outgoing(admitted.start, admitted.carrier, body)
        if endpoint.model:
            parts.counters.calls += 1
            size = len(body or b"")
            call = ModelCall(parts.counters.calls, name, endpoint.dialect, model or admitted.model, admitted.path, size, removed)
            return await relay.run_call(outgoing, endpoint.dialect, call, requests.hand_over(), close=admitted.closes)
        return await relay.run(outgoing, endpoint.dialect, close=admitted.closes)

    def _admit(self, head: RequestHead, access: SessionProvider) -> AdmittedRequest:
        """Admit a head; if it is the same as the last one, reuse that result."""
        if self._last is None or self._last[0] is not head:
            self._last = head, admit(head, access)
        return self._last[1]

    async def _body(
        self, requests: RequestReader, admitted: AdmittedRequest, provider: str
    ) -> tuple[bytes | None, tuple[ProviderAction, ...], str]:
        """Return the body as it goes out, what was removed from it, and the model that it names."""
        body = await requests.body()
        if not admitted.has_body:
            if body:
                raise Refused(400, "a GET has no body")
            return None, (), ""
        endpoint = admitted.endpoint
        document = await parse_body(body, self._parts.bounds)
        removed = await settle_actions(document, endpoint.dialect, provider, self._parts.judge)
        if _ask_for_usage(document, endpoint) or removed:
            body = render_body(document)
        model = document.get("model")
        return body, removed, model[:200] if isinstance(model, str) else ""


def _host_and_path(target: str) -> tuple[str, str]:
    """Return the host (with its port) and path that a request to the proxy names, without the query."""
    _, mark, rest = target.partition("?")[0].partition("://")
    host, slash, path = (rest if mark else target).partition("/")
    # A name and a password may precede the host.
    return host.rpartition("@")[2], f"{slash}{path.partition('?')[0]}"


def _ask_for_usage(document: dict[str, JsonValue], endpoint: ProviderEndpoint) -> bool:
    """Make a stream report its usage; tell whether that changed the request."""
    if endpoint.dialect is not Dialect.CHAT or not endpoint.model or document.get("stream") is not True:
        return False
    options = document.get("stream_options")
    options = dict(options) if isinstance(options, dict) else {}
    if options.get("include_usage") is True:
        return False
    document["stream_options"] = {**options, "include_usage": True}
    return True
