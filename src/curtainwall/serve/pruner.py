"""Deletes sessions in which nothing has happened for a long time, if the configuration asks for that."""

from collections.abc import Iterable
from typing import Final

from curtainwall.channels.plain import counted
from curtainwall.channels.series import series_of
from curtainwall.model import MCP, SYSTEM, TEAMS, SessionQuery, SessionRow
from curtainwall.operations.remove import remove_sessions
from curtainwall.operations.sessions import Sessions
from curtainwall.serve.logs import Logbook
from curtainwall.serve.service import Serving
from curtainwall.serve.supervisor import Service

SECTIONS = frozenset({"sessions"})

_MANY: Final = 1_000_000
_AT_ONCE: Final = 32
"""How many sessions to delete before others are served again."""
_LOOK_EVERY: Final = 3_600_000
_SOON: Final = 1_000
_AT_REST: Final = ("ready", "closed")


def services(serving: Serving) -> Iterable[Service]:
    """Return the service that deletes old sessions, if the configuration says how old."""
    after = serving.config.sessions.prune_after
    if after is not None:
        yield Pruner(serving.wired.sessions, after * 1000, serving.book)


class Pruner:
    """The service that deletes sessions without a change for so many milliseconds.

    INVARIANT: a session with open work is never deleted; the registry checks that again in the commit that deletes it.
    """

    name = "pruner"

    def __init__(self, sessions: Sessions, after: int, book: Logbook) -> None:
        self._sessions = sessions
        self._after = after
        self._book = book

    def health(self) -> str:
        """Return "": if it fails, the supervisor reports that."""
        return ""

    async def run(self) -> None:
        """Look for old sessions now and every hour."""
        clock = self._sessions.registry.clock
        while True:
            more = await self.prune()
            await clock.sleep_until(clock.now() + (_SOON if more else _LOOK_EVERY))

    async def prune(self) -> bool:
        """Delete some of the old sessions, and return whether there may be more."""
        before = self._sessions.registry.clock.now() - self._after
        old = [row for row in self._sessions.store.index.sessions(SessionQuery(before=before, limit=_MANY)) if self._may_go(row)]
        if not old:
            return False
        removals = await remove_sessions(self._sessions, old[:_AT_ONCE], SYSTEM, at_rest=True)
        gone = [removal.session for removal in removals if removal.why_not is None]
        if gone:
            self._book.say(f"deleted {counted(len(gone), 'session')} without a change for long: {', '.join(gone)}", service=self.name)
        return bool(gone) and len(old) > _AT_ONCE

    def _may_go(self, row: SessionRow) -> bool:
        """Tell whether nothing is open in a session, judged by the lists, and no room, team or caller comes back to it."""
        if row.status not in _AT_REST or row.pending or row.channel in (TEAMS, MCP):
            return False
        places = self._sessions.store.index.routes_to(row.session)
        return all(series_of(place) is not None for place in places)
