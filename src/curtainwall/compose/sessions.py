"""The second level: the sessions of a home, with everything that decisions need."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

from curtainwall.host.home import Home
from curtainwall.model import Clock, record
from curtainwall.operations.sessions import AgentNames, Sessions, SessionTerms
from curtainwall.runtime import HomeStores, SessionFolds, SessionRegistry, SystemClock
from curtainwall.session import ActiveRules, lift
from curtainwall.store import SqliteStore

if TYPE_CHECKING:
    # Start-up time: nothing is approved automatically without a gate.
    from curtainwall.model import Approver


@record
class Parts:
    """Parts that an embedding program can replace: the store, the automatic approver, the clock."""

    store: HomeStores | None = None
    approver: "Approver | None" = None
    clock: Clock | None = None


@asynccontextmanager
async def open_sessions(
    home: Home, terms: Callable[[], SessionTerms], parts: Parts | None = None, rules: ActiveRules | None = None
) -> AsyncGenerator[Sessions]:
    """Open the store of a home, creating what is missing, and its sessions; each decision that needs terms calls `terms`.

    A caller that makes many decisions passes the `rules` of these terms.
    """
    parts = parts or Parts()
    home.prepare()
    clock = parts.clock or SystemClock()
    async with (
        SqliteStore.open(home.root, clock, decode=lift) if parts.store is None else nullcontext(parts.store) as store,
        SessionRegistry(store, clock, rules or (lambda: terms().rules), folds=SessionFolds(store.log, store.snapshots)) as registry,
    ):
        yield Sessions(home, store, registry, AgentNames(store.log), terms)


def load_terms() -> SessionTerms:
    """Load the terms in force from the files of this machine."""
    # Start-up time: answering an ask rarely needs terms, and reading them loads the rules.
    from curtainwall.compose.setup import load_setup

    return load_setup().terms
