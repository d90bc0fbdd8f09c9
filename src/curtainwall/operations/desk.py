"""The desk: how channels view sessions, send them commands, and open them."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from curtainwall.model import (
    ALL_GRANTS,
    AnyCommand,
    AnyEvent,
    BudgetFigure,
    ChangeMode,
    ChangeModel,
    CloseSession,
    CommandRefused,
    ContextUse,
    Grant,
    GrantId,
    MessageAccepted,
    MessageId,
    Mode,
    Opened,
    Opening,
    QueuedMessage,
    ReopenSession,
    RevokeGrant,
    SendMessage,
    SessionId,
    SessionQuery,
    SessionRow,
    SessionStatus,
    SessionView,
    Who,
    project_stream,
    record,
    session_stream,
    works_on_view,
)
from curtainwall.operations.fork import fork
from curtainwall.operations.messages import IncomingMessages
from curtainwall.operations.open import SessionSpec, open_new, reset
from curtainwall.operations.sessions import Sessions
from curtainwall.session import SessionState, figures, lift, pending_ask, require_short_name

_STATUS: dict[str, SessionStatus] = {
    "opening": "opening", "ready": "ready", "working": "working", "waiting": "waiting", "closed": "closed",
}  # fmt: skip


def session_view(
    state: SessionState, events: Iterable[AnyEvent], threshold: float | None, for_project: tuple[Grant, ...] = ()
) -> SessionView:
    """Return the view of an opened session; the events are only read for the text of queued messages."""
    opened = state.opened
    assert opened is not None
    return SessionView(
        session=opened.session,
        name=state.name,
        agent=opened.agent,
        model=state.model,
        mode=state.mode,
        status=_STATUS[state.phase.value],
        workspace=state.workspace,
        created=opened.at,
        turns=state.totals.turns,
        parent=opened.parent,
        labels=tuple(state.labels.values()),
        disabled=tuple(sorted(state.disabled)),
        queue=_queued(state.queue, events),
        pending=tuple(pending_ask(open_, state.calls[open_.calls[0]].subject) for open_ in state.approvals.values() if open_.calls),
        grants=(*state.grants.values(), *for_project),
        budget=tuple(BudgetFigure(kind=figure.kind, used=figure.used, limit=figure.limit, basis=figure.basis) for figure in figures(state)),
        exhausted=tuple(sorted(state.exhausted)),
        context=ContextUse(
            used=state.context_used,
            size=state.context_size,
            measured=state.context_measured,
            threshold=state.compaction if state.compaction_set else threshold,
        ),
    )


def _queued(waiting: Sequence[MessageId], events: Iterable[AnyEvent]) -> tuple[QueuedMessage, ...]:
    if not waiting:
        return ()
    ids = set(waiting)
    accepted: dict[MessageId, MessageAccepted] = {}
    for event in events:
        if isinstance(event, MessageAccepted) and event.message in ids:
            accepted[event.message] = event
            if len(accepted) == len(ids):
                break
    return tuple(
        QueuedMessage(message=message, text=accepted[message].text, by=str(accepted[message].by))
        for message in waiting
        if message in accepted
    )


Attend = Callable[[SessionId], None]
"""Makes this process run a session's agent."""

_PAGE = 500


class AgentChecks(Protocol):
    """Checks whether agents can work here; each raises an error that says what to do."""

    def require_model(self, agent: str, model: str) -> None:
        """Raise if this agent cannot use this model."""
        ...

    async def require_ready(self, agent: str) -> None:
        """Raise if this agent could not work here; start nothing."""
        ...


def no_view_fault(_project: str, _agent: str) -> str:
    """Expect that a view of every project is possible; where one is not, each call in it fails."""
    return ""


@record
class DeskPorts:
    """The parts that a desk uses besides the sessions themselves."""

    incoming: IncomingMessages
    agents: AgentChecks
    attend: Attend
    usual: SessionSpec
    """The default for a new session."""
    threshold: float | None
    """How full the context gets before it is compacted, unless the session says otherwise."""
    view_fault: Callable[[str, str], str] = no_view_fault
    """Returns why no view of a project is possible here for an agent, or ""."""


class SessionDesk:
    """The desk of one process, for every channel in it."""

    def __init__(self, sessions: Sessions, ports: DeskPorts) -> None:
        self._sessions = sessions
        self._incoming, self._agents, self._attend = ports.incoming, ports.agents, ports.attend
        self._usual, self._view_fault = ports.usual, ports.view_fault
        self._threshold = ports.threshold

    async def send(self, session: SessionId, command: AnyCommand, key: str | None = None) -> int:
        """Have a command decided and return the end of the log. Messages from people pass hooks first, and a new model must exist."""
        if key is not None and self._sessions.store.inbox.outcome(session_stream(session), key) is not None:
            # It was decided before, and the hooks ran then.
            return await self._sessions.registry.send(session, command, key)
        if isinstance(command, RevokeGrant) and command.grant != ALL_GRANTS and not _has_grant(self._state(session), command.grant):
            await self._sessions.registry.revoke(command.grant, command.by)
            return self._sessions.registry.feed.head(session_stream(session))
        command = self._incoming.masked(command)
        if isinstance(command, SendMessage) and command.role == "human":
            await self._incoming.pass_hooks(session, self._state(session).place, command.text, key)
        if isinstance(command, ChangeModel):
            # Refuse an unknown model here, or every later turn would fail.
            self._agents.require_model(self._sessions.names.of(session), command.model)
        if isinstance(command, ChangeMode) and works_on_view(self._state(session).workspace, command.mode):
            place = self._state(session).place
            await self._require_view(place.workspace.path, place.agent)
        end = await self._sessions.registry.send(session, command, key)
        if isinstance(command, CloseSession | ReopenSession):
            # Hooks run where a session is attended: those for its end, and those for its start if it is open again.
            self._attend(session)
        return end

    def view(self, session: SessionId) -> SessionView:
        """Return the current view of a session; raise `NotFound`."""
        state = self._state(session)
        stream = project_stream(state.workspace.path)
        for_project = tuple(row.grant for row in self._sessions.store.index.grants(of=stream))
        return session_view(state, self._events_of(session), self._threshold, for_project)

    def _events_of(self, session: SessionId) -> Iterator[AnyEvent]:
        """Yield a session's events from the last one backwards, reading only as much as the caller consumes."""
        log, stream = self._sessions.store.log, session_stream(session)
        end = log.head(stream)
        while end > 0:
            begin = max(end - _PAGE, 0)
            yield from map(lift, reversed(log.read(stream, begin, end - begin)))
            end = begin

    def find(self, query: SessionQuery) -> Sequence[SessionRow]:
        """Return sessions, newest first."""
        return self._sessions.store.index.sessions(query)

    async def open(self, opening: Opening, by: Who) -> Opened:
        """Open a session and run its agent here."""
        opened = await self._open(opening, by)
        self._attend(opened.session)
        return opened

    async def begin(self, spec: SessionSpec, by: Who) -> Opened:
        """Open a session with this spec and run its agent here; raise before opening it if its agent could not work."""
        self._agents.require_model(spec.agent, spec.model)
        await self._agents.require_ready(spec.agent)
        await self.require_view(spec)
        session = await open_new(self._sessions, spec, by)
        self._attend(session)
        return Opened(session=session)

    @property
    def usual(self) -> SessionSpec:
        """Return the default for a new session."""
        return self._usual

    async def _open(self, opening: Opening, by: Who) -> Opened:
        require_short_name(opening.name)
        if opening.how == "new":
            await self.require_view(self._usual)
            return Opened(session=await open_new(self._sessions, replace(self._usual, name=opening.name), by))
        if opening.of is None:
            raise CommandRefused(f"say which session to {opening.how}")
        if opening.how == "reset":
            labels = ", ".join(self._state(opening.of).labels)
            remain = (f"its labels remain, because it works with the same files: {labels}",) if labels else ()
            session = await reset(self._sessions, opening.of, by, opening.name)
            return Opened(session=session, notes=("grants and credentials stay behind", *remain))
        forked = await fork(self._sessions, opening.of, by, opening.name)
        note = f"both sessions work in the same project `{forked.workspace}`; what one changes, the other sees"
        return Opened(session=forked.session, notes=() if forked.copied is not None else (note,))

    async def require_view(self, spec: SessionSpec) -> None:
        """Refuse a new session in a mode that needs a view of its project where none is possible; open nothing."""
        if spec.workspace is not None and spec.mode is Mode.REVIEW:
            await self._require_view(self._sessions.workspace_at(spec.workspace, own=False).path, spec.agent)

    async def _require_view(self, project: str, agent: str) -> None:
        """Refuse a mode that needs a view of a project where none is possible."""
        # A thread: it looks through the project, and tries a mount.
        if fault := await asyncio.to_thread(self._view_fault, project, agent):
            raise CommandRefused(f"mode `{Mode.REVIEW}` needs a view of `{project}`, which is not possible here: {fault}; use `ask`")

    def _state(self, session: SessionId) -> SessionState:
        return self._sessions.state(session)


def _has_grant(state: SessionState, grant: GrantId) -> bool:
    """Tell whether a session has this grant, or grants of this plan."""
    return any(grant in (held.id, held.plan) for held in state.grants.values())
