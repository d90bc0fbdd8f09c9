"""A fork: a new session that knows what its parent knew. Labels come along, grants do not; a workspace of its own is copied."""

import asyncio
import json
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from curtainwall.facts import is_beneath
from curtainwall.model import (
    TEAMS,
    CurtainwallError,
    InheritHistory,
    Limits,
    Mode,
    NotFound,
    OpenSession,
    SessionId,
    Who,
    Workspace,
    session_stream,
)
from curtainwall.operations.copy_tree import Copied, copy_tree
from curtainwall.operations.open import begin, inherited
from curtainwall.operations.remove import remove_tree
from curtainwall.operations.sessions import Sessions
from curtainwall.session import SessionState, fold, lift

# What a conversation is made of; verdicts, approvals and grants of the parent are its own affair.
_TOLD = frozenset(
    """
    HistoryInherited MessageAccepted TurnStarted TurnResumed TextStreamed AgentSpoke TurnEnded ModelRequested ModelResponded ModelFailed
    HistoryCompacted CallRequested CallDenied CallPermitted CallFinished CallLost CallDropped MessageWithdrawn ProgramFinished
    InstructionsPinned
    """.split()
)


@dataclass(frozen=True, slots=True)
class Forked:
    """The new session, and what became of the workspace; `copied` is None where a project is shared."""

    session: SessionId
    workspace: str
    mode: Mode
    copied: Copied | None


async def fork(sessions: Sessions, parent: SessionId, by: Who, name: str = "", limits: Limits | None = None) -> Forked:
    """Open a session on the history of another, up to where that one's log ends now; it keeps the rules of its team, job or webhook.

    It belongs to the channel of whoever forks it, and its asks are shown where the parent's are on that channel.
    """
    entries = sessions.store.log.read(session_stream(parent))
    state = fold(lift(entry) for entry in entries)
    if state.opened is None:
        raise NotFound(f"there is no session `{parent}`")
    session = SessionId(sessions.house.mint())
    place = sessions.home.session(session)
    place.prepare()
    try:
        copied = await asyncio.to_thread(copy_tree, Path(state.workspace.path), place.workspace) if state.workspace.own else None
        # INVARIANT: read after the copy. A parent that is at work has its labels before it has what it could write down in there.
        labels = sessions.state(parent).labels.values()
        workspace = sessions.workspace_at(place.workspace if state.workspace.own else state.workspace.path, own=state.workspace.own)
        told = [
            {"seq": it.seq, "type": it.kind, "version": it.version, "event": json.loads(it.payload)} for it in entries if it.kind in _TOLD
        ]
        history = await sessions.store.blobs.put(
            json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        )
        here = (route for route in state.routes if route.channel == by.channel)
        opening = OpenSession(
            by=by,
            session=session,
            name=name or f"{state.name} (fork)",
            agent=state.opened.agent,
            model=state.model,
            workspace=workspace,
            # `accept-edits` and `bypass` are standing answers, and those stay behind.
            mode=Mode.PLAN if state.mode is Mode.PLAN else Mode.DEFAULT,
            limits=limits or sessions.terms().limits,
            policy=sessions.terms().rules.of_session(state.opened).policy.version,
            parent=parent,
            labels=tuple(inherited(source, parent) for source in labels),
            routes=tuple(dict.fromkeys((*here, *sessions.terms().targets))),
            team=state.opened.team,
            job=state.opened.job,
            hook=state.opened.hook,
            channel=TEAMS if state.opened.channel == TEAMS else "",
        )
        inherits = InheritHistory(
            by=by, parent=parent, upto=entries[-1].seq, history=history, how="fork", git_directory=_moved(state, workspace)
        )
        await _to_its_end(begin(sessions, opening, inherits))
    except BaseException:
        if not _may_be_there(sessions, session):
            # A copy that nobody waits for any more may still be at it.
            with suppress(OSError):
                await asyncio.to_thread(remove_tree, place.root)
        raise
    return Forked(session, workspace.path, opening.mode, copied)


def _moved(parent: SessionState, workspace: Workspace) -> str:
    """Return where git works in a fork: in the same place as in its parent, which is in the copy where the workspace was copied."""
    chosen, before = parent.git_directory, parent.workspace.path
    return workspace.path + chosen.removeprefix(before) if is_beneath(chosen, before) else chosen


async def _to_its_end(writing: Coroutine[None, None, None]) -> None:
    """Wait for something until it is known whether it was written, however often somebody wants to stop; then stop."""
    task, stopped = asyncio.ensure_future(writing), False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            stopped = True
    task.result()
    if stopped:
        raise asyncio.CancelledError


def _may_be_there(sessions: Sessions, session: SessionId) -> bool:
    """Tell whether a session has a log, also where that cannot be told now: its files are not to be taken from it."""
    try:
        return sessions.store.log.head(session_stream(session)) > 0
    except CurtainwallError:
        return True
