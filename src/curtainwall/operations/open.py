"""Opens sessions: new ones, resets, and those that a channel's place leads to; each is opened once, by whichever process comes first."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
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
    ReopenSession,
    Route,
    SessionId,
    SessionQuery,
    Undecided,
    Who,
    Workspace,
    record,
    session_stream,
    stricter,
)
from curtainwall.operations.sessions import Sessions
from curtainwall.runtime import SessionRegistry


async def begin_once(registry: SessionRegistry, session: SessionId, by: Who, opening: Callable[[], OpenSession]) -> None:
    """Open a session unless it is open already, and make it ready.

    `Undecided` means that nothing was begun: trying again is safe.
    """
    try:
        if registry.feed.head(session_stream(session)) == 0:
            # The key makes the command idempotent if several processes send it at once.
            await registry.send(session, opening(), "opening")
        await registry.send(session, ReadySession(by=by), "ready")
    except Undecided as undecided:
        raise _nothing_opened(undecided) from None


async def complete_opening(registry: SessionRegistry, session: SessionId, by: Who) -> None:
    """Make a session ready that was opened before: if it was closed, open it again; if a process ended while opening it, complete that."""
    try:
        if registry.look_at(session).closed is not None:
            await registry.send(session, ReopenSession(by=by))
        await registry.send(session, ReadySession(by=by))
    except Undecided as undecided:
        raise _nothing_opened(undecided) from None


def _nothing_opened(undecided: Undecided) -> Undecided:
    return Undecided(undecided.session, undecided.owner, "nothing was begun, so try again when it goes on or has ended")


@record
class SessionSpec:
    """The settings of a new session; what is left out comes from the user's configuration."""

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
    """The channel where its people talk; if empty, the channel of the person who opens it."""
    instructions: str = ""
    """Instructions for the built-in agent besides the task, as a file in the session's own workspace."""


async def open_new(sessions: Sessions, spec: SessionSpec, by: Who, session: SessionId | None = None) -> SessionId:
    """Open a session; without a directory, it gets its own workspace.

    If a place already leads to an id, pass that id: the session is opened once, even if several processes try.
    """
    session = session or SessionId(sessions.registry.mint())
    await begin_once(sessions.registry, session, by, partial(_opening, sessions, spec, by, session))
    return session


def _opening(sessions: Sessions, spec: SessionSpec, by: Who, session: SessionId) -> OpenSession:
    place = sessions.home.session(session)
    is_own = spec.workspace is None
    # A directory that cannot be a workspace is refused before anything is made.
    project = None if spec.workspace is None else sessions.workspace_at(spec.workspace, own=False)
    place.prepare()
    workspace = project or sessions.workspace_at(place.workspace, own=True)
    if is_own and spec.instructions and spec.agent == BUILTIN_AGENT:
        _write_instructions(place.workspace, spec)
    return OpenSession(
        by=by,
        session=session,
        name=spec.name or (f"session {session[:6]}" if is_own else Path(workspace.path).name),
        agent=spec.agent,
        model=spec.model,
        workspace=workspace,
        mode=spec.mode,
        limits=spec.limits or sessions.terms().limits,
        policy=sessions.terms().rules.of(team=spec.team, job=spec.job, hook=spec.hook).policy.version,
        routes=tuple(dict.fromkeys((*spec.routes, *sessions.terms().targets))),
        labels=spec.labels,
        team=spec.team,
        job=spec.job,
        hook=spec.hook,
        channel=spec.channel,
    )


def _write_instructions(workspace: Path, spec: SessionSpec) -> None:
    """Write the instructions where the built-in agent looks for them; a file that is there stays. Others are told them with each turn."""
    with suppress(FileExistsError):
        descriptor = os.open(workspace / "AGENTS.md", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{spec.instructions.rstrip()}\n")


async def reset(sessions: Sessions, old: SessionId, by: Who, name: str = "") -> SessionId:
    """Open a session in the workspace of another, linked to it. It inherits labels but not grants."""
    state = sessions.state(old)
    assert state.opened is not None
    session = SessionId(sessions.registry.mint())
    sessions.home.session(session).prepare()
    opening = OpenSession(
        by=by,
        session=session,
        name=name or state.name,
        agent=state.opened.agent,
        model=state.model,
        workspace=Workspace(path=state.workspace.path, own=state.workspace.own),
        mode=stricter(state.mode, Mode.DEFAULT),
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


async def open_with_history(sessions: Sessions, opening: OpenSession, history: InheritHistory) -> None:
    """Open a session with its history.

    INVARIANT: this is one commit. If a crash left a session without its history, the next process would complete it without.
    """
    commands = (opening, history, ReadySession(by=opening.by))
    async with sessions.registry.hold(opening.session) as actor:
        # The actor decides all waiting commands together.
        await asyncio.gather(*map(actor.submit, commands))


def inherit_label(source: LabelSource, parent: SessionId) -> LabelSource:
    """Return a label as inherited from another session, with its origin there."""
    where = source.origin or (f"call {source.call}" if source.call else "")
    return LabelSource(label=source.label, origin=f"session {parent}{f': {where}' if where else ''}")


SpecAt = Callable[[Route], SessionSpec]
"""Returns the settings for a session that is opened at a place."""

Attend = Callable[[SessionId], None]


class ChannelPlaces:
    """The places of every channel in this process, such as chat rooms, and the sessions that they lead to."""

    def __init__(self, sessions: Sessions, attend: Attend, spec_at: SpecAt) -> None:
        self._sessions = sessions
        self._attend = attend
        self._spec_at = spec_at

    def session_at(self, place: Route) -> SessionId | None:
        """Return the session that a place leads to."""
        return self._sessions.store.index.session_at(place)

    async def open_at(self, place: Route, by: Who, called: str = "") -> SessionId:
        """Return the session that a place leads to, opening one if there is none, and run its agent here.

        A new session is named `called`, or after the place.
        """
        session = self.session_at(place)
        if session is None or self._is_closed(session):
            session = await self._sessions.registry.bind(place, SessionId(self._sessions.registry.mint()), by, instead_of=session)
        # The process that bound it may have ended before opening it; opening it again does nothing.
        spec = self._spec_at(place)
        await open_new(self._sessions, replace(spec, name=called) if called else spec, by, session)
        self._attend(session)
        return session

    def _is_closed(self, session: SessionId) -> bool:
        rows = self._sessions.store.index.sessions(SessionQuery(prefix=session, limit=1))
        return bool(rows) and rows[0].status == "closed"

    async def move(self, place: Route, session: SessionId, by: Who, instead_of: SessionId | None) -> SessionId:
        """Make a place lead to another session, show that session's asks there, and return the session that it leads to now."""
        undecided: Undecided | None = None
        try:
            await self._sessions.registry.send(session, AddRoute(by=by, route=place))
        except Undecided as error:
            # The home decides where a place leads; that session's asks are shown there as soon as its owner decides.
            undecided = error
        current = await self._sessions.registry.bind(place, session, by, instead_of=instead_of)
        self._attend(current)
        if undecided is not None:
            note = "this place leads there all the same, and what is written here counts as soon as it does"
            raise Undecided(undecided.session, undecided.owner, note)
        return current

    def may_control(self, who: Who) -> bool:
        """Tell whether someone may answer asks and use control words, by the rules in force now."""
        return self._sessions.terms().rules.may_control(who)
