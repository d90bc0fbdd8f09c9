"""Places on this machine's house: which session each leads to, opened when somebody first talks there."""

from collections.abc import Callable
from dataclasses import replace

from curtainwall.model import AddRoute, Route, SessionId, SessionQuery, Undecided, Who
from curtainwall.operations.open import Wanted, open_new
from curtainwall.operations.sessions import Sessions

WantedAt = Callable[[Route], Wanted]
"""Says what a session should be that is opened at a place."""

Attend = Callable[[SessionId], None]


class HousePlaces:
    """The places of every channel in this process."""

    def __init__(self, sessions: Sessions, attend: Attend, wanted_at: WantedAt) -> None:
        self._sessions = sessions
        self._attend = attend
        self._wanted_at = wanted_at

    def session_at(self, place: Route) -> SessionId | None:
        """Return the session that a place leads to."""
        return self._sessions.store.index.session_at(place)

    async def lead(self, place: Route, by: Who, called: str = "") -> SessionId:
        """Return the session that a place leads to, opened first where there is none, and let its agent work here.

        One that is opened is called so, or after the place.
        """
        session = self.session_at(place)
        if session is None or self._is_closed(session):
            session = await self._sessions.house.bind(place, SessionId(self._sessions.house.mint()), by, instead_of=session)
        # Whoever bound it may have ended before opening it; opening twice is opening once.
        wanted = self._wanted_at(place)
        await open_new(self._sessions, replace(wanted, name=called) if called else wanted, by, session)
        self._attend(session)
        return session

    def _is_closed(self, session: SessionId) -> bool:
        rows = self._sessions.store.index.sessions(SessionQuery(prefix=session, limit=1))
        return bool(rows) and rows[0].status == "closed"

    async def move(self, place: Route, session: SessionId, by: Who, instead_of: SessionId | None) -> SessionId:
        """Let a place lead to another session, show that one's asks there, and return the session that it leads to now."""
        undecided: Undecided | None = None
        try:
            await self._sessions.house.send(session, AddRoute(by=by, route=place))
        except Undecided as waits:
            # Where a place leads is the house's to say; that session's asks are shown there as soon as its owner decides.
            undecided = waits
        led = await self._sessions.house.bind(place, session, by, instead_of=instead_of)
        self._attend(led)
        if undecided is not None:
            meanwhile = "this place leads there all the same, and what is written here counts as soon as it does"
            raise Undecided(undecided.session, undecided.owner, meanwhile)
        return led

    def may_control(self, who: Who) -> bool:
        """Tell whether someone may answer asks and use control words, by the rules that are in force now."""
        return self._sessions.terms().rules.may_control(who)
