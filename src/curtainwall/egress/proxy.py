"""The proxies of all sessions: one socket for each, sharing one certificate authority and one pool of connections."""

import asyncio
import socket
from dataclasses import field
from pathlib import Path

from curtainwall.egress.admission import EndpointFilter, SessionProvider
from curtainwall.egress.authority import Authority
from curtainwall.egress.client import ProxyConnection, ProxyCounters, ProxyParts
from curtainwall.egress.ports import Decide, EgressBounds, Judge, Meter, Unmetered, no_tunnels, remove_actions
from curtainwall.egress.refusals import Refusals, Report, unreported
from curtainwall.egress.requests import HeldBytes
from curtainwall.egress.upstream.accounts import Accounts
from curtainwall.egress.upstream.pool import UpstreamPool
from curtainwall.egress.upstream.sentinels import Access, Keyring
from curtainwall.host import BACKLOG, Dialler, SocketFile, Wire
from curtainwall.model import record


@record
class ProxyConfig:
    """What one session may use: its providers, its bounds, and the callbacks that meter, judge, decide and report."""

    accesses: tuple[Access, ...]
    meter: Meter = field(default_factory=Unmetered)
    judge: Judge = remove_actions
    decide: Decide = no_tunnels
    bounds: EgressBounds = field(default_factory=EgressBounds)
    report: Report = unreported


class Egress:
    """Opens the proxies of sessions, and owns what they share."""

    def __init__(self, authority: Authority, dialler: Dialler, own_ports: frozenset[int] = frozenset()) -> None:
        self.authority = authority
        self._dialler = dialler
        self._own_ports = own_ports
        self._pool = UpstreamPool(dialler)

    @property
    def idle_connections(self) -> int:
        """Return how many connections to providers wait for a request."""
        return self._pool.idle

    async def open(self, terms: ProxyConfig, path: Path, *, mode: int = 0o600, owner: int | None = None) -> "SessionProxy":
        """Serve one session's socket at this path; raise `TryLater` if another process does, or `Broken` if it cannot be created."""
        parts = self._parts(terms)
        file = SocketFile.open(path, mode, owner)
        return await SessionProxy.start(parts, file.listener, file)

    async def serve(self, terms: ProxyConfig, listener: socket.socket) -> "SessionProxy":
        """Serve a socket that is already open, such as the end of a bridge into a confinement; closing the proxy closes it."""
        return await SessionProxy.start(self._parts(terms), listener)

    def _parts(self, terms: ProxyConfig) -> ProxyParts:
        providers = {
            access.provider.host: SessionProvider(access.provider, EndpointFilter(access.provider), Keyring(access))
            for access in terms.accesses
        }
        if len(providers) != len(terms.accesses):
            raise ValueError("two providers of one session have the same host")
        return ProxyParts(
            providers=providers,
            authority=self.authority,
            pool=self._pool,
            dialler=self._dialler,
            meter=terms.meter,
            accounts=Accounts(terms.meter, terms.bounds),
            judge=terms.judge,
            decide=terms.decide,
            bounds=terms.bounds,
            own_ports=self._own_ports,
            load=HeldBytes(terms.bounds.held),
            refusals=Refusals(terms.report, terms.bounds.refusals),
        )

    def close(self) -> None:
        """Close what is shared; each session's proxy is closed by its owner."""
        self._pool.close()
        self.authority.close()


class SessionProxy:
    """The open proxy socket of one session."""

    def __init__(self, parts: ProxyParts, file: SocketFile | None) -> None:
        self._parts = parts
        self._file = file
        self._clients: dict[Wire, asyncio.Task[None]] = {}
        self._server: asyncio.AbstractServer | None = None

    @classmethod
    async def start(cls, parts: ProxyParts, listener: socket.socket, file: SocketFile | None = None) -> "SessionProxy":
        """Start to serve."""
        proxy = cls(parts, file)
        loop = asyncio.get_running_loop()
        serve = loop.create_unix_server if listener.family == socket.AF_UNIX else loop.create_server
        proxy._server = await serve(lambda: Wire(proxy._begin, proxy._gone), sock=listener, backlog=BACKLOG)
        return proxy

    @property
    def sentinels(self) -> dict[str, str]:
        """Return the stand-in keys that the agent gets, by the provider's name."""
        return {access.provider.name: access.keyring.sentinel for access in self._parts.providers.values()}

    @property
    def counters(self) -> ProxyCounters:
        """Return the counters so far."""
        return self._parts.counters

    @property
    def connections(self) -> int:
        """Return how many clients are connected."""
        return len(self._clients)

    @property
    def held(self) -> int:
        """Return how many bytes of requests are held."""
        return self._parts.load.held

    async def close(self) -> None:
        """Hang up on all clients, remove the socket and account for every call; calling it twice is harmless."""
        if self._server is not None:
            self._server.close()
            self._server = None
            if self._file is not None:
                self._file.remove()
        tasks = tuple(self._clients.values())
        for wire, task in tuple(self._clients.items()):
            wire.abort()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._parts.accounts.close()
        await self._parts.refusals.close(self._parts.bounds.accounting)

    def _begin(self, wire: Wire) -> None:
        # A call that continues without its client costs as much as a client.
        if self._server is None or len(self._clients) + self._parts.accounts.abandoned >= self._parts.bounds.connections:
            self._parts.counters.turned_away += 1
            wire.abort()
            return
        self._parts.counters.connections += 1
        task = asyncio.get_running_loop().create_task(ProxyConnection(self._parts, wire).serve())
        self._clients[wire] = task
        task.add_done_callback(lambda _: self._forget(wire))

    def _gone(self, wire: Wire) -> None:
        """Stop serving a client that hung up. Its approval stays open, so that it finds the answer when it comes back."""
        task = self._clients.get(wire)
        if task is not None:
            task.cancel()
            self._forget(wire)

    def _forget(self, wire: Wire) -> None:
        """Forget a client once it is served and its connection is gone: one with unread data still costs us."""
        task = self._clients.get(wire)
        if wire.is_lost and task is not None and task.done():
            del self._clients[wire]
