"""The session's own transitions: what may happen when, and what a refusal says."""

import pytest

from curtainwall.model import (
    ALL_GRANTS,
    OUTSIDE,
    SYSTEM,
    AddLabels,
    AddRoute,
    AgentSpoke,
    AlreadyAnswered,
    AnswerApproval,
    AnyCommand,
    ApprovalAsked,
    ApprovalId,
    ApprovalWithdrawn,
    AskCompaction,
    BlobRef,
    BudgetExhausted,
    BudgetKind,
    CallDropped,
    CallId,
    CallLost,
    CallPermitted,
    CallRequested,
    ChangeMode,
    ChangeModel,
    Closed,
    CloseSession,
    Command,
    CompactionAsked,
    CompactionSet,
    CompactionSkipped,
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
    GrantScope,
    HistoryInherited,
    InheritHistory,
    InterruptAsked,
    InterruptTurn,
    LabelsAdded,
    Limits,
    MessageAccepted,
    MessageId,
    MessagePeer,
    MessageWithdrawn,
    Mode,
    ModeChanged,
    ModelChanged,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    NotAllowed,
    NotFound,
    NotReady,
    OpenSession,
    Payload,
    Peer,
    PeerAnswer,
    PeerStatus,
    PermitId,
    ProceedCall,
    ProgramSaved,
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
    Route,
    RouteAdded,
    RouteRemoved,
    RuleDisabled,
    RuleEnabled,
    RuleId,
    SavedProgram,
    SendHeldAnswer,
    SendMessage,
    SessionClosed,
    SessionId,
    SessionReady,
    SessionRenamed,
    SessionReopened,
    SetCompaction,
    StartTurn,
    TakePeerAnswer,
    TextStreamed,
    TurnEnded,
    TurnId,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    Usage,
    Who,
    WithdrawMessage,
    WithholdAnswer,
    denial,
)
from curtainwall.session import Phase, replay
from tests.support.covers import covers
from tests.support.given import (
    ANN,
    EVE,
    NOW,
    OLGA,
    OWN,
    POLICY,
    SESSION,
    TURN,
    answer,
    asked,
    given,
    like,
    opened,
    proceed,
    push,
    read,
    ready,
    requested,
    source,
    turn_running,
    wish,
    write,
)

PUSH = wish("c1", push("github.com/me/r"))
LOOK = wish("c2", read("/srv/own/a"))
ROOM = Route(channel="matrix", reference="!room")
MESSAGE = MessageId("m1")
CLOSED = SessionClosed(at=NOW, reason="that was all", by=ANN)

OPEN = OpenSession(
    by=OLGA,
    session=SESSION,
    name="a session",
    agent="builtin",
    model="demo",
    workspace=OWN,
    mode=Mode.DEFAULT,
    limits=Limits(),
    policy=POLICY.version,
)


def progress(*events: object) -> RecordProgress:
    return RecordProgress(by=SYSTEM, events=events)


def model_request(request: str = "r1") -> ModelRequested:
    return ModelRequested(at=NOW, turn=TURN, request=request, base=None, added=Payload(inline="hi"), model="demo")


def model_response(request: str = "r1", usage: Usage | None = None) -> ModelResponded:
    return ModelResponded(at=NOW, turn=TURN, request=request, raw=Payload(), normalised=Payload(), usage=usage or Usage())


def every_command(by: Who = SYSTEM) -> list[AnyCommand]:
    """Return one of each, apart from opening."""
    return [
        InheritHistory(by=by, parent=SessionId("s0"), upto=3, history=None, how="fork"),
        ReadySession(by=by),
        RenameSession(by=by, name="another"),
        CloseSession(by=by, reason="enough"),
        ReopenSession(by=by),
        ChangeMode(by=by, mode=Mode.PLAN),
        ChangeModel(by=by, model="other"),
        DisableRule(by=by, rule=RuleId("read-outside")),
        EnableRule(by=by, rule=RuleId("read-outside")),
        AddLabels(by=by, labels=(source("sensitive"),)),
        AddRoute(by=by, route=ROOM),
        RemoveRoute(by=by, route=ROOM),
        SendMessage(by=by, message=MESSAGE, text="hello"),
        StartTurn(by=by, turn=TURN),
        ResumeTurn(by=by, turn=TURN),
        progress(AgentSpoke(at=NOW, turn=TURN, text="hi")).model_copy(update={"by": by}),
        EndTurn(by=by, turn=TURN, status=TurnStatus.DONE),
        WithdrawMessage(by=by, message=MESSAGE),
        MessagePeer(by=by, message=MESSAGE, to=SessionId("s2"), team="backend", text="hello"),
        DeliverMessage(by=by, message=MESSAGE, text="hello", peer=Peer(session=SessionId("s2"), team="mobile", path=("mobile",))),
        SendHeldAnswer(by=by, message=MESSAGE),
        WithholdAnswer(by=by, message=MESSAGE, why="no"),
        TakePeerAnswer(by=by, answer=PeerAnswer(message=MESSAGE, status=PeerStatus.DONE, text="hi")),
        ExpireMessages(by=by),
        InterruptTurn(by=by),
        AskCompaction(by=by),
        SetCompaction(by=by, threshold=0.5),
        requested(LOOK).model_copy(update={"by": by}),
        RefuseCall(by=by, call=CallId("c9"), subject=LOOK.subject, verdict=denial("unknown-tool", "no")),
        proceed(PUSH).model_copy(update={"by": by}),
        FinishCall(by=by, call=PUSH.call, permit=PermitId("p"), ok=True, result=Payload()),
        DropCall(by=by, call=PUSH.call, why="gone"),
        CountDenials(by=by, count=3),
        answer(PUSH, by=by),
        ExpireApprovals(by=by),
        RevokeGrant(by=by, grant=PUSH.grant),
        RaiseBudget(by=by, kind=BudgetKind.STEPS, limit=1_000),
        CountSpending(by=by, usage=Usage(input_tokens=1)),
        RepairSession(by=by),
    ]


EARLY = (InheritHistory, ReadySession, RenameSession, CloseSession, AddLabels, AddRoute, RemoveRoute, RepairSession)
LATE = (RenameSession, RepairSession, ReopenSession, RevokeGrant, ExpireApprovals, FinishCall, DeliverMessage, TakePeerAnswer, RaiseBudget)
CONTROL = (
    AddRoute,
    AnswerApproval,
    ChangeMode,
    ChangeModel,
    CloseSession,
    DisableRule,
    EnableRule,
    RaiseBudget,
    RemoveRoute,
    RenameSession,
    ReopenSession,
    RevokeGrant,
)
"""Commands that only operators may give."""
FOR_EVERYBODY = (
    AddLabels,
    AskCompaction,
    CountDenials,
    CountSpending,
    DeliverMessage,
    DropCall,
    EndTurn,
    ExpireApprovals,
    ExpireMessages,
    FinishCall,
    InheritHistory,
    InterruptTurn,
    MessagePeer,
    ProceedCall,
    ReadySession,
    RecordProgress,
    RefuseCall,
    RepairSession,
    RequestCall,
    ResumeTurn,
    SendHeldAnswer,
    SendMessage,
    SetCompaction,
    StartTurn,
    TakePeerAnswer,
    WithdrawMessage,
    WithholdAnswer,
)
"""Commands that are decided without asking who gives them."""


def named(commands: list[AnyCommand]) -> list[object]:
    return [pytest.param(command, id=type(command).__name__) for command in commands]


def without(commands: list[AnyCommand], kinds: tuple[type[Command], ...]) -> list[AnyCommand]:
    return [command for command in commands if not isinstance(command, kinds)]


# The life of a session


def test_a_session_opens_with_its_labels_and_routes() -> None:
    command = OPEN.model_copy(update={"labels": (source("sensitive"),), "routes": (ROOM,)})
    here = (
        given()
        .when(command)
        .then(opened(by=OLGA), LabelsAdded(at=NOW, labels=(source("sensitive"),)), RouteAdded(at=NOW, route=ROOM, by=OLGA))
    )
    assert here.state.phase is Phase.OPENING
    assert here.state.workspace == OWN
    assert list(here.state.labels) == ["sensitive"]


def test_a_session_opens_once() -> None:
    given().when(OPEN).then(opened(by=OLGA)).when(OPEN).then_refused("this session was opened before")


@covers("session.not-ready-is-refused")
@pytest.mark.parametrize("command", named(every_command()))
def test_nothing_is_followed_in_a_session_that_was_never_opened(command: AnyCommand) -> None:
    given().when(command).then_refused("there is no such session: it was never opened, or was deleted", NotReady)


@covers("session.not-ready-is-refused")
@pytest.mark.parametrize("command", named(without(every_command(), EARLY)))
def test_an_opening_session_is_not_ready(command: AnyCommand) -> None:
    given(opened()).when(command).then_refused("this session is still opening", NotReady)


@pytest.mark.parametrize("command", named([command for command in every_command() if isinstance(command, EARLY)]))
def test_an_opening_session_can_be_made_ready_named_routed_and_closed(command: AnyCommand) -> None:
    assert given(opened()).when(command).refusal is None


@covers("session.closed-is-refused")
@pytest.mark.parametrize("command", named(without(every_command(), LATE)))
def test_a_closed_session_says_that_it_is_closed_and_why(command: AnyCommand) -> None:
    given(ready(), CLOSED).when(command).then_refused("this session is closed: that was all", Closed)


@pytest.mark.parametrize("command", named([command for command in every_command() if isinstance(command, LATE)]))
def test_what_still_happens_after_the_end_is_no_fault_in_a_replay(command: AnyCommand) -> None:
    outcome = given(ready(), CLOSED).when(command)
    assert replay((*outcome.before.log, *outcome.events), lambda _: None) == (), "name the event in `_AFTER_CLOSE` of `session/replay.py`"


def test_a_closed_session_can_still_be_renamed_by_an_operator() -> None:
    here = given(ready(), CLOSED)
    here.when(RenameSession(by=EVE, name="mine")).then_refused("`eve` is not an operator of `matrix`", NotAllowed)
    here.when(RenameSession(by=OLGA, name="ours")).then(SessionRenamed(at=NOW, name="ours", by=OLGA))


def test_what_comes_in_after_the_end_finds_nothing_open() -> None:
    here = given(ready(), CLOSED)
    here.when(RepairSession(by=SYSTEM)).then_nothing()
    here.when(ExpireApprovals(by=SYSTEM)).then_nothing()
    here.when(FinishCall(by=SYSTEM, call=PUSH.call, permit=PUSH.permit, ok=True, result=Payload())).then_refused("no open call", NotFound)


def test_a_session_becomes_ready_once() -> None:
    here = given(opened()).when(ReadySession(by=SYSTEM)).then(SessionReady(at=NOW))
    assert here.state.phase is Phase.READY
    here.when(ReadySession(by=SYSTEM)).then_nothing()


def test_a_fork_says_what_it_inherited() -> None:
    history = BlobRef(digest="d", size=3)
    command = InheritHistory(by=SYSTEM, parent=SessionId("s0"), upto=7, history=history, how="fork")
    inherited = HistoryInherited(at=NOW, parent=SessionId("s0"), upto=7, history=history, how="fork")
    given(opened()).when(command).then(inherited)


def test_a_name_is_not_empty() -> None:
    here = given(ready()).when(RenameSession(by=ANN, name=" ")).then_refused("a name cannot be empty")
    here.when(RenameSession(by=ANN, name="x" * 201)).then_refused("a name has 200 letters at most, and this one has 201")
    assert here.when(RenameSession(by=ANN, name="plan")).then(SessionRenamed(at=NOW, name="plan", by=ANN)).state.name == "plan"


def test_mode_and_model_change() -> None:
    here = (
        given(ready())
        .when(ChangeMode(by=ANN, mode=Mode.DEFAULT))
        .then_nothing()
        .when(ChangeMode(by=ANN, mode=Mode.BYPASS))
        .then(ModeChanged(at=NOW, mode=Mode.BYPASS, by=ANN))
        .when(ChangeModel(by=ANN, model="other"))
        .then(ModelChanged(at=NOW, model="other", by=ANN))
    )
    assert (here.state.mode, here.state.model) == (Mode.BYPASS, "other")


def test_a_route_is_added_and_removed_once() -> None:
    here = (
        given(ready())
        .when(AddRoute(by=ANN, route=ROOM))
        .then(RouteAdded(at=NOW, route=ROOM, by=ANN))
        .when(AddRoute(by=ANN, route=ROOM))
        .then_nothing()
        .when(RemoveRoute(by=ANN, route=ROOM))
        .then(RouteRemoved(at=NOW, route=ROOM, by=ANN))
        .when(RemoveRoute(by=ANN, route=ROOM))
        .then_nothing()
    )
    assert here.state.routes == ()


@covers("session.control-words-are-for-operators")
@pytest.mark.parametrize("command", named([command for command in every_command(EVE) if isinstance(command, CONTROL)]))
def test_whoever_is_only_in_the_room_may_not_control_the_session(command: AnyCommand) -> None:
    given(ready(), asked(PUSH)).when(command).then_refused("`eve` is not an operator of `matrix`", NotAllowed)


@pytest.mark.parametrize("command", named([command for command in every_command(OLGA) if isinstance(command, CONTROL)]))
def test_an_operator_is_never_told_that_they_are_none(command: AnyCommand) -> None:
    assert not isinstance(given(ready(), asked(PUSH)).when(command).refusal, NotAllowed)


def test_whoever_is_only_in_the_room_may_talk() -> None:
    given(ready()).when(SendMessage(by=EVE, message=MESSAGE, text="hi")).then(like(MessageAccepted, by=EVE, text="hi"))


# Rules and labels


def test_a_rule_that_asks_can_be_disabled_and_enabled() -> None:
    rule = RuleId("read-outside")
    (
        given(ready())
        .when(EnableRule(by=ANN, rule=rule))
        .then_refused("rule `read-outside` is not disabled")
        .when(DisableRule(by=ANN, rule=rule))
        .then(RuleDisabled(at=NOW, rule=rule, by=ANN))
        .when(EnableRule(by=ANN, rule=rule))
        .then(RuleEnabled(at=NOW, rule=rule, by=ANN))
        .when(EnableRule(by=ANN, rule=rule))
        .then_refused("rule `read-outside` is not disabled")
    )


@covers("session.denying-rules-cannot-be-disabled")
@pytest.mark.parametrize("rule", ["forbidden-address", "plan-reads-only", "protected-path", "workspace-free"])
def test_a_rule_that_does_not_ask_cannot_be_disabled(rule: str) -> None:
    words = f"rule `{rule}` does not ask; only a rule that asks can be disabled"
    given(ready()).when(DisableRule(by=ANN, rule=RuleId(rule))).then_refused(words, NotAllowed)


def test_a_rule_that_is_none_cannot_be_disabled() -> None:
    words = "there is no rule `made-up`; `/rules` lists them"
    given(ready()).when(DisableRule(by=ANN, rule=RuleId("made-up"))).then_refused(words, NotAllowed)


@covers("session.labels-are-never-lost")
def test_a_label_keeps_its_first_cause() -> None:
    first, second = source("sensitive", "a file"), source("sensitive", "another file")
    here = given(ready(), AddLabels(by=SYSTEM, labels=(first,)), AddLabels(by=SYSTEM, labels=(second,)))
    assert here.state.labels == {"sensitive": first}
    here.when(AddLabels(by=SYSTEM, labels=())).then_nothing()


# Turns


def test_messages_queue_in_order_and_a_turn_takes_them_all() -> None:
    one, two = MessageId("m1"), MessageId("m2")
    here = given(
        ready(),
        SendMessage(by=ANN, message=one, text="first"),
        SendMessage(by=SYSTEM, message=MessageId("m3"), text="by the way", role="context"),
        SendMessage(by=ANN, message=two, text="second"),
    )
    assert here.state.queue == (one, two)
    here = here.when(StartTurn(by=SYSTEM, turn=TURN)).then(TurnStarted(at=NOW, turn=TURN, messages=(one, two)))
    assert here.state.queue == ()
    assert here.state.phase is Phase.WORKING
    assert here.state.totals.messages == 3


def test_a_turn_needs_a_message() -> None:
    given(ready()).when(StartTurn(by=SYSTEM, turn=TURN)).then_refused("there is no message to take up")


def test_one_turn_at_a_time() -> None:
    waiting = TurnEnded(at=NOW, turn=TURN, status=TurnStatus.WAITING)
    other = StartTurn(by=SYSTEM, turn=TurnId("t2"))
    here = given(ready(), turn_running(), SendMessage(by=ANN, message=MESSAGE, text="and this"))
    here.when(other).then_refused("turn `t1` is still running")
    here.happened(waiting).when(other).then_refused("turn `t1` is still waiting")


@pytest.mark.parametrize("status", [TurnStatus.DONE, TurnStatus.FAILED, TurnStatus.INTERRUPTED])
def test_a_turn_ends(status: TurnStatus) -> None:
    ended = TurnEnded(at=NOW, turn=TURN, status=status, failure="why")
    here = given(ready(), turn_running()).when(EndTurn(by=SYSTEM, turn=TURN, status=status, failure="why")).then(ended)
    assert here.state.phase is Phase.READY
    here.when(EndTurn(by=SYSTEM, turn=TURN, status=status)).then_refused("turn `t1` is not running")


def test_a_waiting_turn_resumes_once() -> None:
    resume = ResumeTurn(by=SYSTEM, turn=TURN)
    here = given(ready(), turn_running())
    here.when(resume).then_refused("turn `t1` does not wait")
    here = here.happened(EndTurn(by=SYSTEM, turn=TURN, status=TurnStatus.WAITING))
    assert here.state.phase is Phase.WAITING
    here.when(ResumeTurn(by=SYSTEM, turn=TurnId("t2"))).then_refused("turn `t2` does not wait")
    here = here.when(resume).then(TurnResumed(at=NOW, turn=TURN))
    assert here.state.phase is Phase.WORKING
    here.when(resume).then_refused("turn `t1` does not wait")


def test_an_open_ask_makes_an_idle_session_wait() -> None:
    assert given(ready(), asked(PUSH)).state.phase is Phase.WAITING


PUSH_IN_TURN = wish("c1", push("github.com/me/r"), TURN)
PARKED_ON = EndTurn(by=SYSTEM, turn=TURN, status=TurnStatus.WAITING, waits_for=(PUSH.call, CallId("c5")))


def test_a_turn_that_waits_goes_on_with_the_first_answer_of_several() -> None:
    other = wish("c5", push("github.com/me/other"), TURN)
    here = given(ready(), turn_running(), asked(PUSH), asked(other), PARKED_ON)
    assert not here.state.can_go_on
    assert here.happened(answer(other)).state.can_go_on
    assert here.happened(answer(PUSH, granted=False)).state.can_go_on


def test_an_answer_that_came_while_the_turn_was_being_parked_is_not_missed() -> None:
    other = wish("c5", push("github.com/me/other"), TURN)
    assert given(ready(), turn_running(), asked(PUSH), asked(other), answer(PUSH, granted=False), PARKED_ON).state.can_go_on


def test_a_turn_does_not_go_on_while_a_budget_is_used_up() -> None:
    here = given(ready(), turn_running(), EndTurn(by=SYSTEM, turn=TURN, status=TurnStatus.WAITING))
    assert here.state.can_go_on
    assert not here.happened(BudgetExhausted(at=NOW, kind=BudgetKind.STEPS, used=1, limit=1)).state.can_go_on


@covers("session.a-turn-can-be-interrupted")
def test_an_interrupt_is_for_whoever_works_and_is_asked_once() -> None:
    given(ready()).when(InterruptTurn(by=ANN)).then_refused("nothing runs here")
    here = given(ready(), turn_running()).when(InterruptTurn(by=ANN)).then(InterruptAsked(at=NOW, turn=TURN, by=ANN))
    here.when(InterruptTurn(by=ANN)).then_nothing()
    here.when(InterruptTurn(by=ANN, turn=TURN)).then_nothing()
    here.when(InterruptTurn(by=ANN, turn=TurnId("before"))).then_refused("turn `before` is over; another one runs now")
    over = here.happened(EndTurn(by=SYSTEM, turn=TURN, status=TurnStatus.INTERRUPTED))
    assert not over.state.interrupting


@covers("session.a-turn-can-be-interrupted")
def test_a_turn_that_waits_ends_at_once_and_takes_its_questions_back() -> None:
    elsewhere = wish("c7", push("github.com/me/elsewhere"))
    here = given(ready(), turn_running(), asked(PUSH_IN_TURN), asked(elsewhere), PARKED_ON)
    here = here.when(InterruptTurn(by=ANN)).then(
        CallDropped(at=NOW, call=PUSH.call, why="interrupted by ann"),
        ApprovalWithdrawn(at=NOW, approval=PUSH.approval, why="interrupted by ann"),
        TurnEnded(at=NOW, turn=TURN, status=TurnStatus.INTERRUPTED, failure="interrupted by ann"),
    )
    assert list(here.state.approvals) == [elsewhere.approval]


def test_a_message_can_be_taken_back_while_it_waits() -> None:
    here = given(ready(), SendMessage(by=ANN, message=MESSAGE, text="hello"))
    taken = here.when(WithdrawMessage(by=ANN, message=MESSAGE)).then(MessageWithdrawn(at=NOW, message=MESSAGE, by=ANN))
    taken.when(StartTurn(by=SYSTEM, turn=TURN)).then_refused("there is no message to take up")
    here.happened(StartTurn(by=SYSTEM, turn=TURN)).when(WithdrawMessage(by=ANN, message=MESSAGE)).then_refused("does not wait any more")


def test_compaction_is_asked_for_until_there_is_a_summary_or_a_reason_why_not() -> None:
    here = (
        given(ready())
        .when(AskCompaction(by=ANN, instructions="keep names"))
        .then(CompactionAsked(at=NOW, instructions="keep names", by=ANN))
    )
    assert here.state.compaction_asked == "keep names"
    assert here.happened(progress(CompactionSkipped(at=NOW, why="nothing to say"))).state.compaction_asked is None


def test_the_threshold_of_compaction_is_a_share() -> None:
    here = given(ready())
    here.when(SetCompaction(by=ANN, threshold=1.5)).then_refused("a share of the context")
    off = here.when(SetCompaction(by=ANN, threshold=None)).then(CompactionSet(at=NOW, threshold=None, by=ANN))
    assert (off.state.compaction, off.state.compaction_set) == (None, True)


SAVED = SavedProgram(program="p1", step=3, state=Payload(inline="…"))


@covers("session.a-program-is-saved-with-what-must-not-happen-twice")
def test_a_program_is_saved_with_every_ask_and_with_every_permit_that_is_more_than_a_look() -> None:
    kept = ProgramSaved(at=NOW, turn=TURN, call=PUSH.call, program=SAVED)
    edit = wish("c6", write("/srv/own/a"), TURN)
    here = given(ready(), turn_running())
    here.when(asked(PUSH).model_copy(update={"program": SAVED, "turn": TURN})).then(
        like(CallRequested, call=PUSH.call), like(ApprovalAsked, call=PUSH.call), kept
    )
    here.when(requested(edit).model_copy(update={"program": SAVED})).then(
        like(CallRequested, call=edit.call), like(CallPermitted, call=edit.call), kept.model_copy(update={"call": edit.call})
    )
    here.when(requested(LOOK).model_copy(update={"program": SAVED, "turn": TURN})).then(
        like(CallRequested, call=LOOK.call), like(CallPermitted, call=LOOK.call)
    )


# Progress


def test_progress_is_kept_as_it_was_told() -> None:
    piece = TextStreamed(at=NOW, turn=TURN, text="hel")
    given(ready(), turn_running()).when(progress(piece, model_request(), model_response())).then(piece, model_request(), model_response())


def test_a_response_needs_its_request() -> None:
    here = given(ready(), turn_running())
    here.when(progress(model_response())).then_refused("there is no open request `r1`")
    here.when(progress(ModelFailed(at=NOW, turn=TURN, request="r1", failure="x"))).then_refused("there is no open request `r1`")
    here = here.happened(progress(model_request()))
    here.when(progress(model_request())).then_refused("request `r1` was made before")
    here.happened(progress(model_response())).when(progress(model_response())).then_refused("there is no open request `r1`")


def test_denials_past_the_budget_are_counted() -> None:
    here = given(ready()).when(CountDenials(by=SYSTEM, count=5)).then(DenialsCounted(at=NOW, count=5))
    assert here.state.totals.uncounted_denials == 5
    here.when(CountDenials(by=SYSTEM, count=0)).then_nothing()


# The end


@covers("session.closing-settles-everything")
def test_closing_withdraws_what_is_asked_and_says_what_became_of_every_call() -> None:
    running = wish("c3", read("/srv/own/b"))
    here = given(ready(), turn_running(), progress(model_request()), asked(PUSH), requested(running))
    why = "the session was closed"
    here = here.when(CloseSession(by=ANN, reason="enough")).then(
        CallDropped(at=NOW, call=PUSH.call, why=why),
        CallLost(at=NOW, call=running.call),
        ApprovalWithdrawn(at=NOW, approval=PUSH.approval, why=why),
        ModelFailed(at=NOW, turn=TURN, request="r1", failure=why),
        TurnEnded(at=NOW, turn=TURN, status=TurnStatus.INTERRUPTED, failure=why),
        SessionClosed(at=NOW, reason="enough", by=ANN),
    )
    assert here.state.phase is Phase.CLOSED
    state = here.state
    assert (state.calls, state.approvals, state.requests, state.turn) == ({}, {}, {}, None)


def test_closing_an_idle_session_is_one_event() -> None:
    given(ready()).when(CloseSession(by=ANN, reason="")).then(SessionClosed(at=NOW, reason="", by=ANN)).when(
        CloseSession(by=ANN, reason="")
    ).then_refused("closed", Closed)


TASK = SendMessage(by=ANN, message=MESSAGE, text="please", once=True)
TASK_RUNS = (TASK, StartTurn(by=SYSTEM, turn=TURN))
TASK_ENDS = EndTurn(by=SYSTEM, turn=TURN, status=TurnStatus.DONE)


@covers("session.a-task-ends-its-session")
def test_a_session_ends_in_the_same_commit_as_its_single_task() -> None:
    here = given(ready(), *TASK_RUNS).when(TASK_ENDS)
    here.then(like(TurnEnded, status=TurnStatus.DONE), SessionClosed(at=NOW, reason="done", by=SYSTEM))


@covers("session.a-task-ends-its-session")
def test_a_session_stays_open_after_a_task_that_failed_or_with_something_open() -> None:
    failed = EndTurn(by=SYSTEM, turn=TURN, status=TurnStatus.FAILED, failure="no model")
    assert given(ready(), *TASK_RUNS).happened(failed).state.phase is Phase.READY
    assert given(ready(), *TASK_RUNS, asked(PUSH)).happened(TASK_ENDS).state.phase is Phase.WAITING
    more = SendMessage(by=ANN, message=MessageId("m2"), text="and this")
    assert given(ready(), *TASK_RUNS, more).happened(TASK_ENDS).state.phase is Phase.READY
    assert given(ready(), turn_running()).happened(TASK_ENDS).state.phase is Phase.READY


@covers("session.closed-can-be-reopened")
def test_an_operator_opens_a_closed_session_again_with_its_labels_and_grants_but_without_its_queue() -> None:
    here = given(ready(), AddLabels(by=SYSTEM, labels=(source("sensitive"),)), asked(PUSH), answer(PUSH, scope=GrantScope.SESSION))
    here = here.happened(SendMessage(by=ANN, message=MESSAGE, text="later"), CloseSession(by=ANN, reason="enough"))
    assert here.state.queue == ()
    here.when(ReopenSession(by=EVE)).then_refused("`eve` is not an operator of `matrix`", NotAllowed)
    here.when(SendMessage(by=ANN, message=MessageId("m2"), text="hi")).then_refused("this session is closed", Closed)
    here = here.when(ReopenSession(by=OLGA)).then(SessionReopened(at=NOW, by=OLGA))
    assert (here.state.phase, list(here.state.labels), len(here.state.grants)) == (Phase.READY, ["sensitive"], 1)
    here.when(ReopenSession(by=OLGA)).then_nothing()


def test_what_an_older_version_left_in_the_queue_of_a_closed_session_does_not_run_when_it_is_reopened() -> None:
    queued = MessageAccepted(at=NOW, message=MESSAGE, text="long ago", by=ANN)
    here = given(ready(), queued, CLOSED).when(ReopenSession(by=ANN))
    here.then(MessageWithdrawn(at=NOW, message=MESSAGE, by=ANN), SessionReopened(at=NOW, by=ANN))


def test_what_the_proxy_refused_is_recorded_also_after_the_end() -> None:
    refused = RequestsRefused(at=NOW, turn=None, requests=(), more=3)
    given(ready(), CLOSED).when(progress(refused)).then(refused)


def test_a_session_of_a_team_or_a_caller_is_not_reopened() -> None:
    for whose in ({"team": "ops"}, {"agent": OUTSIDE}):
        here = given(opened().model_copy(update=whose), SessionReady(at=NOW), CLOSED)
        here.when(ReopenSession(by=ANN)).then_refused("the next call or question opens another", Closed)


def test_closing_at_rest_leaves_a_session_alone_in_which_something_is_open() -> None:
    close = CloseSession(by=ANN, reason="", at_rest=True)
    given(ready(), turn_running()).when(close).then_refused("a turn runs")
    given(ready(), asked(PUSH)).when(close).then_refused("1 ask waits for an answer")
    given(ready(), SendMessage(by=ANN, message=MESSAGE, text="hi")).when(close).then_refused("1 message is queued")
    given(ready()).when(close).then(SessionClosed(at=NOW, reason="", by=ANN))


@covers("grants.revoked-all-at-once")
def test_all_grants_of_a_session_are_revoked_at_once_also_after_its_end() -> None:
    here = given(ready(), asked(PUSH), answer(PUSH, scope=GrantScope.SESSION), CloseSession(by=ANN, reason="enough"))
    here.when(RevokeGrant(by=EVE, grant=ALL_GRANTS)).then_refused("operator", NotAllowed)
    here = here.happened(RevokeGrant(by=ANN, grant=ALL_GRANTS))
    assert here.state.grants == {}
    here.when(RevokeGrant(by=ANN, grant=ALL_GRANTS)).then_refused("there is no grant in this session", NotFound)


def test_a_late_answer_to_a_closed_session_hears_the_truth_about_its_approval_first() -> None:
    here = given(ready(), asked(PUSH), answer(PUSH, granted=False), CLOSED)
    here.when(answer(PUSH)).then_refused("already answered by `ann`", AlreadyAnswered)
    unknown = AnswerApproval(by=ANN, approval=ApprovalId("zzzzzz"), granted=True)
    here.when(unknown).then_refused("this session is closed", Closed)


def test_every_command_type_is_tried_here() -> None:
    tried = {type(command) for command in every_command()} | {OpenSession}
    assert tried ^ set(AnyCommand.__args__) == set(), "add the command to `every_command`"


def test_it_is_known_of_every_command_who_may_give_it() -> None:
    assert not set(CONTROL) & set(FOR_EVERYBODY)
    unknown = {*AnyCommand.__args__} - {*CONTROL, *FOR_EVERYBODY, OpenSession}
    assert unknown == set(), "list it in `CONTROL` here and `_CONTROL` in `session/decide.py`, or in `FOR_EVERYBODY` here"


@pytest.mark.parametrize("mode", [Mode.ACCEPT_EDITS, Mode.BYPASS])
@covers("session.control-words-are-for-operators")
def test_only_an_operator_opens_a_session_in_a_mode_that_answers_asks(mode: Mode) -> None:
    stranger = Who(name="eve", channel="matrix")
    given().when(OPEN.model_copy(update={"mode": mode, "by": stranger})).then_refused("may not open in mode", NotAllowed)
