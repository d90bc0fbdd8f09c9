"""How sessions begin: new ones, in a workspace of their own or in a project, and fresh starts in the same place."""

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from curtainwall.model import (
    BUILTIN_AGENT,
    InheritHistory,
    LabelSource,
    Limits,
    Mode,
    OpenSession,
    ReadySession,
    Route,
    SessionId,
    Who,
    Workspace,
)
from curtainwall.operations.begin_once import begin_once
from curtainwall.operations.sessions import Sessions


@dataclass(frozen=True, slots=True)
class Wanted:
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


async def open_new(sessions: Sessions, wanted: Wanted, by: Who, session: SessionId | None = None) -> SessionId:
    """Open a session; without a directory, it gets a workspace of its own.

    One whose id was promised before, to a place that leads there, is opened under it, once, whoever is quicker.
    """
    session = session or SessionId(sessions.house.mint())
    await begin_once(sessions.house, session, by, partial(_opening, sessions, wanted, by, session))
    return session


def _opening(sessions: Sessions, wanted: Wanted, by: Who, session: SessionId) -> OpenSession:
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
        labels=tuple(inherited(source, old) for source in state.labels.values()),
        routes=tuple(state.routes),
        team=state.opened.team,
        job=state.opened.job,
        hook=state.opened.hook,
    )
    await begin(sessions, opening, InheritHistory(by=by, parent=old, upto=state.totals.events, history=None, how="reset"))
    return session


async def begin(sessions: Sessions, opening: OpenSession, inherits: InheritHistory) -> None:
    """Open a session with its past.

    INVARIANT: all of it is one commit. One that a crash left without its past would be completed without it by whoever comes next.
    """
    commands = (opening, inherits, ReadySession(by=opening.by))
    async with sessions.house.hold(opening.session) as actor:
        # Whatever waits when it decides is decided together.
        await asyncio.gather(*map(actor.submit, commands))


def inherited(source: LabelSource, parent: SessionId) -> LabelSource:
    """Return a label as it comes over from another session, with where it was first set."""
    where = source.origin or (f"call {source.call}" if source.call else "")
    return LabelSource(label=source.label, origin=f"session {parent}{f': {where}' if where else ''}")
