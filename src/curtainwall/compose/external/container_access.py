"""The two ways out of a foreign agent's container, for one turn: its tools, and its models. Both lead to the one gate and the one log."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from curtainwall.agents.builtin.models import Price
from curtainwall.agents.external.container import EGRESS_SOCKET, TOOLS_SOCKET, Reach
from curtainwall.compose.external.meter import TurnMeter
from curtainwall.compose.external.mounted import mounted_labels
from curtainwall.compose.external.reach import AtTheGate
from curtainwall.compose.external.seen_inside import SeenInside
from curtainwall.compose.free_hosts import told_hosts
from curtainwall.compose.gate import INSIDE, Wired
from curtainwall.compose.refused_requests import RefusedRequests
from curtainwall.egress import Access, Egress, Terms
from curtainwall.model import SYSTEM, AddLabels, Journal, TurnAt
from curtainwall.runtime import Actor
from curtainwall.runtime.gate.still_permitted import watch_in
from curtainwall.tools.mcp_in import Door

# Where distributions keep the certificates that programs trust.
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


@dataclass(frozen=True, slots=True)
class Ways:
    """Opens a session's sockets in its run directory."""

    wired: Wired
    journal: Journal
    egress: Egress
    accesses_of: Callable[[str, str], Mapping[str, Access]]
    """Tells what an agent may be given for a team, by the provider's name."""
    price: Price | None

    @asynccontextmanager
    async def open(self, at: TurnAt, run: Path, user: int, providers: Sequence[str]) -> AsyncGenerator[Reach]:
        """Serve `mcp.sock` and `egress.sock` for that user and that turn alone, while the context is open."""
        house, gate = self.wired.house, self.wired.gate
        async with AsyncExitStack() as stack:
            actor = await stack.enter_async_context(house.hold(at.session))
            await self._label(actor)
            meter = TurnMeter(at, lambda: actor.state, self.journal, house.clock, self.price)
            seen = SeenInside(gate, actor.state.workspace.path, INSIDE)
            door = Door(at.session, seen, house.feed, self.wired.tools.listing, house.clock, turn=at.turn)
            await stack.enter_async_context(door.open(run / TOOLS_SOCKET, owner=user))
            asking = AtTheGate(gate, at, watch_in(house))
            accesses = self.accesses_of(actor.state.facts.agent, actor.state.facts.team)
            reached = tuple(accesses[name] for name in providers if name in accesses)
            refused = RefusedRequests(at.session, self.journal, house.clock, self.wired.masker, lambda: actor.state.turn)
            terms = Terms(reached, meter, asking.judge, asking.decide, report=refused.report)
            proxy = await self.egress.open(terms, run / EGRESS_SOCKET, owner=user)
            stack.push_async_callback(proxy.close)
            certificates = await asyncio.to_thread(trusted_inside, self.egress)
            hosts = told_hosts(self.wired, at.session)
            yield Reach(keys=proxy.sentinels, certificates=certificates, hosts=hosts, settled=meter.settled)

    async def _label(self, actor: Actor) -> None:
        """Count everything that is mounted as read."""
        state = actor.state
        policy = self.wired.setup.rules.of_session(state.opened).policy
        found = await asyncio.to_thread(mounted_labels, policy, state.facts)
        new = tuple(source for source in found if source.label not in state.labels)
        if new:
            await actor.submit(AddLabels(by=SYSTEM, labels=new))


def trusted_inside(egress: Egress) -> str:
    """Return whom a foreign agent trusts: us, and behind a connection that nobody sees into, whom this machine trusts."""
    bundle = next((Path(path) for path in _BUNDLES if os.path.isfile(path)), None)
    known = "" if bundle is None else bundle.read_text(encoding="utf-8", errors="replace")
    return f"{egress.authority.certificate.decode()}\n{known}"
