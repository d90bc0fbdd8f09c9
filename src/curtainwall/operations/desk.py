"""The desk: what every channel can do with sessions, and how they look from there."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from curtainwall.model import (
    AnyCommand,
    AnyEvent,
    BudgetFigure,
    ChangeModel,
    CommandRefused,
    ContextUse,
    Grant,
    GrantId,
    MessageAccepted,
    MessageId,
    Opened,
    Opening,
    QueuedMessage,
    RevokeGrant,
    SendMessage,
    SessionId,
    SessionQuery,
    SessionRow,
    SessionStatus,
    SessionView,
    Who,
    project_stream,
    session_stream,
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
    """Return how an opened session looks; the events are only asked for the words of messages that wait."""
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
        budget=tuple(BudgetFigure(kind=it.kind, used=it.used, limit=it.limit, basis=it.basis) for it in figures(state)),
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
    wanted = set(waiting)
    words: dict[MessageId, MessageAccepted] = {}
    for event in events:
        if isinstance(event, MessageAccepted) and event.message in wanted:
            words[event.message] = event
            if len(words) == len(wanted):
                break
    return tuple(QueuedMessage(message=it, text=words[it].text, by=str(words[it].by)) for it in waiting if it in words)


Attend = Callable[[SessionId], None]
"""Lets this process look after a session's agent."""

_PAGE = 500


class AgentChecks(Protocol):
    """Whether agents can work here; each check raises, with what to do."""

    def require_model(self, agent: str, model: str) -> None:
        """Raise where an agent of this name cannot use a model of this name."""
        ...

    async def require_ready(self, agent: str) -> None:
        """Raise where an agent of this name could not work here; nothing is started."""
        ...


@dataclass(frozen=True, slots=True)
class DeskPorts:
    """What channels of this process get besides the sessions themselves."""

    incoming: IncomingMessages
    agents: AgentChecks
    attend: Attend
    usual: SessionSpec
    """What a new session is where nobody says otherwise."""
    threshold: float | None
    """How full the context gets before it is compacted, where the session does not say."""


class SessionDesk:
    """The desk of one process, for every channel in it."""

    def __init__(self, sessions: Sessions, surface: DeskPorts) -> None:
        self._sessions = sessions
        self._incoming, self._agents, self._attend = surface.incoming, surface.agents, surface.attend
        self._wanted = surface.usual
        self._threshold = surface.threshold

    async def send(self, session: SessionId, command: AnyCommand, key: str | None = None) -> int:
        """Have a command decided and return where the log ends then. What people say passes hooks first, and a model must be there."""
        if key is not None and self._sessions.store.inbox.outcome(session_stream(session), key) is not None:
            # It was decided before, and hooks have heard it then.
            return await self._sessions.house.send(session, command, key)
        if isinstance(command, RevokeGrant) and not _has_grant(self._state(session), command.grant):
            await self._sessions.house.revoke(command.grant, command.by)
            return self._sessions.house.feed.head(session_stream(session))
        command = self._incoming.masked(command)
        if isinstance(command, SendMessage) and command.role == "human":
            await self._incoming.pass_hooks(session, self._state(session).place, command.text, key)
        if isinstance(command, ChangeModel):
            # A name that leads nowhere is refused here, or every turn from now on would fail.
            self._agents.require_model(self._sessions.names.of(session), command.model)
        return await self._sessions.house.send(session, command, key)

    def view(self, session: SessionId) -> SessionView:
        """Return the session as it is now; raise `NotFound`."""
        state = self._state(session)
        stream = project_stream(state.workspace.path)
        for_project = tuple(row.grant for row in self._sessions.store.index.grants(of=stream))
        return session_view(state, self._events_of(session), self._threshold, for_project)

    def _events_of(self, session: SessionId) -> Iterator[AnyEvent]:
        """Go back through a log, as far as whoever wants to know goes."""
        log, stream = self._sessions.store.log, session_stream(session)
        end = log.head(stream)
        while end > 0:
            begin = max(end - _PAGE, 0)
            yield from map(lift, reversed(log.read(stream, begin, end - begin)))
            end = begin

    def find(self, query: SessionQuery) -> Sequence[SessionRow]:
        """Return sessions, newest first."""
        return self._sessions.store.index.sessions(query)

    async def open(self, wish: Opening, by: Who) -> Opened:
        """Open a session, and let its agent work here."""
        opened = await self._open(wish, by)
        self._attend(opened.session)
        return opened

    async def begin(self, wanted: SessionSpec, by: Who) -> Opened:
        """Open a session that is just so, and let its agent work here; what its agent lacks is said before anything is opened."""
        self._agents.require_model(wanted.agent, wanted.model)
        await self._agents.require_ready(wanted.agent)
        session = await open_new(self._sessions, wanted, by)
        self._attend(session)
        return Opened(session=session)

    @property
    def usual(self) -> SessionSpec:
        """What a new session is where nobody says otherwise."""
        return self._wanted

    async def _open(self, wish: Opening, by: Who) -> Opened:
        require_short_name(wish.name)
        if wish.how == "new":
            return Opened(session=await open_new(self._sessions, replace(self._wanted, name=wish.name), by))
        if wish.of is None:
            raise CommandRefused(f"say which session to {wish.how}")
        if wish.how == "reset":
            return Opened(session=await reset(self._sessions, wish.of, by, wish.name), notes=("grants and credentials stay behind",))
        made = await fork(self._sessions, wish.of, by, wish.name)
        shared = f"both sessions work in the same project `{made.workspace}`; what one changes, the other sees"
        return Opened(session=made.session, notes=() if made.copied is not None else (shared,))

    def _state(self, session: SessionId) -> SessionState:
        return self._sessions.state(session)


def _has_grant(state: SessionState, grant: GrantId) -> bool:
    """Tell whether a session has this standing answer, or answers of this plan."""
    return any(grant in (each.id, each.plan) for each in state.grants.values())
