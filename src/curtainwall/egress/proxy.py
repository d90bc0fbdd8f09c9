"""The way to the network for many sessions: one socket each, one authority and one pool of connections for all."""

import asyncio
import socket
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """What one session may do: its providers, and who meters, judges, decides, and hears of what was refused."""

    accesses: tuple[Access, ...]
    meter: Meter = field(default_factory=Unmetered)
    judge: Judge = remove_actions
    decide: Decide = no_tunnels
    bounds: EgressBounds = field(default_factory=EgressBounds)
    report: Report = unreported


class Egress:
    """What all sessions share."""

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
        """Serve one session's socket at this path; raise `TryLater` where another process does, and `Broken` where none can be."""
        house = self._house(terms)
        file = SocketFile.open(path, mode, owner)
        return await SessionProxy.start(house, file.listener, file)

    async def serve(self, terms: ProxyConfig, listener: socket.socket) -> "SessionProxy":
        """Serve a socket that somebody else opened, such as the end of a bridge into a confinement; closing the proxy closes it."""
        return await SessionProxy.start(self._house(terms), listener)

    def _house(self, terms: ProxyConfig) -> ProxyParts:
        doors = {
            access.provider.host: SessionProvider(access.provider, EndpointFilter(access.provider), Keyring(access))
            for access in terms.accesses
        }
        if len(doors) != len(terms.accesses):
            raise ValueError("two providers of one session have the same host")
        return ProxyParts(
            doors=doors,
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
        """Let go of what is shared; the sessions' proxies are closed by whoever opened them."""
        self._pool.close()
        self.authority.close()


class SessionProxy:
    """One session's socket while it is open."""

    def __init__(self, house: ProxyParts, file: SocketFile | None) -> None:
        self._house = house
        self._file = file
        self._clients: dict[Wire, asyncio.Task[None]] = {}
        self._server: asyncio.AbstractServer | None = None

    @classmethod
    async def start(cls, house: ProxyParts, listener: socket.socket, file: SocketFile | None = None) -> "SessionProxy":
        """Begin to serve."""
        proxy = cls(house, file)
        loop = asyncio.get_running_loop()
        serve = loop.create_unix_server if listener.family == socket.AF_UNIX else loop.create_server
        proxy._server = await serve(lambda: Wire(proxy._begin, proxy._gone), sock=listener, backlog=BACKLOG)
        return proxy

    @property
    def sentinels(self) -> dict[str, str]:
        """Return the stand-in for each provider's key, by the provider's name: what the agent gets."""
        return {door.provider.name: door.keyring.sentinel for door in self._house.doors.values()}

    @property
    def counters(self) -> ProxyCounters:
        """Return what happened so far."""
        return self._house.counters

    @property
    def connections(self) -> int:
        """Return how many clients are connected."""
        return len(self._clients)

    @property
    def held(self) -> int:
        """Return how many bytes of requests are held."""
        return self._house.load.held

    async def close(self) -> None:
        """Hang up on everyone, take the socket away and see that every call is accounted for; calling it twice is harmless."""
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
        await self._house.accounts.close()
        await self._house.refusals.close(self._house.bounds.accounting)

    def _begin(self, wire: Wire) -> None:
        # A call that goes on without its client costs as much as a client.
        if self._server is None or len(self._clients) + self._house.accounts.abandoned >= self._house.bounds.connections:
            self._house.counters.turned_away += 1
            wire.abort()
            return
        self._house.counters.connections += 1
        task = asyncio.get_running_loop().create_task(ProxyConnection(self._house, wire).serve())
        self._clients[wire] = task
        task.add_done_callback(lambda _: self._forget(wire))

    def _gone(self, wire: Wire) -> None:
        """Let go of a client that has hung up. What it asked for stays open: whoever comes again finds the answer."""
        task = self._clients.get(wire)
        if task is not None:
            task.cancel()
            self._forget(wire)

    def _forget(self, wire: Wire) -> None:
        """Count a client no longer when it is served and its connection is gone: one that does not take what was sent still costs us."""
        task = self._clients.get(wire)
        if wire.is_lost and task is not None and task.done():
            del self._clients[wire]
