"""How sessions begin: new ones, in a workspace of their own or in a project, and fresh starts in the same place."""

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from curtainwall.app.beginning import begin_once
from curtainwall.app.config_agents import BUILTIN
from curtainwall.app.wiring import Wired, workspace_at
from curtainwall.channels.places import parse_place
from curtainwall.model import (
    InheritHistory,
    LabelSource,
    Limits,
    Mode,
    NotFound,
    OpenSession,
    ReadySession,
    Route,
    SessionId,
    Who,
    Workspace,
    session_stream,
)
from curtainwall.session import SessionState, fold, lift


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a new session should be; what is left out is the user's configuration."""

    model: str
    workspace: Path | None = None
    name: str = ""
    agent: str = BUILTIN
    mode: Mode = Mode.DEFAULT
    routes: tuple[Route, ...] = ()
    limits: Limits | None = None
    labels: tuple[LabelSource, ...] = ()
    team: str = ""
    job: str = ""
    hook: str = ""
    channel: str = ""
    """Where its people talk; left out, where whoever opens it does."""


async def open_new(wired: Wired, wanted: Wanted, by: Who, session: SessionId | None = None) -> SessionId:
    """Open a session; without a directory, it gets a workspace of its own.

    One whose id was promised before, to a place that leads there, is opened under it, once, whoever is quicker.
    """
    session = session or SessionId(wired.house.mint())
    await begin_once(wired.house, session, by, partial(_opening, wired, wanted, by, session))
    return session


def _opening(wired: Wired, wanted: Wanted, by: Who, session: SessionId) -> OpenSession:
    place = wired.setup.home.session(session)
    place.prepare()
    is_own = wanted.workspace is None
    workspace = workspace_at(place.workspace if wanted.workspace is None else wanted.workspace, wired.setup, own=is_own)
    return OpenSession(
        by=by,
        session=session,
        name=wanted.name or (f"session {session[:6]}" if is_own else Path(workspace.path).name),
        agent=wanted.agent,
        model=wanted.model,
        workspace=workspace,
        mode=wanted.mode,
        limits=wanted.limits or wired.setup.limits,
        policy=wired.setup.rules.of(team=wanted.team, job=wanted.job, hook=wanted.hook).policy.version,
        routes=tuple(dict.fromkeys((*wanted.routes, *map(parse_place, wired.setup.config.approvals.targets)))),
        labels=wanted.labels,
        team=wanted.team,
        job=wanted.job,
        hook=wanted.hook,
        channel=wanted.channel,
    )


async def reset(wired: Wired, old: SessionId, by: Who, name: str = "") -> SessionId:
    """Open a session in the workspace of another, linked to it. What was granted there stays there; its labels come along."""
    state = state_of(wired, old)
    assert state.opened is not None
    session = SessionId(wired.house.mint())
    wired.setup.home.session(session).prepare()
    opening = OpenSession(
        by=by,
        session=session,
        name=name or state.name,
        agent=state.opened.agent,
        model=state.model,
        workspace=Workspace(path=state.workspace.path, own=state.workspace.own),
        mode=Mode.PLAN if state.mode is Mode.PLAN else Mode.DEFAULT,
        limits=wired.setup.limits,
        policy=wired.setup.rules.of_session(state.opened).policy.version,
        parent=old,
        labels=tuple(inherited(source, old) for source in state.labels.values()),
        routes=tuple(state.routes),
        team=state.opened.team,
        job=state.opened.job,
        hook=state.opened.hook,
    )
    await begin(wired, opening, InheritHistory(by=by, parent=old, upto=state.totals.events, history=None, how="reset"))
    return session


async def begin(wired: Wired, opening: OpenSession, inherits: InheritHistory) -> None:
    """Open a session with its past.

    INVARIANT: all of it is one commit. One that a crash left without its past would be completed without it by whoever comes next.
    """
    commands = (opening, inherits, ReadySession(by=opening.by))
    async with wired.house.hold(opening.session) as actor:
        # Whatever waits when it decides is decided together.
        await asyncio.gather(*map(actor.submit, commands))


def state_of(wired: Wired, session: SessionId) -> SessionState:
    """Return a session's state as the log tells it now; raise `NotFound`."""
    state = fold(lift(entry) for entry in wired.store.log.read(session_stream(session)))
    if state.opened is None:
        raise NotFound(f"there is no session `{session}`")
    return state


def inherited(source: LabelSource, parent: SessionId) -> LabelSource:
    """Return a label as it comes over from another session, with where it was first set."""
    where = source.origin or (f"call {source.call}" if source.call else "")
    return LabelSource(label=source.label, origin=f"session {parent}{f': {where}' if where else ''}")
