"""Applies events to a session's state."""

from collections.abc import Iterable
from typing import assert_never

from curtainwall.model import (
    APPLY_CHANGES,
    SET_WORKING_DIR,
    TAKES_BACK,
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
    RequestsRefused,
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
    SessionReopened,
    Settlement,
    SpendingCounted,
    TextStreamed,
    ToolEffect,
    ToolUsesReported,
    TurnEnded,
    TurnResumed,
    TurnStarted,
    WorkTimed,
)
from curtainwall.session.limits import newest, remember_ask, remember_repeat
from curtainwall.session.open_work import advance, without
from curtainwall.session.state import SETTLED_KEPT, ChangeProposal, SessionState, Settled, Spent


def evolve(state: SessionState, event: AnyEvent) -> SessionState:
    """Return the state after the event; the given state is not changed."""
    return fold((event,), state)


def fold(events: Iterable[AnyEvent], state: SessionState | None = None) -> SessionState:
    """Return the state after all the events, like evolving one by one but without a copy for each.

    Raise `Broken` for an event about a call or an approval that is not open: such a log is damaged.
    """
    new = SessionState() if state is None else state.copy()
    try:
        for event in events:
            apply(new, event)
    except LookupError:
        raise Broken(f"event {new.totals.events} of this log does not fit what came before it; `sessions replay` says more") from None
    return new


def apply(state: SessionState, event: AnyEvent) -> None:
    """Apply an event in place; no one else may hold this state."""
    state.totals.events += 1
    # Frequent events first: each case that does not match costs time.
    match event:
        case TextStreamed():
            if state.peers and event.turn == state.turn:
                state.partial += event.text
        case AgentSpoke():
            if event.turn != state.turn:
                # Late text belongs to its own turn and must not become the answer of another.
                pass
            elif state.peers and event.ours:
                state.notes = (*state.notes, event.text)
            elif state.peers:
                state.spoken = f"{state.spoken}\n\n{event.text}" if state.spoken else event.text
                state.partial = ""
        case MessageAccepted():
            state.totals.messages += 1
            if event.role == "human":
                state.queue, state.repeats, state.once = (*state.queue, event.message), {}, event.once
            if event.peer is not None:
                state.peers = {**state.peers, event.message: event.peer}
                if event.expires is not None:
                    state.expiries = {**state.expiries, event.message: event.expires}
        case TurnStarted():
            state.totals.turns += 1
            advance(state, event)
            taken = frozenset(event.messages)
            state.queue = tuple(message for message in state.queue if message not in taken)
            state.turn_messages, state.turn_began = event.messages, state.spent.copy()
            state.spoken, state.partial, state.notes = "", "", ()
        case TurnEnded():
            advance(state, event)
            if not state.turn_waits:
                state.turn_messages, state.turn_began = (), None
                state.spoken, state.partial, state.notes = "", "", ()
        case CallRequested():
            state.totals.calls += 1
            advance(state, event)
            if event.subject.effect is not ToolEffect.INSPECT:
                state.repeats = remember_repeat(state.repeats, event.subject.digest, event.at)
            # What an agent asks for under this name is refused, and has no card.
            # Taking back what was accepted is no proposal of the agent's.
            is_proposal = event.subject.changes is not None and TAKES_BACK not in event.subject.canonical
            if event.subject.tool == APPLY_CHANGES and is_proposal:
                state.proposal = ChangeProposal(event.call, str(event.subject.canonical.get("changes", "")), event.turn)
        case CallPermitted():
            advance(state, event)
            _label(state, event.labels)
            _propose(state, event.call, is_accepted=True, only=event.only)
        case CallFinished():
            if event.ok:
                _choose_git_directory(state, event.call)
            advance(state, event)
            _propose(state, event.call, is_over=True)
        case CallLost() | CallDropped():
            advance(state, event)
            _propose(state, event.call, is_over=True)
        case PeerMessageSent():
            state.sent = {**state.sent, event.message: event.team}
        case PeerAnswerTaken():
            state.sent = without(state.sent, event.answer.message)
            _label(state, event.answer.labels)
            state.spent.add(event.answer.usage)
        case PeerAnswered():
            _answered(state, event.answer.message)
        case ModelRequested():
            state.requests = {**state.requests, event.request: event.turn}
            state.spent.steps += 1
        case ModelResponded():
            state.requests = without(state.requests, event.request)
            state.spent.add(event.usage)
        case ContextMeasured():
            state.context_used, state.context_size, state.context_measured = event.used, event.size, event.measured
        case WorkTimed():
            state.spent.seconds += event.seconds
        case ApprovalAsked():
            state.totals.asks += 1
            state.recent_asks = remember_ask(state.recent_asks, event.at)
            _wait(state, event)
        case ApprovalAnswered():
            if event.granted:
                _require_open(state, event.approval)
            how = Settlement.GRANTED if event.granted else Settlement.DENIED
            if not event.granted and state.proposal is not None and state.proposal.call in _calls_of(state, event.approval):
                _propose(state, state.proposal.call, is_denied=True, comment=event.reason, discards=event.discard)
            _settle(state, event, how, str(event.by))
        case CallDenied():
            state.totals.denials += 1
            advance(state, event)
            _propose(state, event.call, is_over=True)
        case ModelFailed():
            state.requests = without(state.requests, event.request)
            if event.usage.input_tokens or event.usage.output_tokens:
                state.spent.add(event.usage)
        case TurnResumed() | InterruptAsked() | ProgramSaved() | ProgramFinished():
            advance(state, event)
        case MessageWithdrawn():
            state.queue = tuple(message for message in state.queue if message != event.message)
        case PeerAnswerHeld():
            state.owed = {**state.owed, event.answer.message: event.answer}
        case DenialsCounted():
            state.totals.uncounted_denials += event.count
        case ApprovalJoined():
            _ = state.approvals[event.approval]
            _wait(state, event)
        case ApprovalExpired():
            _settle(state, event, Settlement.EXPIRED, "its deadline")
        case ApprovalWithdrawn():
            _settle(state, event, Settlement.WITHDRAWN, event.why)
        case GrantGiven():
            state.grants = {**state.grants, event.grant.id: event.grant}
        case GrantUsed() | GrantRevoked():
            state.grants = without(state.grants, event.grant)
        case SessionOpened():
            state.opened = event
            state.name, state.model, state.mode, state.limits = event.name, event.model, event.mode, event.limits
        case SessionReady():
            state.ready = True
        case SessionRenamed():
            state.name = event.name
        case SessionClosed():
            state.closed, state.once = event.reason, False
        case SessionReopened():
            state.closed, state.reopened = None, state.reopened + 1
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
        case HistoryInherited():
            state.git_directory = event.git_directory
        case (
            RequestsRefused()
            | ToolUsesReported()
            | ExtensionNoted()
            | LoopDetected()
            | SessionDeleted()
            | RouteSet()
            | InstructionsPinned()
        ):
            pass
        case _:
            assert_never(event)


def _answered(state: SessionState, message: MessageId) -> None:
    state.peers = without(state.peers, message)
    state.expiries = without(state.expiries, message)
    state.owed = without(state.owed, message)
    state.queue = tuple(waiting for waiting in state.queue if waiting != message)


def _calls_of(state: SessionState, approval: ApprovalId) -> tuple[CallId, ...]:
    open_approval = state.approvals.get(approval)
    return () if open_approval is None else open_approval.calls


def _propose(state: SessionState, call: CallId, **changes: object) -> None:
    """Note how the answer to the last change set goes on, if this is its call."""
    if state.proposal is not None and state.proposal.call == call:
        state.proposal = state.proposal._replace(**changes)


def _choose_git_directory(state: SessionState, call: CallId) -> None:
    finished = state.calls.get(call)
    if finished is not None and finished.subject.tool == SET_WORKING_DIR:
        path = finished.subject.canonical.get("path")
        state.git_directory = path if isinstance(path, str) else ""


def _label(state: SessionState, sources: tuple[LabelSource, ...]) -> None:
    # INVARIANT: a label is never lost, and the first cause is kept.
    if sources:
        labels = dict(state.labels)
        for source in sources:
            labels.setdefault(source.label, source)
        state.labels = labels


def _wait(state: SessionState, event: ApprovalAsked | ApprovalJoined) -> None:
    subject = state.calls[event.call].subject
    advance(state, event)
    if subject.effect is ToolEffect.INSPECT:
        state.repeats = remember_repeat(state.repeats, subject.digest, event.at)


def _require_open(state: SessionState, approval: ApprovalId) -> None:
    """Raise `LookupError` if an approval, or the call that it is for, is not open."""
    _ = state.calls[state.approvals[approval].calls[0]]


def _settle(state: SessionState, event: ApprovalAnswered | ApprovalExpired | ApprovalWithdrawn, how: Settlement, by: str) -> None:
    advance(state, event)
    state.settled = newest({**state.settled, event.approval: Settled(how, by, event.at)}, SETTLED_KEPT)
