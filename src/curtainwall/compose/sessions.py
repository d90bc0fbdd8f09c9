"""The second level: the sessions of a home, with everything that deciding for them needs."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass

from curtainwall.compose.setup import InForce
from curtainwall.model import Approver, Clock
from curtainwall.operations.agent_names import AgentNames
from curtainwall.operations.sessions import Sessions
from curtainwall.runtime import HomeStores, House, SystemClock
from curtainwall.session import lift
from curtainwall.store import SqliteStore


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts that a program brings along: where the log is kept, who approves by itself, what time it is."""

    store: HomeStores | None = None
    approver: Approver | None = None
    clock: Clock | None = None


@asynccontextmanager
async def open_sessions(in_force: InForce, parts: Parts | None = None) -> AsyncGenerator[Sessions]:
    """Open the store of this machine, making what is missing, and the sessions in it."""
    parts, home = parts or Parts(), in_force.setup.home
    home.prepare()
    clock = parts.clock or SystemClock()
    async with (
        SqliteStore.open(home.root, clock, decode=lift) if parts.store is None else nullcontext(parts.store) as store,
        House(store, clock, lambda: in_force.terms.rules) as house,
    ):
        yield Sessions(home, store, house, AgentNames(store.log), lambda: in_force.terms)
