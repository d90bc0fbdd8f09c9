"""One event further: the state after something happened."""

from collections.abc import Iterable, Mapping
from typing import TypeVar, assert_never

from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalExpired,
    ApprovalId,
    ApprovalJoined,
    ApprovalWithdrawn,
    Broken,
    BudgetExhausted,
    BudgetRaised,
    BudgetWarned,
    CallDenied,
    CallDropped,
    CallFinished,
    CallId,
    CallLost,
    CallPermitted,
    CallRequested,
    CompactionAsked,
    CompactionSet,
    CompactionSkipped,
    ContextMeasured,
    DenialsCounted,
    ExtensionNoted,
    GrantGiven,
    GrantRevoked,
    GrantUsed,
    HistoryCompacted,
    HistoryInherited,
    InstructionsPinned,
    InterruptAsked,
    LabelsAdded,
    LabelSource,
    LoopDetected,
    MessageAccepted,
    MessageId,
    MessageWithdrawn,
    Millis,
    ModeChanged,
    ModelChanged,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    PeerAnswered,
    PeerAnswerHeld,
    PeerAnswerTaken,
    PeerMessageSent,
    ProgramFinished,
    ProgramSaved,
    RouteAdded,
    RouteRemoved,
    RouteSet,
    RuleDisabled,
    RuleEnabled,
    SessionClosed,
    SessionDeleted,
    SessionOpened,
    SessionReady,
    SessionRenamed,
    Settlement,
    SpendingCounted,
    TextStreamed,
    ToolEffect,
    TurnEnded,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    WorkTimed,
)
from curtainwall.session.breaker import newest, remember_ask, remember_repeat
from curtainwall.session.state import SETTLED_KEPT, OpenApproval, OpenCall, SessionState, Settled, Spent, Standing

K = TypeVar("K")
V = TypeVar("V")


def evolve(state: SessionState, event: AnyEvent) -> SessionState:
    """Return the state after the event; the given one stays as it was."""
    return fold((event,), state)


def fold(events: Iterable[AnyEvent], state: SessionState | None = None) -> SessionState:
    """Return the state after all the events; the same as evolving one by one, without a copy for each.

    A log that speaks of a call or an approval that is not open is damaged: it raises `Broken`.
    """
    new = SessionState() if state is None else state.copy()
    try:
        for event in events:
            apply(new, event)
    except LookupError:
        raise Broken(f"event {new.totals.events} of this log does not fit what came before it; `sessions replay` says more") from None
    return new


def apply(state: SessionState, event: AnyEvent) -> None:
    """Change a state that nobody else has seen yet."""
    state.totals.events += 1
    # The frequent come first: a case that does not fit costs time in every fold.
    match event:
        case TextStreamed():
            pass
        case AgentSpoke():
            if state.peers and event.ours:
                state.notes = (*state.notes, event.text)
            elif state.peers:
                state.spoken = event.text
        case MessageAccepted():
            state.totals.messages += 1
            if event.role == "human":
                state.queue, state.repeats = (*state.queue, event.message), {}
            if event.peer is not None:
                state.peers = {**state.peers, event.message: event.peer}
                if event.expires is not None:
                    state.expiries = {**state.expiries, event.message: event.expires}
        case TurnStarted():
            state.totals.turns += 1
            state.turn, state.turn_waits, state.interrupting = event.turn, False, False
            taken = frozenset(event.messages)
            state.queue = tuple(message for message in state.queue if message not in taken)
            state.turn_messages, state.turn_began = event.messages, state.spent.copy()
            state.spoken, state.notes = "", ()
        case TurnEnded():
            state.turn_waits = event.status is TurnStatus.WAITING
            state.turn = event.turn if state.turn_waits else None
            state.parked_on, state.interrupting = event.waits_for, False
            if not state.turn_waits:
                state.turn_messages, state.turn_began = (), None
                state.spoken, state.notes = "", ()
        case CallRequested():
            state.totals.calls += 1
            opened = OpenCall(subject=event.subject, standing=Standing.REQUESTED, turn=event.turn)
            state.calls = {**state.calls, event.call: opened}
            if event.subject.effect is not ToolEffect.INSPECT:
                state.repeats = remember_repeat(state.repeats, event.subject.digest, event.at)
        case CallPermitted():
            call = state.calls.get(event.call)
            if call is not None:
                state.calls = {**state.calls, event.call: call._replace(standing=Standing.PERMITTED, permit=event.permit)}
            _label(state, event.labels)
        case CallFinished() | CallLost() | CallDropped():
            _close(state, event.call)
        case PeerMessageSent():
            state.sent = {**state.sent, event.message: event.team}
        case PeerAnswerTaken():
            state.sent = _without(state.sent, event.answer.message)
            _label(state, event.answer.labels)
            state.spent.add(event.answer.usage)
        case PeerAnswered():
            _answered(state, event.answer.message)
        case ModelRequested():
            state.requests = {**state.requests, event.request: event.turn}
            state.spent.steps += 1
        case ModelResponded():
            state.requests = _without(state.requests, event.request)
            state.spent.add(event.usage)
        case ContextMeasured():
            state.context_used, state.context_size, state.context_measured = event.used, event.size, event.measured
        case WorkTimed():
            state.spent.seconds += event.seconds
        case ApprovalAsked():
            _ask(state, event)
        case ApprovalAnswered():
            if event.granted:
                _answer(state, event)
            how = Settlement.GRANTED if event.granted else Settlement.DENIED
            _settle(state, event.approval, how, str(event.by), event.at)
        case CallDenied():
            state.totals.denials += 1
            _close(state, event.call)
        case ModelFailed():
            state.requests = _without(state.requests, event.request)
            if event.usage.input_tokens or event.usage.output_tokens:
                state.spent.add(event.usage)
        case TurnResumed():
            state.turn, state.turn_waits, state.parked_on = event.turn, False, ()
        case InterruptAsked():
            state.interrupting = True
        case MessageWithdrawn():
            state.queue = tuple(message for message in state.queue if message != event.message)
        case PeerAnswerHeld():
            state.owed = {**state.owed, event.answer.message: event.answer}
        case DenialsCounted():
            state.totals.uncounted_denials += event.count
        case ApprovalJoined():
            _join(state, event)
        case ApprovalExpired():
            _settle(state, event.approval, Settlement.EXPIRED, "its deadline", event.at)
        case ApprovalWithdrawn():
            _settle(state, event.approval, Settlement.WITHDRAWN, event.why, event.at)
        case GrantGiven():
            state.grants = {**state.grants, event.grant.id: event.grant}
        case GrantUsed() | GrantRevoked():
            state.grants = _without(state.grants, event.grant)
        case SessionOpened():
            state.opened = event
            state.name, state.model, state.mode, state.limits = event.name, event.model, event.mode, event.limits
        case SessionReady():
            state.ready = True
        case SessionRenamed():
            state.name = event.name
        case SessionClosed():
            state.closed = event.reason
        case ModeChanged():
            state.mode = event.mode
        case ModelChanged():
            state.model = event.model
        case RuleDisabled():
            state.disabled |= {event.rule}
        case RuleEnabled():
            state.disabled -= {event.rule}
        case LabelsAdded():
            _label(state, event.labels)
        case RouteAdded():
            if event.route not in state.routes:
                state.routes = (*state.routes, event.route)
        case RouteRemoved():
            state.routes = tuple(route for route in state.routes if route != event.route)
        case BudgetWarned():
            state.warned |= {event.kind}
        case BudgetExhausted():
            state.exhausted |= {event.kind}
        case BudgetRaised():
            now = getattr(state.limits, event.kind.value)
            state.limits = state.limits.model_copy(update={event.kind.value: type(now)(event.limit)})
            state.warned -= {event.kind}
            state.exhausted -= {event.kind}
        case SpendingCounted():
            state.elsewhere = Spent()
            state.elsewhere.add(event.usage)
        case CompactionAsked():
            state.compaction_asked = event.instructions
        case HistoryCompacted() | CompactionSkipped():
            state.compaction_asked, state.compacted_at = None, state.totals.messages
        case CompactionSet():
            state.compaction, state.compaction_set = event.threshold, True
        case ProgramSaved() | ProgramFinished() | InstructionsPinned():
            pass
        case ExtensionNoted() | LoopDetected() | SessionDeleted() | RouteSet() | HistoryInherited():
            pass
        case _:
            assert_never(event)


def _without(held: Mapping[K, V], key: K) -> Mapping[K, V]:
    return {other: value for other, value in held.items() if other != key} if key in held else held


def _answered(state: SessionState, message: MessageId) -> None:
    state.peers = _without(state.peers, message)
    state.expiries = _without(state.expiries, message)
    state.owed = _without(state.owed, message)
    state.queue = tuple(waiting for waiting in state.queue if waiting != message)


def _label(state: SessionState, sources: tuple[LabelSource, ...]) -> None:
    # INVARIANT: a label is never lost, and the first cause is kept.
    if sources:
        labels = dict(state.labels)
        for source in sources:
            labels.setdefault(source.label, source)
        state.labels = labels


def _ask(state: SessionState, event: ApprovalAsked) -> None:
    state.totals.asks += 1
    call = state.calls[event.call]
    state.recent_asks = remember_ask(state.recent_asks, event.at)
    state.approvals = {**state.approvals, event.approval: OpenApproval(asked=event, calls=(event.call,))}
    _wait_for(state, event.call, call, event.approval, event.at)


def _join(state: SessionState, event: ApprovalJoined) -> None:
    approval, call = state.approvals[event.approval], state.calls[event.call]
    state.approvals = {**state.approvals, event.approval: approval._replace(calls=(*approval.calls, event.call))}
    _wait_for(state, event.call, call, event.approval, event.at)


def _wait_for(state: SessionState, name: CallId, call: OpenCall, approval: ApprovalId, at: Millis) -> None:
    state.calls = {**state.calls, name: call._replace(standing=Standing.ASKED, approval=approval, covers=())}
    if call.subject.effect is ToolEffect.INSPECT:
        state.repeats = remember_repeat(state.repeats, call.subject.digest, at)


def _answer(state: SessionState, event: ApprovalAnswered) -> None:
    found = state.approvals[event.approval]
    primary = found.calls[0]
    call = state.calls[primary]._replace(standing=Standing.ANSWERED, covers=found.asked.covers, answered_by=event.by)
    state.calls = {**state.calls, primary: call}


def _settle(state: SessionState, approval: ApprovalId, how: Settlement, by: str, at: Millis) -> None:
    state.approvals = _without(state.approvals, approval)
    state.settled = newest({**state.settled, approval: Settled(how, by, at)}, SETTLED_KEPT)


def _close(state: SessionState, call: CallId) -> None:
    closed = state.calls.get(call)
    if closed is None:
        return
    state.calls = _without(state.calls, call)
    if closed.approval is None:
        return
    approval = state.approvals.get(closed.approval)
    if approval is not None:
        left = approval._replace(calls=tuple(other for other in approval.calls if other != call))
        state.approvals = {**state.approvals, closed.approval: left}
    elif closed.standing is Standing.ANSWERED:
        # An answer that was not used goes to the next call that had joined the question.
        for other, heir in state.calls.items():
            if heir.approval == closed.approval and heir.standing is Standing.ASKED:
                answered = heir._replace(standing=Standing.ANSWERED, covers=closed.covers, answered_by=closed.answered_by)
                state.calls = {**state.calls, other: answered}
                return
