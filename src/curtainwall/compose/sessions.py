"""The second level: the sessions of a home, with everything that deciding for them needs."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from curtainwall.host.home import Home
from curtainwall.model import Clock
from curtainwall.operations.sessions import AgentNames, Sessions, SessionTerms
from curtainwall.runtime import HomeStores, SessionRegistry, SystemClock
from curtainwall.session import lift
from curtainwall.store import SqliteStore

if TYPE_CHECKING:
    # Start-up time: nothing is approved automatically without a gate.
    from curtainwall.model import Approver


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts that a program brings along: where the log is kept, who approves by itself, what time it is."""

    store: HomeStores | None = None
    approver: "Approver | None" = None
    clock: Clock | None = None


@asynccontextmanager
async def open_sessions(home: Home, terms: Callable[[], SessionTerms], parts: Parts | None = None) -> AsyncGenerator[Sessions]:
    """Open the store of a home, making what is missing, and the sessions in it; each decision that needs terms asks for them."""
    parts = parts or Parts()
    home.prepare()
    clock = parts.clock or SystemClock()
    async with (
        SqliteStore.open(home.root, clock, decode=lift) if parts.store is None else nullcontext(parts.store) as store,
        SessionRegistry(store, clock, lambda: terms().rules) as house,
    ):
        yield Sessions(home, store, house, AgentNames(store.log), terms)


def load_terms() -> SessionTerms:
    """Read the terms in force from the files of this machine."""
    # Start-up time: whoever answers an ask needs no terms in most cases, and to read them loads the rules.
    from curtainwall.compose.setup import load_setup

    return load_setup().terms
