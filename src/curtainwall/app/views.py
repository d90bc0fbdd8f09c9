"""A session's state as channels show it."""

from collections.abc import Collection, Iterable

from curtainwall.model import (
    AnyEvent,
    BudgetFigure,
    ContextUse,
    Grant,
    MessageAccepted,
    MessageId,
    PendingAsk,
    QueuedMessage,
    RuleId,
    SessionStatus,
    SessionView,
)
from curtainwall.session import OpenApproval, SessionState, figures

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
        pending=tuple(_pending(state, open_) for open_ in state.approvals.values() if open_.calls),
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


def _queued(waiting: Collection[MessageId], events: Iterable[AnyEvent]) -> tuple[QueuedMessage, ...]:
    if not waiting:
        return ()
    words: dict[MessageId, MessageAccepted] = {}
    for event in events:
        if isinstance(event, MessageAccepted) and event.message in waiting:
            words[event.message] = event
            if len(words) == len(waiting):
                break
    return tuple(QueuedMessage(message=it, text=words[it].text, by=str(words[it].by)) for it in waiting if it in words)


def _pending(state: SessionState, open_: OpenApproval) -> PendingAsk:
    asked, first = open_.asked, next(iter(open_.calls))
    rules: dict[RuleId, None] = dict.fromkeys(rule for cover in asked.covers for rule in cover.rules)
    return PendingAsk(
        approval=asked.approval,
        call=first,
        subject=state.calls[first].subject,
        because=tuple(rules),
        shown=asked.shown,
        asked=asked.at,
        deadline=asked.deadline,
        shared_by=len(open_.calls),
    )
