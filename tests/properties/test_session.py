"""Any commands in any order, under the rules that ship: what holds for every session whatever anyone wants of it."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as for_all
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from curtainwall.model import (
    SYSTEM,
    AddLabels,
    AnswerApproval,
    AnyCommand,
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalId,
    Broken,
    BudgetKind,
    CallFinished,
    CallId,
    CallPermitted,
    ChangeMode,
    CloseSession,
    CommandRefused,
    CountSpending,
    DisableRule,
    DropCall,
    Effect,
    EnableRule,
    EndTurn,
    ExpireApprovals,
    FinishCall,
    GrantGiven,
    GrantScope,
    HookSays,
    Limits,
    MessageId,
    Mode,
    ModelRequested,
    ModelResponded,
    Moment,
    Payload,
    PermitId,
    ProceedCall,
    RaiseBudget,
    RecordProgress,
    RepairSession,
    RequestCall,
    ResumeTurn,
    RevokeGrant,
    RuleId,
    SendMessage,
    StartTurn,
    Subject,
    TextStreamed,
    TurnId,
    TurnStatus,
    Usage,
    WorkTimed,
    decode_event,
    encode_event,
)
from curtainwall.session import (
    BreakerLimits,
    CallStatus,
    KeptFold,
    SessionState,
    decide,
    decode_fold,
    encode_fold,
    evolve,
    fold,
    is_at_rest,
    replay,
    transcript,
)
from tests.support.covers import covers
from tests.support.entries import entries_of
from tests.support.given import (
    ANN,
    BOB,
    EVE,
    NOW,
    OLGA,
    OWN,
    PROJECT,
    RULES,
    changed,
    delete,
    fetch,
    fetch_with_key,
    is_for_project,
    move,
    opened,
    push,
    raise_of,
    read,
    ready,
    run,
    source,
    write,
)
from tests.support.strategies import COMMAND_TYPES, EVENT_TYPES, words

SUBJECTS = (
    read("/srv/own/a"),
    read("/srv/project/a"),
    read("/srv/own/.env"),
    read("/etc/a"),
    read("/etc/a", "/etc/b"),
    read("/home/ann/.ssh/id_rsa"),
    write("/srv/own/a"),
    write("/srv/project/a"),
    write("/srv/project/.envrc"),
    move("/etc/a", "/srv/project/a"),
    delete("/etc/a"),
    fetch("example.org"),
    fetch("docs.python.org"),
    fetch_with_key("docs.python.org", "github"),
    push("github.com/me/r"),
    run("ls"),
    raise_of("tokens", 3),
)
ASKING = ("read-outside", "project-edit", "unlisted-host", "unlisted-remote", "sensitive-stays", "credential-asks", "runs-later")
PEOPLE = (ANN, BOB, OLGA, EVE)
HOOKS = (None, None, None, HookSays(effect="ask", hook="guard", reason="look"), HookSays(effect="deny", hook="guard", reason="no"))


class AnySession(RuleBasedStateMachine):
    """One session, and everybody who wants something of it."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[AnyEvent] = []
        self.state = SessionState()
        self.rules = RULES
        self.at = NOW
        self.names: Iterator[int] = iter(range(1_000_000))
        self.granted: set[str] = set()
        self.approvals: list[ApprovalId] = []
        self.snapshots: dict[int, bytes] = {}

    def mint(self, kind: str) -> str:
        return f"{kind}{next(self.names)}"

    def want(self, command: AnyCommand) -> tuple[AnyEvent, ...] | None:
        """Decide and go on; return None where the command was refused."""
        before = deepcopy(self.state)
        chance = next(self.names).to_bytes(16, "big")
        try:
            events = decide(self.state, command, self.rules, Moment(at=self.at, seed=chance))
        except CommandRefused:
            assert self.state == before, "a refusal changed the state"
            return None
        assert self.state == before, "deciding changed the state"
        self.check_permits(events)
        for event in events:
            self.happen(event)
        return events

    def happen(self, event: AnyEvent) -> None:
        if is_for_project(event):
            assert isinstance(event, GrantGiven)
            self.rules = self.rules.with_project_grants({**self.rules.project_grants, event.grant.id: event.grant})
            return
        before, labels = deepcopy(self.state), dict(self.state.labels)
        after = evolve(self.state, event)
        assert self.state == before, "evolving changed the state before"
        assert labels.items() <= after.labels.items(), "a label or its first cause was lost"
        if isinstance(event, ApprovalAsked):
            self.approvals.append(event.approval)
        if isinstance(event, ApprovalAnswered) and event.granted:
            self.granted.add(event.approval)
        self.state = after
        self.log.append(event)

    def check_permits(self, events: tuple[AnyEvent, ...]) -> None:
        """No ask is permitted without an answer, and every answer is one that stood."""
        standing = {*self.granted, *self.state.grants, *self.rules.project_grants}
        if self.state.disabled:
            standing.add("disabled-rule")
        if self.state.mode in (Mode.ACCEPT_EDITS, Mode.BYPASS):
            standing.add(f"mode:{self.state.mode}")
        for event in events:
            if isinstance(event, CallPermitted):
                assert event.verdict.effect is not Effect.DENY
                assert event.answered_by or event.verdict.effect is Effect.ALLOW
                assert standing.issuperset(event.answered_by)

    # Who wants what

    @initialize(
        workspace=st.sampled_from([OWN, PROJECT]),
        mode=st.sampled_from(Mode),
        deadline=st.sampled_from([None, 5_000]),
        asks=st.sampled_from([3, 30]),
        unrouted=st.sampled_from(["park", "park", "deny"]),
    )
    def open(self, workspace: object, mode: Mode, deadline: int | None, asks: int, unrouted: str) -> None:

        self.rules = replace(RULES, deadline=deadline, unrouted=unrouted, breaker=BreakerLimits(asks=asks), calls=40)
        limits = Limits(tokens=100, steps=5, seconds=100, dollars=1)
        for event in ready(workspace, mode, limits):
            self.happen(event)

    @rule(what=st.sampled_from(SUBJECTS), hook=st.sampled_from(HOOKS), in_turn=st.booleans())
    def request(self, what: Subject, hook: HookSays | None, in_turn: bool) -> None:
        turn = self.state.turn if in_turn else None
        self.want(RequestCall(by=SYSTEM, call=CallId(self.mint("c")), subject=what, turn=turn, hook=hook))

    @precondition(lambda self: self.state.calls)
    @rule(data=st.data(), moved=st.booleans())
    def proceed(self, data: st.DataObject, moved: bool) -> None:
        call = data.draw(st.sampled_from(sorted(self.state.calls)))
        what, was = self.state.calls[call].subject, self.state.calls[call].standing
        events = self.want(ProceedCall(by=SYSTEM, call=call, subject=changed(what) if moved else what))
        assert (events is None) == (was is not CallStatus.ANSWERED)
        if events and moved:
            assert not any(isinstance(event, CallPermitted) for event in events), "a changed subject was permitted"

    @precondition(lambda self: self.state.calls)
    @rule(data=st.data(), forged=st.booleans())
    def finish(self, data: st.DataObject, forged: bool) -> None:
        call = data.draw(st.sampled_from(sorted(self.state.calls)))
        open_ = self.state.calls[call]
        permit = PermitId("forged") if forged or open_.permit is None else open_.permit
        events = self.want(FinishCall(by=SYSTEM, call=call, permit=permit, ok=True, result=Payload()))
        honest = open_.standing is CallStatus.PERMITTED and permit == open_.permit
        assert (events is not None) == honest, "a call finished without its permit, or could not with it"

    @rule(call=st.sampled_from(["c0", "c1", "nobody"]))
    def finish_what_may_never_have_been(self, call: str) -> None:
        if CallId(call) not in self.state.calls:
            assert self.want(FinishCall(by=SYSTEM, call=CallId(call), permit=PermitId("p"), ok=True, result=Payload())) is None

    @precondition(lambda self: self.state.calls)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        self.want(DropCall(by=SYSTEM, call=data.draw(st.sampled_from(sorted(self.state.calls))), why="gone"))

    @precondition(lambda self: self.approvals)
    @rule(data=st.data(), granted=st.booleans(), scope=st.sampled_from(GrantScope), by=st.sampled_from(PEOPLE))
    def answer(self, data: st.DataObject, granted: bool, scope: GrantScope, by: object) -> None:
        approval = data.draw(st.sampled_from(self.approvals))
        before = self.state
        events = self.want(AnswerApproval(by=by, approval=approval, granted=granted, scope=scope))
        if events is None:
            return
        assert by != EVE, "a stranger answered"
        assert before.approvals.keys() - self.state.approvals.keys() == {approval}
        assert self.state.settled.keys() - before.settled.keys() == {approval}
        assert sum(isinstance(event, ApprovalAnswered) for event in events) == 1
        assert self.want(AnswerApproval(by=ANN, approval=approval, granted=not granted)) is None, "it was answered twice"

    @rule(mode=st.sampled_from(Mode), by=st.sampled_from(PEOPLE))
    def change_mode(self, mode: Mode, by: object) -> None:
        self.want(ChangeMode(by=by, mode=mode))

    @rule(name=st.sampled_from(ASKING), on=st.booleans())
    def switch_a_rule(self, name: str, on: bool) -> None:
        self.want(EnableRule(by=ANN, rule=RuleId(name)) if on else DisableRule(by=ANN, rule=RuleId(name)))

    @rule(label=st.sampled_from(["sensitive", "untrusted-content"]))
    def taint(self, label: str) -> None:
        self.want(AddLabels(by=SYSTEM, labels=(source(label, self.mint("origin")),)))

    @rule()
    def speak(self) -> None:
        self.want(SendMessage(by=EVE, message=MessageId(self.mint("m")), text="hello"))

    @rule()
    def start(self) -> None:
        self.want(StartTurn(by=SYSTEM, turn=TurnId(self.mint("t"))))

    @precondition(lambda self: self.state.turn)
    @rule(status=st.sampled_from(TurnStatus), resumes=st.booleans())
    def end_or_resume(self, status: TurnStatus, resumes: bool) -> None:
        turn = self.state.turn
        assert turn is not None
        self.want(ResumeTurn(by=SYSTEM, turn=turn) if resumes else EndTurn(by=SYSTEM, turn=turn, status=status))

    @precondition(lambda self: self.state.turn)
    @rule(responds=st.booleans(), tokens=st.integers(0, 50), seconds=st.floats(0, 50))
    def work(self, responds: bool, tokens: int, seconds: float) -> None:
        turn, request = self.state.turn, next(iter(self.state.requests), None)
        assert turn is not None
        told: list[object] = [TextStreamed(at=self.at, turn=turn, text="…"), WorkTimed(at=self.at, seconds=seconds)]
        if responds:
            usage = Usage(input_tokens=tokens)
            told.append(ModelResponded(at=self.at, turn=turn, request=request or "?", raw=Payload(), normalised=Payload(), usage=usage))
        else:
            told.append(ModelRequested(at=self.at, turn=turn, request=self.mint("r"), base=None, added=Payload(), model="demo"))
        assert (self.want(RecordProgress(by=SYSTEM, events=tuple(told))) is None) == (responds and request is None)

    @rule(kind=st.sampled_from(BudgetKind), limit=st.integers(0, 1_000))
    def raise_budget(self, kind: BudgetKind, limit: int) -> None:
        self.want(RaiseBudget(by=ANN, kind=kind, limit=limit))

    @rule(tokens=st.integers(0, 500), dollars=st.floats(0, 10))
    def count_spending(self, tokens: int, dollars: float) -> None:
        self.want(CountSpending(by=SYSTEM, usage=Usage(input_tokens=tokens, dollars=dollars)))

    @precondition(lambda self: self.state.grants)
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        self.want(RevokeGrant(by=ANN, grant=data.draw(st.sampled_from(sorted(self.state.grants)))))

    @rule(millis=st.sampled_from([1, 1_000, 61_000]))
    def let_time_pass(self, millis: int) -> None:
        self.at += millis
        self.want(ExpireApprovals(by=SYSTEM))
        assert all(open_.asked.deadline is None or open_.asked.deadline > self.at for open_ in self.state.approvals.values())

    @rule()
    def crash(self) -> None:
        asks, answered = (
            dict(self.state.approvals),
            {call for call, open_ in self.state.calls.items() if open_.standing is CallStatus.ANSWERED},
        )
        self.want(RepairSession(by=SYSTEM))
        assert self.state.approvals == asks, "a crash lost an ask"
        assert answered <= self.state.calls.keys(), "a crash lost an answer"
        assert self.state.requests == {}
        assert self.state.turn is None or self.state.turn_waits
        assert all(open_.standing in (CallStatus.ASKED, CallStatus.ANSWERED) for open_ in self.state.calls.values())
        assert self.want(RepairSession(by=SYSTEM)) == (), "repairing twice did something"

    @precondition(lambda self: len(self.log) > 25)
    @rule()
    def close(self) -> None:
        if self.want(CloseSession(by=ANN, reason="enough")) is not None:
            assert (self.state.calls, self.state.approvals, self.state.requests, self.state.turn) == ({}, {}, {}, None)

    @rule()
    def save(self) -> None:
        """Keep a snapshot here, as a process does that lets go of the session."""
        kept = encode_fold(KeptFold(self.state, len(self.log)))
        assert kept is not None, "a state cannot be kept"
        self.snapshots[len(self.log)] = kept

    # What always holds

    @invariant()
    def a_snapshot_and_what_came_after_it_give_the_live_state(self) -> None:
        for seq, kept in self.snapshots.items():
            snapshot = decode_fold(kept)
            assert snapshot is not None
            assert snapshot.logged == seq
            state = fold(self.log[seq:], snapshot.state)
            assert state == self.state
            # Also where the order counts: who is next in line, and what is forgotten first.
            assert encode_fold(KeptFold(state, 0)) == encode_fold(KeptFold(self.state, 0))

    @invariant()
    def folding_the_log_gives_the_live_state(self) -> None:
        assert fold(self.log) == self.state

    @invariant()
    def no_promise_is_broken(self) -> None:
        assert replay(self.log, lambda _: None) == ()

    @invariant()
    def every_open_approval_has_calls_that_wait_for_it(self) -> None:
        for approval, open_ in self.state.approvals.items():
            assert open_.calls
            for call in open_.calls:
                assert self.state.calls[call].standing is CallStatus.ASKED
                assert self.state.calls[call].approval == approval

    @invariant()
    def nothing_finished_without_a_permit_before_it(self) -> None:
        permits: set[tuple[str, str]] = set()
        for event in self.log:
            if isinstance(event, CallPermitted):
                permits.add((event.call, event.permit))
            elif isinstance(event, CallFinished):
                assert (event.call, event.permit) in permits
                permits.remove((event.call, event.permit))

    @invariant()
    def what_is_used_up_is_known(self) -> None:
        assert self.state.totals.calls <= 40

    @invariant()
    def a_session_that_counts_as_at_rest_has_nothing_to_do(self) -> None:
        for many in (3, 8, len(self.log)):
            if is_at_rest(entries_of(self.log[-many:]), is_whole=many >= len(self.log)):
                assert self.state.ready
                assert not self.state.queue
                assert not self.state.owed
                assert not self.state.can_go_on
                assert self.state.compaction_asked is None
                assert self.state.turn is None or self.state.turn_waits

    def teardown(self) -> None:
        """Store and read the whole log, and tell it as a conversation."""
        kept = [encode_event(event) for event in self.log]
        back = [decode_event(kind, payload) for kind, _, payload in kept]
        assert back == self.log
        assert fold(back) == self.state
        assert len(transcript(self.log).turns) == self.state.totals.turns


TestAnySession = pytest.mark.covers(
    "session.replay-equals-live",
    "session.nothing-runs-without-its-event",
    "session.an-answer-settles-one-approval",
    "session.repair-closes-everything",
    "session.labels-are-never-lost",
)(AnySession.TestCase)
TestAnySession.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@covers("session.a-log-that-does-not-add-up-is-refused")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@for_all(st.lists(st.sampled_from(EVENT_TYPES).flatmap(words), max_size=8))
def test_a_log_of_any_events_folds_or_is_broken_and_replays(events: list[AnyEvent]) -> None:

    log = [opened(), *events]
    try:
        state = fold(log)
    except Broken:
        state = None
    assert state is None or state.totals.events == len(log)
    if state is not None:
        for seq in range(len(log) + 1):
            kept = encode_fold(KeptFold(fold(log[:seq]), seq))
            assert kept is not None
            snapshot = decode_fold(kept)
            assert snapshot is not None
            assert fold(log[seq:], snapshot.state) == state
    replay(log, lambda _: None)
    transcript(log)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@for_all(st.sampled_from(COMMAND_TYPES).flatmap(words))
def test_any_command_is_followed_or_refused(command: AnyCommand) -> None:
    state = fold(ready())
    try:
        events = decide(state, command, RULES, Moment(at=NOW, seed=b"x"))
    except CommandRefused:
        events = ()
    assert state == fold(ready())
    fold(events, state)
