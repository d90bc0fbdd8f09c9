"""Whoever talks to teams from outside: a session of their own, opened with the first call, in which every call passes the gate."""

from collections.abc import Iterable

from curtainwall.app.openings import Wanted, open_new
from curtainwall.app.wiring import Wired
from curtainwall.channels.places import parse_place
from curtainwall.model import (
    NOBODY,
    Answer,
    Ask,
    CallId,
    CloseSession,
    Mode,
    NotFound,
    Save,
    SessionId,
    Who,
)

OUTSIDE = "outside"
"""The agent of such a session: none of ours, it only calls."""


def see_that_there_is(team: str, teams: Iterable[str]) -> None:
    """Raise `NotFound`, with the teams that there are, for one that is not configured."""
    known = sorted(teams)
    if team not in known:
        raise NotFound(f"there is no team `{team}`; there are: {', '.join(f'`{each}`' for each in known) or 'none is configured'}")


class OutsideCaller:
    """The gate for one caller from outside; it speaks for a team, or for nobody."""

    def __init__(self, wired: Wired, by: Who, team: str = "", mode: Mode = Mode.DEFAULT, name: str = "") -> None:
        if team:
            see_that_there_is(team, wired.setup.config.teams)
        self.session = SessionId(wired.house.mint())
        self.team = team or NOBODY
        self._wired = wired
        self._by = by
        target = wired.setup.config.teams[team].approval_target if team else None
        routes = () if target is None else (parse_place(target),)
        self._wanted = Wanted(OUTSIDE, None, name or f"{self.team} from outside", OUTSIDE, mode, routes, team=team)
        self._is_open = False

    async def request(self, session: SessionId, ask: Ask, *, wait: bool = True, save: Save | None = None) -> Answer:
        """Walk the ten steps in this caller's session, which is opened first where it was not."""
        if not self._is_open:
            await open_new(self._wired, self._wanted, self._by, self.session)
            self._is_open = True
        return await self._wired.gate.request(session, ask, wait=wait, save=save)

    async def go_on(self, session: SessionId, call: CallId) -> Answer:
        """Go on with a call that was asked for."""
        return await self._wired.gate.go_on(session, call)

    async def drop(self, session: SessionId, call: CallId, why: str) -> None:
        """Let go of a call that nobody waits for any more."""
        await self._wired.gate.drop(session, call, why)

    async def close(self, why: str) -> None:
        """End the session; an answer that comes later is still taken in."""
        if self._is_open:
            await self._wired.house.send(self.session, CloseSession(by=self._by, reason=why))
