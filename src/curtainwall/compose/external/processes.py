"""Local agents, put together: program, confinement, pool, and their access to the gate and to their models."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from curtainwall.agents.builtin.models import Price
from curtainwall.agents.external.process import (
    BETWEEN_TURNS,
    EGRESS_SOCKET,
    TOOLS_SOCKET,
    ProcessAgent,
    ProcessLimits,
    ProcessNetwork,
    ProcessPorts,
    find_claude,
    process_folders,
)
from curtainwall.compose.connections import TurnNetworkGate
from curtainwall.compose.external.containers import trusted_certificates
from curtainwall.compose.external.meter import TurnMeter
from curtainwall.compose.external.providers import accesses, require_key, require_team_keys
from curtainwall.compose.free_hosts import describe_hosts
from curtainwall.compose.gate import GatedSessions
from curtainwall.compose.models import model_settings
from curtainwall.compose.network import RefusedRequests
from curtainwall.config.agents import LOCAL
from curtainwall.config.schema import Config
from curtainwall.egress import Access, Authority, CountedUsage, Egress, Handling, HostDecision, ModelCall, ModelCallEnd, ProxyConfig
from curtainwall.egress import ProviderAction as Wish
from curtainwall.host import BubblewrapMissing, Dialler, find_bubblewrap
from curtainwall.model import (
    Answer,
    CallId,
    CallRequest,
    CommandRefused,
    CurtainwallError,
    Gate,
    HostFacts,
    Journal,
    NotFound,
    Presence,
    Save,
    SessionId,
    TurnAt,
)
from curtainwall.runtime.gate.permits import permit_watch
from curtainwall.tools import scopes
from curtainwall.tools.mcp_in import McpServer

_NO_TURN = "no turn is at work; there is nothing to do until a message comes"


class TurnGate:
    """What is true while a turn is at work, and refuses everything while none is."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._began: dict[int, TurnMeter] = {}
        self.meter: TurnMeter | None = None
        self.asking: TurnNetworkGate | None = None

    def begin(self, meter: TurnMeter, asking: TurnNetworkGate) -> None:
        """Let a turn work."""
        self.meter, self.asking = meter, asking

    def end(self) -> None:
        """Let nothing more through: the process goes on, and so does what it has open, but the turn is over."""
        if self.asking is not None:
            self.asking.end()
        self.meter = self.asking = None

    async def begins(self, call: ModelCall) -> HostDecision:
        """Let a call of the model's begin, as the turn's that is at work."""
        meter = self.meter
        if meter is None:
            return HostDecision(allowed=False, reason=_NO_TURN)
        ruling = await meter.begins(call)
        if ruling.allowed:
            self._began[call.number] = meter
        return ruling

    def counts(self, call: ModelCall, so_far: CountedUsage) -> str | None:
        """Say why a reply has to stop, where it has to."""
        return self._began[call.number].counts(call, so_far)

    async def ended(self, call: ModelCall, counted: CountedUsage, ended: ModelCallEnd) -> None:
        """Write down what a call used, for the turn in which it began."""
        await self._began.pop(call.number).ended(call, counted, ended)

    async def judge(self, wish: Wish) -> Handling:
        """Say what becomes of something that a provider would do beyond answering."""
        return "remove" if self.asking is None else await self.asking.judge(wish)

    async def decide(self, facts: HostFacts) -> HostDecision:
        """Say whether a connection may be made whose content nobody sees."""
        return HostDecision(allowed=False, reason=_NO_TURN) if self.asking is None else await self.asking.decide(facts)

    async def request(
        self,
        session: SessionId,
        request: CallRequest,
        *,
        wait: bool = True,
        save: Save | None = None,
        presence: Presence | None = None,
    ) -> Answer:
        """Walk the ten steps, in a turn alone."""
        if self.meter is None:
            raise CommandRefused(_NO_TURN)
        return await self._gate.request(session, request, wait=wait, save=save, presence=presence)

    async def go_on(self, session: SessionId, call: CallId, arguments: Mapping[str, JsonValue] | None = None) -> Answer:
        """Go on with a call that was asked for."""
        return await self._gate.go_on(session, call, arguments)

    async def drop(self, session: SessionId, call: CallId, why: str) -> None:
        """Let go of a call that nobody waits for any more."""
        await self._gate.drop(session, call, why)


@dataclass(frozen=True, slots=True)
class ProcessAccess:
    """Opens a session's sockets in its run directory, for as long as its process lives."""

    wired: GatedSessions
    journal: Journal
    egress: Egress
    accesses_of: Callable[[str], Mapping[str, Access]]
    """Tells what the agent may be given for a team, by the provider's name."""
    price: Price | None

    @asynccontextmanager
    async def open(self, session: SessionId, run: Path, user: int, providers: Sequence[str]) -> AsyncGenerator[ProcessNetwork]:
        """Serve `mcp.sock` and `egress.sock` for that user alone, while the context is open."""
        house, present = self.wired.house, TurnGate(self.wired.gate)
        door = McpServer(session, present, house.feed, self.wired.tools.listing, house.clock)

        @asynccontextmanager
        async def turn(at: TurnAt) -> AsyncGenerator[None]:
            async with house.hold(session) as actor:
                meter = TurnMeter(at, lambda: actor.state, self.journal, house.clock, self.price)
                present.begin(meter, TurnNetworkGate(self.wired.gate, at, permit_watch(house)))
                door.turn = None if at.turn == BETWEEN_TURNS else at.turn
                try:
                    yield
                    await meter.settled()
                finally:
                    present.end()
                    door.turn = None

        async with AsyncExitStack() as stack:
            await stack.enter_async_context(door.open(run / TOOLS_SOCKET, owner=user))
            accesses = self.accesses_of(self.wired.teams.peers.team_of(session))
            reached = tuple(accesses[name] for name in providers if name in accesses)
            refused = RefusedRequests(session, self.journal, house.clock, self.wired.masker, lambda: door.turn)
            terms = ProxyConfig(reached, present, present.judge, present.decide, report=refused.report)
            proxy = await self.egress.open(terms, run / EGRESS_SOCKET, owner=user)
            stack.push_async_callback(proxy.close)
            certificates = await asyncio.to_thread(trusted_certificates, self.egress)
            hosts = describe_hosts(self.wired, session)
            yield ProcessNetwork(keys=proxy.sentinels, certificates=certificates, hosts=hosts, turn=turn)


_MIB: Final = 1024 * 1024
_PROVIDER: Final = "anthropic"
_OWN_CHOICE: Final = frozenset({"", "auto"})


class Processes:
    """Everything that local agents need, made when it is first needed."""

    def __init__(self, wired: GatedSessions, journal: Journal) -> None:
        self._wired = wired
        self._journal = journal
        self._config = wired.setup.config
        self._agent: ProcessAgent | None = None
        self._egress: Egress | None = None

    async def require_ready(self, agent: str) -> None:
        """Raise, with what to do, where the program, the confinement or the key is missing."""
        await require_local_agent(agent, self._config, self._accesses_of(""))

    def require_model(self, agent: str, model: str) -> None:
        """Raise where the agent cannot use a model of this name."""
        provider, _, name = model.partition(":")
        if model not in _OWN_CHOICE and not (name and provider == _PROVIDER):
            raise CommandRefused(f"`{agent}` cannot use the model `{model}`; it takes {_PROVIDER}:NAME, or `auto` for its own choice")

    async def agent(self) -> ProcessAgent:
        """Return the agent that keeps the processes of all sessions."""
        if self._agent is None:
            wired = self._wired
            authority = await asyncio.to_thread(Authority, wired.setup.home.root / "ca")
            self._egress = Egress(authority, Dialler(scopes(wired.setup.own_ports)), wired.setup.own_ports)
            price = model_settings(self._config, wired.masker.learn).price
            around = ProcessPorts(
                feed=wired.house.feed,
                gate=wired.gate,
                journal=self._journal,
                clock=wired.house.clock,
                masker=wired.masker,
                outside=ProcessAccess(wired, self._journal, self._egress, self._accesses_of, price),
                folders_of=partial(process_folders, wired.setup.home),
                program_of=lambda: find_claude(self._config.processes.program),
                limits=limits_of(self._config),
                shares=wired.shares,
            )
            self._agent = ProcessAgent(around)
        return self._agent

    def _accesses_of(self, team: str) -> dict[str, Access]:
        require_team_keys(self._config, self._wired.setup.config, team)
        return accesses(self._config, self._wired.masker.learn, agent=LOCAL, team=team)

    async def close(self) -> None:
        """End the processes, and let go of everything."""
        if self._agent is not None:
            await self._agent.close()
        if self._egress is not None:
            self._egress.close()


async def require_local_agent(agent: str, config: Config, given: Mapping[str, Access]) -> None:
    """Raise, with what to do, where the program, the confinement or the key is missing; `given` is what the agent may be given."""
    async for fault in _faults_of_local(agent, config, given):
        raise fault


async def missing_for_local(agent: str, config: Config, given: Mapping[str, Access]) -> tuple[str, ...]:
    """Return everything that is missing, with what to do."""
    return tuple([str(fault) async for fault in _faults_of_local(agent, config, given)])


async def _faults_of_local(agent: str, config: Config, given: Mapping[str, Access]) -> AsyncIterator[CurtainwallError]:
    try:
        find_claude(config.processes.program)
    except CurtainwallError as fault:
        yield fault
    found = await asyncio.to_thread(find_bubblewrap)
    if isinstance(found, BubblewrapMissing):
        yield NotFound(f"`{agent}` cannot be confined here: {found.reason}; {found.remedy}")
    try:
        await require_key(agent, given, (_PROVIDER,))
    except CurtainwallError as fault:
        yield fault


def limits_of(config: Config) -> ProcessLimits:
    """Return how much processes may use."""
    told = config.processes
    return ProcessLimits(
        processes=told.most,
        memory=told.memory * _MIB,
        idle=float(told.idle),
        health=float(told.health),
        silence=float(told.silence),
        turn=float(told.turn),
    )
