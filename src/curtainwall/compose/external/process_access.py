"""The two ways out of a local agent's process, through all its turns: its tools and its models, to the one gate and the one log."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from curtainwall.agents.builtin.models import Price
from curtainwall.agents.external.process import BETWEEN_TURNS, EGRESS_SOCKET, TOOLS_SOCKET, Reach
from curtainwall.compose.external.container_access import trusted_inside
from curtainwall.compose.external.meter import TurnMeter
from curtainwall.compose.external.reach import AtTheGate
from curtainwall.compose.free_hosts import told_hosts
from curtainwall.compose.gate import Wired
from curtainwall.compose.refused_requests import RefusedRequests
from curtainwall.egress import Access, Counted, Egress, Ended, Handling, ModelCall, Ruling, Terms
from curtainwall.egress import Reach as Wish
from curtainwall.model import Answer, CallId, CallRequest, CommandRefused, Gate, HostFacts, Journal, Presence, Save, SessionId, TurnAt
from curtainwall.runtime.gate.still_permitted import watch_in
from curtainwall.tools.mcp_in import Door

_NO_TURN = "no turn is at work; there is nothing to do until a message comes"


class Present:
    """What is true while a turn is at work, and refuses everything while none is."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._began: dict[int, TurnMeter] = {}
        self.meter: TurnMeter | None = None
        self.asking: AtTheGate | None = None

    def begin(self, meter: TurnMeter, asking: AtTheGate) -> None:
        """Let a turn work."""
        self.meter, self.asking = meter, asking

    def end(self) -> None:
        """Let nothing more through: the process goes on, and so does what it has open, but the turn is over."""
        if self.asking is not None:
            self.asking.end()
        self.meter = self.asking = None

    async def begins(self, call: ModelCall) -> Ruling:
        """Let a call of the model's begin, as the turn's that is at work."""
        meter = self.meter
        if meter is None:
            return Ruling(allowed=False, reason=_NO_TURN)
        ruling = await meter.begins(call)
        if ruling.allowed:
            self._began[call.number] = meter
        return ruling

    def counts(self, call: ModelCall, so_far: Counted) -> str | None:
        """Say why a reply has to stop, where it has to."""
        return self._began[call.number].counts(call, so_far)

    async def ended(self, call: ModelCall, counted: Counted, ended: Ended) -> None:
        """Write down what a call used, for the turn in which it began."""
        await self._began.pop(call.number).ended(call, counted, ended)

    async def judge(self, wish: Wish) -> Handling:
        """Say what becomes of something that a provider would do beyond answering."""
        return "remove" if self.asking is None else await self.asking.judge(wish)

    async def decide(self, facts: HostFacts) -> Ruling:
        """Say whether a connection may be made whose content nobody sees."""
        return Ruling(allowed=False, reason=_NO_TURN) if self.asking is None else await self.asking.decide(facts)

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
class ProcessWays:
    """Opens a session's sockets in its run directory, for as long as its process lives."""

    wired: Wired
    journal: Journal
    egress: Egress
    accesses_of: Callable[[str], Mapping[str, Access]]
    """Tells what the agent may be given for a team, by the provider's name."""
    price: Price | None

    @asynccontextmanager
    async def open(self, session: SessionId, run: Path, user: int, providers: Sequence[str]) -> AsyncGenerator[Reach]:
        """Serve `mcp.sock` and `egress.sock` for that user alone, while the context is open."""
        house, present = self.wired.house, Present(self.wired.gate)
        door = Door(session, present, house.feed, self.wired.tools.listing, house.clock)

        @asynccontextmanager
        async def turn(at: TurnAt) -> AsyncGenerator[None]:
            async with house.hold(session) as actor:
                meter = TurnMeter(at, lambda: actor.state, self.journal, house.clock, self.price)
                present.begin(meter, AtTheGate(self.wired.gate, at, watch_in(house)))
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
            terms = Terms(reached, present, present.judge, present.decide, report=refused.report)
            proxy = await self.egress.open(terms, run / EGRESS_SOCKET, owner=user)
            stack.push_async_callback(proxy.close)
            certificates = await asyncio.to_thread(trusted_inside, self.egress)
            hosts = told_hosts(self.wired, session)
            yield Reach(keys=proxy.sentinels, certificates=certificates, hosts=hosts, turn=turn)
