"""A session's state as channels show it."""

from collections.abc import Iterable, Sequence

from curtainwall.model import (
    AnyEvent,
    BudgetFigure,
    ContextUse,
    Grant,
    MessageAccepted,
    MessageId,
    QueuedMessage,
    SessionStatus,
    SessionView,
)
from curtainwall.session import SessionState, figures, pending_ask

_STATUS: dict[str, SessionStatus] = {
    "opening": "opening", "ready": "ready", "working": "working", "waiting": "waiting", "closed": "closed",
}  # fmt: skip


def view_of(state: SessionState, events: Iterable[AnyEvent], threshold: float | None, for_project: tuple[Grant, ...] = ()) -> SessionView:
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
