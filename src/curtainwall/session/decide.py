"""Command in, events out. Every transition of a session is here or one call away; a refusal changes nothing."""

from itertools import takewhile
from typing import Final, TypeGuard, assert_never

from curtainwall import policy
from curtainwall.model import (
    HOUSE_CHANNELS,
    OUTSIDE,
    SYSTEM,
    AddLabels,
    AddRoute,
    AnswerApproval,
    AnyCommand,
    AnyEvent,
    ApprovalWithdrawn,
    AskCompaction,
    BudgetRaised,
    CallDropped,
    CallLost,
    CallPermitted,
    ChangeMode,
    ChangeModel,
    Closed,
    CloseSession,
    CommandRefused,
    CompactionAsked,
    CompactionSet,
    CountDenials,
    CountSpending,
    DeliverMessage,
    DenialsCounted,
    DisableRule,
    DropCall,
    EnableRule,
    EndTurn,
    ExpireApprovals,
    ExpireMessages,
    FinishCall,
    HistoryInherited,
    InheritHistory,
    InterruptAsked,
    InterruptTurn,
    LabelsAdded,
    MessageAccepted,
    MessageId,
    MessagePeer,
    MessageWithdrawn,
    Mode,
    ModeChanged,
    ModelChanged,
    ModelEvent,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    Moment,
    NotAllowed,
    NotReady,
    OpenSession,
    PeerStatus,
    ProceedCall,
    Progress,
    RaiseBudget,
    ReadySession,
    RecordProgress,
    RefuseCall,
    RemoveRoute,
    RenameSession,
    ReopenSession,
    RepairSession,
    RequestCall,
    RequestsRefused,
    ResumeTurn,
    RevokeGrant,
    RouteAdded,
    RouteRemoved,
    RuleDisabled,
    RuleEnabled,
    SendHeldAnswer,
    SendMessage,
    SessionClosed,
    SessionOpened,
    SessionReady,
    SessionRenamed,
    SessionReopened,
    SetCompaction,
    SpendingCounted,
    StartTurn,
    TakePeerAnswer,
    TurnEnded,
    TurnId,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    WithdrawMessage,
    WithholdAnswer,
    Workspace,
    works_on_view,
)
from curtainwall.session import answers, calls, peers
from curtainwall.session.evolve import fold
from curtainwall.session.limits import budget_events
from curtainwall.session.open_work import CallStatus
from curtainwall.session.repair import closers
from curtainwall.session.rules import Rules
from curtainwall.session.state import SessionState, is_application

MOST_LETTERS: Final = 200
TASK_DONE: Final = "done"
"""The reason when a session ends automatically because its single task is done."""


def require_short_name(name: str) -> None:
    """Refuse a name that is too long for a list."""
    if len(name) > MOST_LETTERS:
        raise CommandRefused(f"a name has {MOST_LETTERS} letters at most, and this one has {len(name):,}; choose a shorter one")


_BEFORE_READY = (ReadySession, InheritHistory, CloseSession, RepairSession, AddLabels, AddRoute, RemoveRoute, RenameSession)
# The events of these commands must also be listed in `_AFTER_CLOSE` of `replay.py`.
# Raising a budget in a closed session counts for the sessions that share it.
_AFTER_CLOSE = (RepairSession, RenameSession, ReopenSession, RevokeGrant, ExpireApprovals, DeliverMessage, TakePeerAnswer, RaiseBudget)
_CONTROL = (
    ChangeMode,
    ChangeModel,
    DisableRule,
    EnableRule,
    RaiseBudget,
    RenameSession,
    CloseSession,
    ReopenSession,
    AddRoute,
    RemoveRoute,
)

DecidedByLog = AnswerApproval | ExpireApprovals | RepairSession
"""The commands that can be decided without rules."""


def is_decided_by_log(command: AnyCommand) -> TypeGuard[DecidedByLog]:
    """Tell whether a decision needs no rules: a repair, an expiry, or an answer given on this machine, where everyone may answer."""
    return isinstance(command, RepairSession | ExpireApprovals) or (
        isinstance(command, AnswerApproval) and command.by.channel in HOUSE_CHANNELS
    )


def decide_by_log(state: SessionState, command: DecidedByLog, moment: Moment) -> tuple[AnyEvent, ...]:
    """Do the same as `decide` for a command that needs no rules."""
    _require_open(state, command)
    return _by_log(state, command, moment)


def decide(state: SessionState, command: AnyCommand, rules: Rules, moment: Moment) -> tuple[AnyEvent, ...]:
    """Return the events that the command causes, or raise `CommandRefused` and change nothing."""
    _may(state, command, rules)
    at, by = moment.at, command.by
    # Frequent commands first: each case that does not match costs time.
    match command:
        case RequestCall():
            return _with_message(state, command, calls.request(state, command, rules, moment), rules, moment)
        case FinishCall():
            return calls.finish(state, command, moment)
        case StartTurn():
            return _start_turn(state, command, moment)
        case EndTurn():
            if state.turn != command.turn:
                raise CommandRefused(f"turn `{command.turn}` is not running")
            progress, then = _progress(state, command.last, moment) if command.last else ((), state)
            return (*progress, *_end_turn(then, command, rules, moment))
        case RecordProgress():
            return _progress(state, command.events, moment)[0]
        case SendMessage():
            message = MessageAccepted(
                at=at, message=command.message, text=command.text, by=by, role=command.role, proven=command.proven, once=command.once
            )
            return (message,)
        case DeliverMessage():
            return peers.receive(state, command, rules, moment)
        case TakePeerAnswer():
            return (*peers.take(state, command, moment), *_cost_of(state, command, moment))
        case OpenSession():
            return _open(command, moment)
        case ReadySession():
            return () if state.ready else (SessionReady(at=at),)
        case InheritHistory():
            return (
                HistoryInherited(
                    at=at,
                    parent=command.parent,
                    upto=command.upto,
                    history=command.history,
                    how=command.how,
                    git_directory=command.git_directory,
                ),
            )
        case RenameSession():
            if not command.name.strip():
                raise CommandRefused("a name cannot be empty")
            require_short_name(command.name)
            return (SessionRenamed(at=at, name=command.name, by=by),)
        case CloseSession():
            return _close(state, command, moment)
        case ReopenSession():
            return _reopen(state, command, moment)
        case ChangeMode():
            assert state.opened is not None
            _require_view(rules, state.opened.agent, state.workspace, command.mode)
            return () if command.mode is state.mode else (ModeChanged(at=at, mode=command.mode, by=by),)
        case ChangeModel():
            return (ModelChanged(at=at, model=command.model, by=by),)
        case DisableRule():
            if rules.policy.card(command.rule) is None:
                raise NotAllowed(f"there is no rule `{command.rule}`; `/rules` lists them")
            if not policy.may_disable(rules.policy, command.rule):
                raise NotAllowed(f"rule `{command.rule}` does not ask; only a rule that asks can be disabled")
            return (RuleDisabled(at=at, rule=command.rule, by=by),)
        case EnableRule():
            if command.rule not in state.disabled:
                raise CommandRefused(f"rule `{command.rule}` is not disabled")
            return (RuleEnabled(at=at, rule=command.rule, by=by),)
        case AddLabels():
            return (LabelsAdded(at=at, labels=command.labels),) if command.labels else ()
        case AddRoute():
            return () if command.route in state.routes else (RouteAdded(at=at, route=command.route, by=by),)
        case RemoveRoute():
            return (RouteRemoved(at=at, route=command.route, by=by),) if command.route in state.routes else ()
        case ResumeTurn():
            if state.turn != command.turn or not state.turn_waits:
                raise CommandRefused(f"turn `{command.turn}` does not wait")
            return (TurnResumed(at=at, turn=command.turn),)
        case InterruptTurn():
            return _interrupt(state, command, moment)
        case WithdrawMessage():
            if command.message not in state.queue:
                raise CommandRefused(f"message `{command.message}` does not wait any more")
            progress = peers.unanswerable(state, (command.message,), PeerStatus.WITHDRAWN, f"it was taken back by {by}", at)
            return (MessageWithdrawn(at=at, message=command.message, by=by), *progress)
        case MessagePeer():
            return peers.send(state, command, rules, moment)
        case SendHeldAnswer():
            return peers.send_held(state, command, moment)
        case WithholdAnswer():
            return peers.withhold(state, command, moment)
        case ExpireMessages():
            return peers.expire(state, moment)
        case AskCompaction():
            return (CompactionAsked(at=at, instructions=command.instructions, by=by),)
        case SetCompaction():
            if command.threshold is not None and not 0 < command.threshold <= 1:
                raise CommandRefused("the threshold is a share of the context: above 0, at most 1")
            return (CompactionSet(at=at, threshold=command.threshold, by=by),)
        case RefuseCall():
            return calls.refuse(state, command, rules, moment)
        case ProceedCall():
            return calls.proceed(state, command, rules, moment)
        case DropCall():
            return calls.drop(state, command, moment)
        case CountDenials():
            return (DenialsCounted(at=at, count=command.count),) if command.count > 0 else ()
        case AnswerApproval():
            rules.require_operator(by, "answer")
            return _by_log(state, command, moment)
        case ExpireApprovals() | RepairSession():
            return _by_log(state, command, moment)
        case RevokeGrant():
            return answers.revoke(state, command, rules, moment)
        case RaiseBudget():
            return _raise_budget(state, command, moment)
        case CountSpending():
            return _count_spending(state, command, moment)
        case _:
            assert_never(command)


def _by_log(state: SessionState, command: DecidedByLog, moment: Moment) -> tuple[AnyEvent, ...]:
    match command:
        case AnswerApproval():
            return answers.answer(state, command, moment)
        case ExpireApprovals():
            return answers.expire(state, command, moment)
        case RepairSession():
            return _repair(state, moment)
        case _:
            assert_never(command)


def _may(state: SessionState, command: AnyCommand, rules: Rules) -> None:
    if isinstance(command, OpenSession):
        if state.opened is not None:
            raise CommandRefused("this session was opened before")
        if command.mode in (Mode.ACCEPT_EDITS, Mode.BYPASS):
            rules.require_operator(command.by, f"open in mode `{command.mode}`")
        _require_view(rules, command.agent, command.workspace, command.mode)
        return
    _require_open(state, command)
    if isinstance(command, _CONTROL):
        rules.require_operator(command.by)


def _require_view(rules: Rules, agent: str, workspace: Workspace, mode: Mode) -> None:
    """Refuse a mode in which this agent would have to work on a view of the project, if it cannot."""
    if works_on_view(workspace, mode) and agent not in rules.view_agents:
        raise CommandRefused(f"the agent `{agent}` cannot work in mode `{mode}` in a project yet; use `ask`, where each edit asks")


def _require_open(state: SessionState, command: AnyCommand) -> None:
    """Refuse a command that comes too early or too late in the session's life."""
    if state.opened is None:
        raise NotReady("there is no such session: it was never opened, or was deleted")
    if state.closed is not None and not isinstance(command, (*_AFTER_CLOSE, FinishCall)):
        # For a late answer, the outcome of its approval is a better refusal than that the session is closed.
        if isinstance(command, AnswerApproval) and command.approval in state.settled:
            return
        # The proxy reports its refusals in batches, and the session may have ended with its task before the last batch.
        if isinstance(command, RecordProgress) and all(isinstance(event, RequestsRefused) for event in command.events):
            return
        raise Closed(f"this session is closed: {state.closed}")
    if not state.ready and not isinstance(command, _BEFORE_READY):
        raise NotReady("this session is still opening")


def _open(command: OpenSession, moment: Moment) -> tuple[AnyEvent, ...]:
    opened = SessionOpened(
        at=moment.at,
        session=command.session,
        name=command.name,
        agent=command.agent,
        model=command.model,
        channel=command.channel or command.by.channel,
        workspace=command.workspace,
        mode=command.mode,
        limits=command.limits,
        policy=command.policy,
        by=command.by,
        parent=command.parent,
        team=command.team,
        job=command.job,
        hook=command.hook,
    )
    labels = (LabelsAdded(at=moment.at, labels=command.labels),) if command.labels else ()
    routes = (RouteAdded(at=moment.at, route=route, by=command.by) for route in command.routes)
    return (opened, *labels, *routes)


def _interrupt(state: SessionState, command: InterruptTurn, moment: Moment) -> tuple[AnyEvent, ...]:
    if state.turn is None:
        raise CommandRefused("nothing runs here")
    if command.turn not in (None, state.turn):
        raise CommandRefused(f"turn `{command.turn}` is over; another one runs now")
    if not state.turn_waits:
        return () if state.interrupting else (InterruptAsked(at=moment.at, turn=state.turn, by=command.by),)
    why = f"interrupted by {command.by}"
    ended = TurnEnded(at=moment.at, turn=state.turn, status=TurnStatus.INTERRUPTED, failure=why)
    replies = peers.answers(state, TurnStatus.INTERRUPTED, why, None, moment)
    return (*_dropped(state, moment, why, state.turn), *replies, ended)


def _with_message(
    state: SessionState, command: RequestCall, events: tuple[AnyEvent, ...], rules: Rules, moment: Moment
) -> tuple[AnyEvent, ...]:
    """Return a call's events with its message, if that may leave now; otherwise the runner of the call gets the reason."""
    if command.along is None or not any(isinstance(event, CallPermitted) for event in events):
        return events
    try:
        return (*events, *peers.send(fold(events, state), command.along, rules, moment))
    except CommandRefused:
        return events


def _end_turn(state: SessionState, command: EndTurn, rules: Rules, moment: Moment) -> tuple[AnyEvent, ...]:
    at, status = moment.at, command.status
    ended = TurnEnded(at=at, turn=command.turn, status=status, failure=command.failure, fault=command.fault, waits_for=command.waits_for)
    if status is TurnStatus.WAITING:
        return (ended,)
    # Answers come first: the turn's text is no longer available after its end.
    replies = peers.answers(state, status, command.failure, rules, moment, fault=command.fault)
    events = (*replies, ended, *peers.compaction(state, rules, at))
    # INVARIANT: the end of a single task and of its session are one commit, so that no crash leaves the session open.
    if status is TurnStatus.DONE and state.once and fold(events, state).is_at_rest:
        return (*events, SessionClosed(at=at, reason=TASK_DONE, by=SYSTEM))
    return events


def _cost_of(state: SessionState, command: TakePeerAnswer, moment: Moment) -> tuple[AnyEvent, ...]:
    """Return the budget events that the cost of an answer causes; a closed session gets no warnings."""
    if state.closed is not None:
        return ()
    spent = state.spent.copy()
    spent.add(command.answer.usage)
    return budget_events(state, moment.at, spent)


def _count_spending(state: SessionState, command: CountSpending, moment: Moment) -> tuple[AnyEvent, ...]:
    counted = SpendingCounted(at=moment.at, usage=command.usage)
    after = fold((counted,), state)
    return () if after.elsewhere == state.elsewhere else (counted, *budget_events(after, moment.at))


def _repair(state: SessionState, moment: Moment) -> tuple[AnyEvent, ...]:
    closed = closers(state, moment.at)
    over = next((event for event in closed if isinstance(event, TurnEnded) and event.status is not TurnStatus.WAITING), None)
    replies = () if over is None else peers.answers(state, over.status, over.failure, None, moment)
    return (*replies, *closed)


def _dropped(state: SessionState, moment: Moment, why: str, turn: TurnId | None = None) -> tuple[AnyEvent, ...]:
    """Return the events that end every open call, or those of one turn, and the approvals that only these calls waited for."""
    at = moment.at
    # An interrupt does not leave accepted changes half applied: whoever takes the session over finishes that.
    going = {call: open_ for call, open_ in state.calls.items() if turn is None or (open_.turn == turn and not is_application(open_))}
    ended = (
        CallLost(at=at, call=call) if open_.standing is CallStatus.PERMITTED else CallDropped(at=at, call=call, why=why)
        for call, open_ in going.items()
    )
    withdrawn = (
        ApprovalWithdrawn(at=at, approval=approval, why=why)
        for approval, open_ in state.approvals.items()
        if all(call in going for call in open_.calls)
    )
    return (*ended, *withdrawn)


def _close(state: SessionState, command: CloseSession, moment: Moment) -> tuple[AnyEvent, ...]:
    if command.at_rest and not state.is_at_rest:
        raise CommandRefused(f"this session is not at rest: {_open_work_in_words(state)}")
    if state.applying is not None:
        raise CommandRefused(
            "accepted changes are being applied to the project; wait for that, or let `curtainwall start --resume ID` finish it"
        )
    at, why = moment.at, "the session was closed"
    failed = (ModelFailed(at=at, turn=turn, request=request, failure=why) for request, turn in state.requests.items())
    ended = (TurnEnded(at=at, turn=state.turn, status=TurnStatus.INTERRUPTED, failure=why),) if state.turn is not None else ()
    replies = peers.unanswerable(state, tuple(state.peers), PeerStatus.FAILED, why, at)
    closed = SessionClosed(at=at, reason=command.reason, by=command.by)
    return (*_dropped(state, moment, why), *failed, *replies, *ended, *_emptied_queue(state, command, moment), closed)


def _open_work_in_words(state: SessionState) -> str:
    asks, queued = len(state.approvals), len(state.queue)
    words = (
        "a turn waits" if state.turn_waits else "a turn runs" if state.turn is not None else "",
        f"{asks} {'asks wait' if asks > 1 else 'ask waits'} for an answer" if asks else "",
        f"{queued} {'messages are' if queued > 1 else 'message is'} queued" if queued else "",
    )
    return ", ".join(filter(None, words)) or "a call or an answer is still open"


def _reopen(state: SessionState, command: ReopenSession, moment: Moment) -> tuple[AnyEvent, ...]:
    if state.closed is None:
        return ()
    assert state.opened is not None
    if state.opened.agent == OUTSIDE or state.opened.team:
        raise Closed(f"this session is closed: {state.closed}; the next call or question opens another")
    # Older versions left messages in the queue of a closed session; a person who reopens it does not mean those.
    return (*_emptied_queue(state, command, moment), SessionReopened(at=moment.at, by=command.by))


def _emptied_queue(state: SessionState, command: CloseSession | ReopenSession, moment: Moment) -> tuple[AnyEvent, ...]:
    """Return the withdrawal of every queued message from people; messages from teams already have their answer."""
    return tuple(MessageWithdrawn(at=moment.at, message=message, by=command.by) for message in state.queue if message not in state.peers)


def _start_turn(state: SessionState, command: StartTurn, moment: Moment) -> tuple[AnyEvent, ...]:
    if state.turn is not None:
        raise CommandRefused(f"turn `{state.turn}` is still {'waiting' if state.turn_waits else 'running'}")
    if not state.queue:
        raise CommandRefused("there is no message to take up")
    return (TurnStarted(at=moment.at, turn=command.turn, messages=_next_messages(state)),)


def _next_messages(state: SessionState) -> tuple[MessageId, ...]:
    """Return the messages for one turn: all before the first message of a team, or that one alone, because it gets its own answer."""
    if state.queue[0] in state.peers:
        return (state.queue[0],)
    return tuple(takewhile(lambda message: message not in state.peers, state.queue))


def _progress(state: SessionState, events: tuple[Progress, ...], moment: Moment) -> tuple[tuple[AnyEvent, ...], SessionState]:
    """Return the agent's events with the budget events that they cause, and the state after them."""
    open_ = set(state.requests)
    for event in events:
        if not isinstance(event, ModelEvent):
            continue
        match event:
            case ModelRequested():
                if event.request in open_:
                    raise CommandRefused(f"request `{event.request}` was made before")
                open_.add(event.request)
            case ModelResponded() | ModelFailed():
                if event.request not in open_:
                    raise CommandRefused(f"there is no open request `{event.request}`")
                open_.remove(event.request)
            case _:
                assert_never(event)
    then = fold(events, state)
    news = budget_events(then, moment.at)
    return (*events, *news), fold(news, then) if news else then


def _raise_budget(state: SessionState, command: RaiseBudget, moment: Moment) -> tuple[AnyEvent, ...]:
    now: float = getattr(state.limits, command.kind.value)
    limit = type(now)(command.limit)
    if limit <= now:
        raise CommandRefused(f"the {command.kind} budget is already {now:,}, and it can only be raised")
    raised = BudgetRaised(at=moment.at, kind=command.kind, limit=limit, by=command.by)
    if state.closed is not None:
        return (raised,)
    # If the raise is too small, the budget is still exhausted, and an event says so.
    return (raised, *budget_events(fold((raised,), state), moment.at))
