"""How sessions begin: new ones, fresh starts, and those that a channel's place leads to; each is opened once, in whichever process."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from curtainwall.model import (
    BUILTIN_AGENT,
    AddRoute,
    InheritHistory,
    LabelSource,
    Limits,
    Mode,
    OpenSession,
    ReadySession,
    Route,
    SessionId,
    SessionQuery,
    Undecided,
    Who,
    Workspace,
    session_stream,
)
from curtainwall.operations.sessions import Sessions
from curtainwall.runtime import SessionRegistry


async def begin_once(house: SessionRegistry, session: SessionId, by: Who, opening: Callable[[], OpenSession]) -> None:
    """Open a session where nobody has, and see that it is ready.

    `Undecided` says that nothing was begun: to want it again is to want the same.
    """
    try:
        if house.feed.head(session_stream(session)) == 0:
            # The keys make one command of what several processes want at once.
            await house.send(session, opening(), "opening")
        await house.send(session, ReadySession(by=by), "ready")
    except Undecided as waits:
        raise _nothing_opened(waits) from None


async def complete_opening(house: SessionRegistry, session: SessionId, by: Who) -> None:
    """See that a session is ready that was opened before: where a process ended in the middle of that, whoever comes next completes it."""
    try:
        await house.send(session, ReadySession(by=by))
    except Undecided as waits:
        raise _nothing_opened(waits) from None


def _nothing_opened(waits: Undecided) -> Undecided:
    return Undecided(waits.session, waits.owner, "nothing was begun, so try again when it goes on or has ended")


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """What a new session should be; what is left out is the user's configuration."""

    model: str
    workspace: Path | None = None
    name: str = ""
    agent: str = BUILTIN_AGENT
    mode: Mode = Mode.DEFAULT
    routes: tuple[Route, ...] = ()
    limits: Limits | None = None
    labels: tuple[LabelSource, ...] = ()
    team: str = ""
    job: str = ""
    hook: str = ""
    channel: str = ""
    """Where its people talk; left out, where whoever opens it does."""


async def open_new(sessions: Sessions, wanted: SessionSpec, by: Who, session: SessionId | None = None) -> SessionId:
    """Open a session; without a directory, it gets a workspace of its own.

    One whose id was promised before, to a place that leads there, is opened under it, once, whoever is quicker.
    """
    session = session or SessionId(sessions.house.mint())
    await begin_once(sessions.house, session, by, partial(_opening, sessions, wanted, by, session))
    return session


def _opening(sessions: Sessions, wanted: SessionSpec, by: Who, session: SessionId) -> OpenSession:
    place = sessions.home.session(session)
    place.prepare()
    is_own = wanted.workspace is None
    workspace = sessions.workspace_at(place.workspace if wanted.workspace is None else wanted.workspace, own=is_own)
    return OpenSession(
        by=by,
        session=session,
        name=wanted.name or (f"session {session[:6]}" if is_own else Path(workspace.path).name),
        agent=wanted.agent,
        model=wanted.model,
        workspace=workspace,
        mode=wanted.mode,
        limits=wanted.limits or sessions.terms().limits,
        policy=sessions.terms().rules.of(team=wanted.team, job=wanted.job, hook=wanted.hook).policy.version,
        routes=tuple(dict.fromkeys((*wanted.routes, *sessions.terms().targets))),
        labels=wanted.labels,
        team=wanted.team,
        job=wanted.job,
        hook=wanted.hook,
        channel=wanted.channel,
    )


async def reset(sessions: Sessions, old: SessionId, by: Who, name: str = "") -> SessionId:
    """Open a session in the workspace of another, linked to it. What was granted there stays there; its labels come along."""
    state = sessions.state(old)
    assert state.opened is not None
    session = SessionId(sessions.house.mint())
    sessions.home.session(session).prepare()
    opening = OpenSession(
        by=by,
        session=session,
        name=name or state.name,
        agent=state.opened.agent,
        model=state.model,
        workspace=Workspace(path=state.workspace.path, own=state.workspace.own),
        mode=Mode.PLAN if state.mode is Mode.PLAN else Mode.DEFAULT,
        limits=sessions.terms().limits,
        policy=sessions.terms().rules.of_session(state.opened).policy.version,
        parent=old,
        labels=tuple(inherit_label(source, old) for source in state.labels.values()),
        routes=tuple(state.routes),
        team=state.opened.team,
        job=state.opened.job,
        hook=state.opened.hook,
    )
    await open_with_history(sessions, opening, InheritHistory(by=by, parent=old, upto=state.totals.events, history=None, how="reset"))
    return session


async def open_with_history(sessions: Sessions, opening: OpenSession, inherits: InheritHistory) -> None:
    """Open a session with its past.

    INVARIANT: all of it is one commit. One that a crash left without its past would be completed without it by whoever comes next.
    """
    commands = (opening, inherits, ReadySession(by=opening.by))
    async with sessions.house.hold(opening.session) as actor:
        # Whatever waits when it decides is decided together.
        await asyncio.gather(*map(actor.submit, commands))


def inherit_label(source: LabelSource, parent: SessionId) -> LabelSource:
    """Return a label as it comes over from another session, with where it was first set."""
    where = source.origin or (f"call {source.call}" if source.call else "")
    return LabelSource(label=source.label, origin=f"session {parent}{f': {where}' if where else ''}")


SpecAt = Callable[[Route], SessionSpec]
"""Says what a session should be that is opened at a place."""

Attend = Callable[[SessionId], None]


class ChannelPlaces:
    """The places of every channel in this process."""

    def __init__(self, sessions: Sessions, attend: Attend, wanted_at: SpecAt) -> None:
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
