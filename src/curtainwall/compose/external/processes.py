"""Assembles local agents: program, confinement, pool, and access to the gate and to models."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from curtainwall.agents.builtin.models import Price
from curtainwall.agents.external import describe_tools
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
from curtainwall.compose.external.certificates import trusted_certificates
from curtainwall.compose.external.meter import TurnMeter
from curtainwall.compose.external.providers import accesses, require_key, require_team_keys
from curtainwall.compose.external.usual_instructions import usual_instructions
from curtainwall.compose.free_hosts import describe_hosts
from curtainwall.compose.gate import GatedSessions
from curtainwall.compose.models import model_settings
from curtainwall.compose.network import RefusedRequests
from curtainwall.config.agents import LOCAL
from curtainwall.config.schema import Config
from curtainwall.egress import (
    Access,
    Authority,
    CountedUsage,
    Egress,
    Handling,
    HostDecision,
    ModelCall,
    ModelCallEnd,
    ProviderAction,
    ProxyConfig,
)
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
    record,
)
from curtainwall.runtime.gate.permits import permit_watch
from curtainwall.tools import scopes
from curtainwall.tools.mcp_in import McpServer

_NO_TURN = "no turn is at work; there is nothing to do until a message comes"


class TurnGate:
    """Passes requests to the current turn, and refuses everything between turns."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._began: dict[int, TurnMeter] = {}
        self.meter: TurnMeter | None = None
        self.asking: TurnNetworkGate | None = None

    def begin(self, meter: TurnMeter, asking: TurnNetworkGate) -> None:
        """Start a turn."""
        self.meter, self.asking = meter, asking

    def end(self) -> None:
        """End the turn and let nothing more through; the process and its open connections stay."""
        if self.asking is not None:
            self.asking.end()
        self.meter = self.asking = None

    async def begins(self, call: ModelCall) -> HostDecision:
        """Let a model call begin as part of the current turn."""
        meter = self.meter
        if meter is None:
            return HostDecision(allowed=False, reason=_NO_TURN)
        decision = await meter.begins(call)
        if decision.allowed:
            self._began[call.number] = meter
        return decision

    def counts(self, call: ModelCall, so_far: CountedUsage) -> str | None:
        """Return why a reply has to stop, or None."""
        return self._began[call.number].counts(call, so_far)

    async def ended(self, call: ModelCall, counted: CountedUsage, ended: ModelCallEnd) -> None:
        """Record what a call used, for the turn in which it began."""
        await self._began.pop(call.number).ended(call, counted, ended)

    async def judge(self, action: ProviderAction) -> Handling:
        """Decide about something that a provider would do besides answering."""
        return "remove" if self.asking is None else await self.asking.judge(action)

    async def decide(self, facts: HostFacts) -> HostDecision:
        """Decide whether a tunnel, whose content nobody sees, may be opened."""
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
        """Pass a call through the gate, during a turn only."""
        if self.meter is None:
            raise CommandRefused(_NO_TURN)
        return await self._gate.request(session, request, wait=wait, save=save, presence=presence)

    async def resume(self, session: SessionId, call: CallId, arguments: Mapping[str, JsonValue] | None = None) -> Answer:
        """Continue a call that waited for approval."""
        return await self._gate.resume(session, call, arguments)

    async def drop(self, session: SessionId, call: CallId, why: str) -> None:
        """Drop a call that nobody waits for any more."""
        await self._gate.drop(session, call, why)


@record
class ProcessAccess:
    """Opens a session's sockets in its run directory while its process lives."""

    wired: GatedSessions
    journal: Journal
    egress: Egress
    accesses_of: Callable[[str], Mapping[str, Access]]
    """Returns the access of the agent that serves a team, by provider name."""
    price: Price | None

    @asynccontextmanager
    async def open(self, session: SessionId, run: Path, user: int, providers: Sequence[str]) -> AsyncGenerator[ProcessNetwork]:
        """Serve `mcp.sock` and `egress.sock` for this user only, while the context is open."""
        registry, turn_gate = self.wired.registry, TurnGate(self.wired.gate)
        server = McpServer(session, turn_gate, registry.feed, self.wired.tools.listing, registry.clock)

        @asynccontextmanager
        async def turn(at: TurnAt) -> AsyncGenerator[None]:
            async with registry.hold(session) as actor:
                meter = TurnMeter(at, lambda: actor.state, self.journal, registry.clock, self.wired.masker, self.price)
                turn_gate.begin(meter, TurnNetworkGate(self.wired.gate, at, permit_watch(registry)))
                server.turn = None if at.turn == BETWEEN_TURNS else at.turn
                try:
                    yield
                    await meter.settled()
                finally:
                    turn_gate.end()
                    server.turn = None

        async with AsyncExitStack() as stack:
            await stack.enter_async_context(server.open(run / TOOLS_SOCKET, owner=user))
            accesses = self.accesses_of(self.wired.teams.peers.team_of(session))
            reachable = tuple(accesses[name] for name in providers if name in accesses)
            refused = RefusedRequests(session, self.journal, registry.clock, self.wired.masker, lambda: server.turn)
            terms = ProxyConfig(reachable, turn_gate, turn_gate.judge, turn_gate.decide, report=refused.report)
            proxy = await self.egress.open(terms, run / EGRESS_SOCKET, owner=user)
            stack.push_async_callback(proxy.close)
            certificates = await asyncio.to_thread(trusted_certificates, self.egress)
            tools, hosts = describe_tools(self.wired.tools.listing()), describe_hosts(self.wired, session)
            state = registry.peek(session) or self.wired.sessions.state(session)
            instructions = usual_instructions(self.wired, state.opened)
            yield ProcessNetwork(proxy.sentinels, certificates, tools, hosts, instructions, turn)


_MIB: Final = 1024 * 1024
_PROVIDER: Final = "anthropic"
_OWN_CHOICE: Final = frozenset({"", "auto"})


class Processes:
    """Everything that local agents need, created on first use."""

    def __init__(self, wired: GatedSessions, journal: Journal) -> None:
        self._wired = wired
        self._journal = journal
        self._config = wired.setup.config
        self._agent: ProcessAgent | None = None
        self._egress: Egress | None = None

    async def require_ready(self, agent: str) -> None:
        """Raise, with what to do, if the program, the confinement or the key is missing."""
        await require_local_agent(agent, self._config, self._accesses_of(""))

    def require_model(self, agent: str, model: str) -> None:
        """Raise if the agent cannot use a model of this name."""
        provider, _, name = model.partition(":")
        if model not in _OWN_CHOICE and not (name and provider == _PROVIDER):
            raise CommandRefused(f"`{agent}` cannot use the model `{model}`; it takes {_PROVIDER}:NAME, or `auto` for its own choice")

    async def agent(self) -> ProcessAgent:
        """Return the agent that runs the processes of all sessions."""
        if self._agent is None:
            wired = self._wired
            authority = await asyncio.to_thread(Authority, wired.setup.home.root / "ca")
            self._egress = Egress(authority, Dialler(scopes(wired.setup.own_ports)), wired.setup.own_ports)
            price = model_settings(self._config, wired.masker.learn).price
            ports = ProcessPorts(
                feed=wired.registry.feed,
                gate=wired.gate,
                journal=self._journal,
                clock=wired.registry.clock,
                masker=wired.masker,
                outside=ProcessAccess(wired, self._journal, self._egress, self._accesses_of, price),
                folders_of=partial(process_folders, wired.setup.home),
                program_of=lambda: find_claude(self._config.processes.program),
                limits=limits_of(self._config),
                shares=wired.shares,
            )
            self._agent = ProcessAgent(ports)
        return self._agent

    def _accesses_of(self, team: str) -> dict[str, Access]:
        require_team_keys(self._config, self._wired.setup.config, team)
        return accesses(self._config, self._wired.masker.learn, agent=LOCAL, team=team)

    async def close(self) -> None:
        """End the processes, and close everything."""
        if self._agent is not None:
            await self._agent.close()
        if self._egress is not None:
            self._egress.close()


async def require_local_agent(agent: str, config: Config, given: Mapping[str, Access]) -> None:
    """Raise, with what to do, if the program, the confinement or the key is missing; `given` is the agent's access, by provider."""
    async for fault in _faults_of_local(agent, config, given):
        raise fault


async def missing_for_local(agent: str, config: Config, given: Mapping[str, Access]) -> tuple[str, ...]:
    """Return everything that is missing, each with what to do."""
    return tuple([str(fault) async for fault in _faults_of_local(agent, config, given)])


async def _faults_of_local(agent: str, config: Config, access_by_provider: Mapping[str, Access]) -> AsyncIterator[CurtainwallError]:
    try:
        find_claude(config.processes.program)
    except CurtainwallError as fault:
        yield fault
    bubblewrap = await asyncio.to_thread(find_bubblewrap)
    if isinstance(bubblewrap, BubblewrapMissing):
        yield NotFound(f"`{agent}` cannot be confined here: {bubblewrap.reason}; {bubblewrap.remedy}")
    try:
        await require_key(agent, access_by_provider, (_PROVIDER,))
    except CurtainwallError as fault:
        yield fault


def limits_of(config: Config) -> ProcessLimits:
    """Return how much processes may use."""
    section = config.processes
    return ProcessLimits(
        processes=section.most,
        memory=section.memory * _MIB,
        idle=float(section.idle),
        health=float(section.health),
        silence=float(section.silence),
        turn=float(section.turn),
    )
