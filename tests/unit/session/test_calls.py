"""The pure half of the gate: allow, ask, deny; look again; joined calls; hooks; budgets of calls and bytes."""

import pytest

from curtainwall.model import (
    FOLLOW_INSTRUCTIONS,
    LOAD_SKILL,
    SYSTEM,
    TRUST_SKILL,
    AddLabels,
    ApprovalAsked,
    ApprovalJoined,
    ApprovalWithdrawn,
    CallDenied,
    CallDropped,
    CallFinished,
    CallId,
    CallPermitted,
    CallRequested,
    ChangeMode,
    CommandRefused,
    Cover,
    DropCall,
    Effect,
    FinishCall,
    Grant,
    GrantGiven,
    GrantScope,
    GrantUsed,
    HookSays,
    LoopDetected,
    Mode,
    NotAllowed,
    NotFound,
    OverBudget,
    Payload,
    PermitId,
    RefuseCall,
    Resource,
    Role,
    Route,
    RouteAdded,
    RuleId,
    SavedProgram,
    Scope,
    ToolEffect,
    ToolFacts,
    Verdict,
    denial,
)
from curtainwall.session import MANY_RESOURCES, BreakerLimits, CallStatus, needs_program, with_program
from tests.support.covers import covers
from tests.support.given import (
    ANN,
    NOW,
    OWN,
    PROJECT,
    RULES,
    SENSITIVE,
    TURN,
    answer,
    asked,
    changed,
    fetch,
    finished,
    given,
    host,
    like,
    proceed,
    push,
    read,
    ready,
    requested,
    source,
    subject,
    turn_running,
    wish,
    write,
)

LOOK = wish("c1", read("/srv/own/a"), TURN)
PUSH = wish("c1", push("github.com/me/r"), TURN)
METADATA = wish("c1", subject("fetch.get", ToolEffect.SEND, host(Role.FETCH_URL, "metadata.google.internal", Scope.FORBIDDEN)))
FETCH = wish("c1", fetch("example.org"), TURN)
TAINTED = AddLabels(by=SYSTEM, labels=(source("sensitive", "/srv/own/.env", "c0"),))

PUSH_ASKED = Cover(role=Role.WRITE_REMOTE, value="github.com/me/r", rules=(RuleId("unlisted-remote"),))


def drop(what: str, why: str = "the agent went away") -> DropCall:
    return DropCall(by=SYSTEM, call=CallId(what), why=why)


# Allow, ask, deny


@covers("session.nothing-runs-without-its-event")
def test_what_the_rules_allow_is_permitted_and_finished() -> None:
    here = given(ready(), turn_running())
    here = here.when(requested(LOOK)).then(
        CallRequested(at=NOW, call=LOOK.call, subject=LOOK.subject, turn=TURN),
        like(CallPermitted, call=LOOK.call, permit=LOOK.permit, digest=LOOK.subject.digest, answered_by=(), verdict__effect=Effect.ALLOW),
    )
    assert here.state.calls[LOOK.call].standing is CallStatus.PERMITTED
    done = CallFinished(at=NOW, call=LOOK.call, permit=LOOK.permit, ok=True, result=Payload(inline="done"))
    here = here.when(finished(LOOK)).then(done)
    assert here.state.calls == {}
    here.when(finished(LOOK)).then_refused("there is no open call `c1`", NotFound)


def test_what_the_rules_deny_is_denied() -> None:
    here = given(ready()).when(requested(METADATA)).then(CallRequested, like(CallDenied, verdict__because=("forbidden-address",)))
    assert here.state.calls == {}
    assert here.state.totals.denials == 1


@covers("session.an-ask-shows-what-it-covers")
def test_what_the_rules_ask_is_asked_with_everything_shown() -> None:
    here = given(ready()).under(deadline=5_000).when(requested(PUSH))
    here = here.then(
        CallRequested,
        like(
            ApprovalAsked,
            approval=PUSH.approval,
            call=PUSH.call,
            digest=PUSH.subject.digest,
            covers=(PUSH_ASKED,),
            policy=RULES.policy.version,
            deadline=NOW + 5_000,
        ),
    )
    shown = here.state.approvals[PUSH.approval].asked.shown
    assert "wants write-remote github.com/me/r (unlisted-remote)" in shown
    assert here.state.calls[PUSH.call].standing is CallStatus.ASKED


def test_without_a_deadline_an_ask_waits_for_ever() -> None:
    assert given(ready(), asked(PUSH)).state.approvals[PUSH.approval].asked.deadline is None


def test_ask_grant_proceed_permit_finish() -> None:
    here = given(ready(), turn_running(), asked(PUSH), answer(PUSH))
    assert here.state.calls[PUSH.call].standing is CallStatus.ANSWERED
    here = here.when(proceed(PUSH)).then(like(CallPermitted, answered_by=(PUSH.approval,), permit=PUSH.permit, verdict__effect=Effect.ASK))
    here.when(finished(PUSH)).then(CallFinished)


@covers("session.nothing-runs-without-its-event")
@pytest.mark.parametrize("steps", [(), (answer(PUSH),)], ids=["asked", "answered"])
def test_a_call_without_a_permit_cannot_finish(steps: tuple[object, ...]) -> None:
    given(ready(), asked(PUSH), *steps).when(finished(PUSH)).then_refused("call `c1` holds no such permit")


def test_a_call_cannot_finish_on_another_permit() -> None:
    forged = FinishCall(by=SYSTEM, call=LOOK.call, permit=PermitId("made-up"), ok=True, result=Payload())
    given(ready(), requested(LOOK)).when(forged).then_refused("call `c1` holds no such permit")


def test_a_call_proceeds_on_an_answer_alone() -> None:
    given(ready(), asked(PUSH)).when(proceed(PUSH)).then_refused("call `c1` has no answer to proceed on: it is asked")
    given(ready(), requested(LOOK)).when(proceed(LOOK)).then_refused("call `c1` has no answer to proceed on: it is permitted")
    given(ready()).when(proceed(LOOK)).then_refused("there is no open call `c1`", NotFound)


def test_an_open_call_is_not_requested_again() -> None:
    given(ready(), asked(PUSH)).when(asked(PUSH)).then_refused("call `c1` was requested before")


# Labels that a call brings


@covers("session.a-permit-brings-the-labels")
def test_a_permit_brings_the_labels_of_what_is_touched() -> None:
    secret = wish("c1", read("/srv/own/.env"))
    here = given(ready()).when(requested(secret))
    here = here.then(CallRequested, like(CallPermitted, labels=(source("sensitive", "/srv/own/.env", "c1"),)))
    assert SENSITIVE in here.state.labels


def test_what_only_asks_has_touched_nothing_yet() -> None:
    assert given(ready(), asked(FETCH)).state.labels == {}
    assert list(given(ready(), asked(FETCH), answer(FETCH), proceed(FETCH)).state.labels) == ["untrusted-content"]


# Look again


@covers("session.an-answer-is-bound-to-its-subject")
def test_a_subject_that_changed_under_its_answer_is_dropped_and_not_run() -> None:
    here = given(ready(), asked(PUSH), answer(PUSH)).when(proceed(PUSH, changed(PUSH.subject)))
    here = here.then(CallDropped(at=NOW, call=PUSH.call, why="it means something else than when it was approved"))
    assert here.state.grants == {}


@covers("session.an-answer-is-bound-to-its-rules")
def test_a_rule_that_woke_while_a_human_thought_asks_again() -> None:
    here = given(ready(), asked(PUSH), answer(PUSH), TAINTED)
    woken = Cover(role=Role.WRITE_REMOTE, value="github.com/me/r", rules=(RuleId("unlisted-remote"), RuleId("sensitive-stays")))
    here = here.when(proceed(PUSH)).then(like(ApprovalAsked, approval=PUSH.next_approval, call=PUSH.call, covers=(woken,)))
    assert here.state.calls[PUSH.call].covers == ()
    assert "label sensitive was set by call c0 (/srv/own/.env)" in here.state.approvals[PUSH.next_approval].asked.shown
    again = answer(PUSH).model_copy(update={"approval": PUSH.next_approval})
    here.happened(again).when(proceed(PUSH)).then(like(CallPermitted, answered_by=(PUSH.next_approval,)))


def test_the_humans_own_answer_counts_before_any_mode_does() -> None:
    inside = wish("c1", write("/srv/project/.envrc"))
    here = given(ready(PROJECT), asked(inside), answer(inside), ChangeMode(by=ANN, mode=Mode.BYPASS))
    here.when(proceed(inside)).then(like(CallPermitted, answered_by=(inside.approval,)))


def test_what_the_rules_allow_by_now_is_permitted() -> None:
    hooked = wish("c1", read("/srv/own/a"), hook=HookSays(effect="ask", hook="guard", reason="look"))
    here = given(ready(), asked(hooked), answer(hooked))
    here.when(proceed(hooked)).then(like(CallPermitted, verdict__effect=Effect.ALLOW, answered_by=(hooked.approval,)))


def test_an_answer_does_not_help_against_a_denial_that_came_meanwhile() -> None:
    here = given(ready(), asked(PUSH), answer(PUSH), ChangeMode(by=ANN, mode=Mode.PLAN))
    here.when(proceed(PUSH)).then(like(CallDenied, call=PUSH.call, verdict__because=("plan-reads-only",)))


def test_a_standing_answer_may_cover_what_the_first_one_did_not() -> None:
    here = given(ready(), asked(PUSH), answer(PUSH), TAINTED, ChangeMode(by=ANN, mode=Mode.BYPASS))
    here.when(proceed(PUSH)).then(like(CallPermitted, answered_by=("mode:bypass",)))


# Joined calls

SAME = PUSH.again("c2")
THIRD = PUSH.again("c3")


@covers("session.the-same-subject-asks-once")
def test_the_same_subject_joins_the_open_ask_and_shares_its_outcome() -> None:
    here = given(ready(), asked(PUSH)).when(asked(SAME)).then(CallRequested, ApprovalJoined(at=NOW, approval=PUSH.approval, call=SAME.call))
    here = here.happened(answer(PUSH))
    assert here.state.calls[PUSH.call].standing is CallStatus.ANSWERED
    here.when(proceed(SAME)).then_refused("call `c2` has no answer to proceed on: it is asked")
    here.happened(proceed(PUSH)).when(finished(PUSH)).then(
        CallFinished, CallDropped(at=NOW, call=SAME.call, why="it had joined this call", shares=PUSH.call)
    )


def test_another_subject_asks_for_itself() -> None:
    other = wish("c2", push("github.com/me/other"))
    given(ready(), asked(PUSH)).when(asked(other)).then(CallRequested, like(ApprovalAsked, approval=other.approval))


def test_the_same_subject_with_a_woken_rule_asks_for_itself() -> None:
    given(ready(), asked(PUSH), TAINTED).when(asked(SAME)).then(CallRequested, like(ApprovalAsked, approval=SAME.approval))


def test_the_same_subject_after_the_answer_asks_for_itself() -> None:
    given(ready(), asked(PUSH), answer(PUSH)).when(asked(SAME)).then(CallRequested, like(ApprovalAsked, approval=SAME.approval))


def test_a_denial_denies_all_that_joined() -> None:
    here = given(ready(), asked(PUSH), asked(SAME), asked(THIRD), answer(PUSH, granted=False))
    assert here.state.calls == {}
    assert here.state.totals.denials == 3


def test_the_next_call_takes_the_place_of_one_that_is_dropped_before_the_answer() -> None:
    here = given(ready(), asked(PUSH), asked(SAME)).when(drop("c1")).then(CallDropped(at=NOW, call=PUSH.call, why="the agent went away"))
    here = here.happened(answer(PUSH))
    assert here.state.calls[SAME.call].standing is CallStatus.ANSWERED
    here.when(proceed(SAME)).then(like(CallPermitted, call=SAME.call, answered_by=(PUSH.approval,)))


def test_an_ask_that_nobody_waits_for_is_withdrawn() -> None:
    here = given(ready(), asked(PUSH)).when(drop("c1", "gone"))
    here = here.then(CallDropped(at=NOW, call=PUSH.call, why="gone"), ApprovalWithdrawn(at=NOW, approval=PUSH.approval, why="gone"))
    assert here.state.approvals == {}


@covers("session.an-answer-nobody-took-up-is-kept-once")
def test_an_answer_that_nobody_took_up_is_kept_for_one_use() -> None:
    kept = Grant(id=PUSH.kept, scope=GrantScope.ONCE, covers=(PUSH_ASKED,), by=ANN, at=NOW, digest=PUSH.subject.digest)
    here = given(ready(), asked(PUSH), answer(PUSH)).when(drop("c1", "gone"))
    here = here.then(CallDropped(at=NOW, call=PUSH.call, why="gone"), GrantGiven(at=NOW, grant=kept))
    here = here.when(asked(SAME)).then(
        CallRequested, GrantUsed(at=NOW, grant=PUSH.kept), like(CallPermitted, call=SAME.call, answered_by=(PUSH.kept,))
    )
    here.when(asked(THIRD)).then(CallRequested, like(ApprovalAsked, call=THIRD.call))


def test_a_kept_answer_is_for_its_very_subject_alone() -> None:
    same_remote = wish("c2", subject("git.push", ToolEffect.SEND, PUSH.subject.resources[1], remote="origin", branch="main"))
    here = given(ready(), asked(PUSH), answer(PUSH), drop("c1"))
    here.when(asked(same_remote)).then(CallRequested, ApprovalAsked)


def test_a_kept_answer_does_not_answer_a_rule_that_woke_since() -> None:
    given(ready(), asked(PUSH), answer(PUSH), drop("c1"), TAINTED).when(asked(SAME)).then(CallRequested, ApprovalAsked)


def test_the_answer_of_a_dropped_call_goes_to_the_one_that_had_joined_it() -> None:
    here = given(ready(), asked(PUSH), asked(SAME), answer(PUSH)).when(drop("c1")).then(like(CallDropped, call=PUSH.call))
    assert here.state.calls[SAME.call].standing is CallStatus.ANSWERED
    here.when(proceed(SAME)).then(like(CallPermitted, call=SAME.call))


def test_dropping_one_that_joined_leaves_the_others_alone() -> None:
    here = given(ready(), asked(PUSH), asked(SAME), asked(THIRD))
    before = here.when(drop("c2")).then(like(CallDropped, call=SAME.call))
    assert before.state.approvals[PUSH.approval].calls == (PUSH.call, THIRD.call)
    after = here.happened(answer(PUSH)).when(drop("c2")).then(like(CallDropped, call=SAME.call))
    after = after.happened(proceed(PUSH))
    after.when(finished(PUSH)).then(CallFinished, like(CallDropped, call=THIRD.call, shares=PUSH.call))


def test_what_may_be_running_is_not_dropped() -> None:
    given(ready(), requested(LOOK)).when(drop("c1")).then_refused("call `c1` is permitted and may be running; finish it instead")
    given(ready()).when(drop("c1")).then_refused("there is no open call `c1`", NotFound)


def test_calls_that_joined_are_dropped_with_a_subject_that_changed() -> None:
    here = given(ready(), asked(PUSH), asked(SAME), answer(PUSH))
    here.when(proceed(PUSH, changed(PUSH.subject))).then(like(CallDropped, call=PUSH.call), like(CallDropped, call=SAME.call, shares=None))


def test_calls_that_joined_are_denied_with_one_that_is_denied_by_now() -> None:
    here = given(ready(), asked(PUSH), asked(SAME), answer(PUSH), ChangeMode(by=ANN, mode=Mode.PLAN))
    here.when(proceed(PUSH)).then(like(CallDenied, call=PUSH.call), like(CallDenied, call=SAME.call))


def test_calls_that_joined_follow_one_that_is_asked_for_again() -> None:
    here = given(ready(), asked(PUSH), asked(SAME), answer(PUSH), TAINTED)
    here = here.when(proceed(PUSH)).then(
        like(ApprovalAsked, approval=PUSH.next_approval), ApprovalJoined(at=NOW, approval=PUSH.next_approval, call=SAME.call)
    )
    assert here.state.approvals[PUSH.next_approval].calls == (PUSH.call, SAME.call)


def test_calls_that_joined_follow_one_that_joins_another_ask() -> None:
    here = given(ready(), asked(PUSH), asked(SAME), answer(PUSH), TAINTED, asked(THIRD))
    here.when(proceed(PUSH)).then(
        ApprovalJoined(at=NOW, approval=THIRD.approval, call=PUSH.call), ApprovalJoined(at=NOW, approval=THIRD.approval, call=SAME.call)
    )


def test_calls_that_joined_are_denied_with_one_that_meets_a_storm_of_asks() -> None:
    here = given(ready(), asked(PUSH), asked(SAME), answer(PUSH), TAINTED).under(breaker=BreakerLimits(asks=1))
    here.when(proceed(PUSH)).then(LoopDetected, like(CallDenied, call=PUSH.call), like(CallDenied, call=SAME.call))


def test_calls_that_joined_still_share_the_outcome_after_a_standing_answer() -> None:
    here = given(ready(), asked(PUSH), asked(SAME), answer(PUSH), TAINTED, ChangeMode(by=ANN, mode=Mode.BYPASS), proceed(PUSH))
    here.when(finished(PUSH)).then(CallFinished, like(CallDropped, call=SAME.call, shares=PUSH.call))


# Nobody to ask


def test_without_a_route_an_ask_is_parked_or_denied_as_configured() -> None:
    given(ready()).under(unrouted="park").when(asked(PUSH)).then(CallRequested, ApprovalAsked)
    here = given(ready()).under(unrouted="deny")
    here.when(asked(PUSH)).then(CallRequested, like(CallDenied, verdict__because=("no-route",)))
    here.happened(RouteAdded(at=NOW, route=Route(channel="matrix", reference="!room"), by=ANN)).when(asked(PUSH)).then(
        CallRequested, ApprovalAsked
    )


# Hooks


def hook(effect: str) -> HookSays:
    return HookSays.model_validate({"effect": effect, "hook": "guard", "reason": "not on a Friday"})


@covers("session.hooks-only-tighten")
def test_a_hook_can_deny_what_the_rules_allow() -> None:
    here = given(ready()).when(requested(wish("c1", LOOK.subject, hook=hook("deny"))))
    here.then(CallRequested, like(CallDenied, verdict=denial("hook:guard", "not on a Friday")))


@covers("session.hooks-only-tighten")
def test_a_hook_does_not_soften_a_denial() -> None:
    here = given(ready()).when(requested(wish("c1", METADATA.subject, hook=hook("ask"))))
    here.then(CallRequested, like(CallDenied, verdict__because=("forbidden-address",)))


def test_a_hook_that_asks_asks_about_every_resource_of_the_call() -> None:
    mixed = wish("c1", read("/srv/own/a", "/etc/passwd"), hook=hook("ask"))
    here = given(ready(), asked(mixed))
    guard, outside = RuleId("hook:guard"), RuleId("read-outside")
    assert here.state.approvals[mixed.approval].asked.covers == (
        Cover(role=Role.USE_TOOL, value="filesystem.read_multiple_files", rules=(guard,)),
        Cover(role=Role.READ_PATH, value="/srv/own/a", rules=(guard,)),
        Cover(role=Role.READ_PATH, value="/etc/passwd", rules=(outside, guard)),
    )
    shown = here.state.approvals[mixed.approval].asked.shown
    assert "(read-outside, hook:guard)" in shown
    assert "not on a Friday" in shown


def test_a_grant_for_a_hooks_ask_covers_what_was_shown_and_no_other_call_of_the_tool() -> None:
    first = wish("c1", LOOK.subject, hook=hook("ask"))
    here = given(ready(), asked(first), answer(first, scope=GrantScope.SESSION), proceed(first))
    here.when(asked(wish("c2", LOOK.subject, hook=hook("ask")))).then(CallRequested, like(CallPermitted, answered_by=(first.grant,)))
    here.when(asked(wish("c3", read("/srv/own/b"), hook=hook("ask")))).then(CallRequested, ApprovalAsked)


# What never became a subject


def test_a_call_without_a_meaning_is_logged_as_denied() -> None:
    verdict = denial("unknown-tool", "there is no such tool")
    refuse = RefuseCall(by=SYSTEM, call=CallId("c1"), subject=LOOK.subject, verdict=verdict, turn=TURN)
    here = given(ready()).when(refuse)
    here.then(
        CallRequested(at=NOW, call=CallId("c1"), subject=LOOK.subject, turn=TURN), CallDenied(at=NOW, call=CallId("c1"), verdict=verdict)
    )


@pytest.mark.parametrize("effect", [Effect.ALLOW, Effect.ASK])
def test_a_call_without_a_meaning_is_never_allowed_or_asked_about(effect: Effect) -> None:
    verdict = Verdict(effect=effect, because=())
    refuse = RefuseCall(by=SYSTEM, call=CallId("c1"), subject=LOOK.subject, verdict=verdict)
    given(ready()).when(refuse).then_refused("a call without a meaning can only be denied")


def test_one_call_touches_at_most_256_resources() -> None:
    just = wish("c1", read(*(f"/srv/own/{number}" for number in range(MANY_RESOURCES - 1))))
    given(ready()).when(requested(just)).then(CallRequested, CallPermitted)
    many = wish("c1", read(*(f"/srv/own/{number}" for number in range(MANY_RESOURCES))))
    given(ready()).when(requested(many)).then(CallRequested, like(CallDenied, verdict__because=("too-many-resources",)))


# Budgets of calls and bytes


@covers("session.past-the-call-budget-nothing-is-logged")
def test_past_the_budget_of_calls_a_call_is_refused_without_an_event() -> None:
    words = "this session has made 1 calls, as many as it may"
    here = given(ready(), requested(LOOK), finished(LOOK)).under(calls=1)
    here.when(requested(LOOK.again("c2"))).then_refused(words, OverBudget)
    refuse = RefuseCall(by=SYSTEM, call=CallId("c2"), subject=LOOK.subject, verdict=denial("unknown-tool", "no"))
    here.when(refuse).then_refused(words, OverBudget)


def test_past_the_budget_of_bytes_a_call_is_refused_without_an_event() -> None:
    here = given(ready()).under(logged_bytes=1_000)
    here.holding(999).when(requested(LOOK)).then(CallRequested, CallPermitted)
    here.holding(1_000).when(requested(LOOK)).then_refused("this session's log holds 1000 bytes, as many as it may", OverBudget)


# Ids


def test_an_approval_never_gets_an_id_that_is_taken() -> None:
    taken = asked(PUSH).model_copy(update={"subject": push("github.com/me/other")})
    here = given(ready(), asked(PUSH), drop("c1")).when(taken)
    here.then(CallRequested, like(ApprovalAsked, approval=PUSH.next_approval))


def test_when_every_id_is_taken_the_command_is_refused() -> None:
    here = given(ready())
    for number in range(100):
        here = here.happened(asked(wish("c1", push(f"github.com/me/{number}"))), drop("c1")).later(60_000)
    here.when(asked(PUSH)).then_refused("no free approval id", CommandRefused)


def test_own_workspaces_are_free_and_projects_ask_for_edits() -> None:
    given(ready(OWN)).when(requested(wish("c1", write("/srv/own/a")))).then(CallRequested, CallPermitted)
    given(ready(PROJECT)).when(requested(wish("c1", read("/srv/project/a")))).then(CallRequested, CallPermitted)
    given(ready(PROJECT)).when(requested(wish("c1", write("/srv/project/a")))).then(CallRequested, ApprovalAsked)


def test_plan_mode_inspects_and_changes_nothing() -> None:
    here = given(ready(mode=Mode.PLAN))
    here.when(requested(LOOK)).then(CallRequested, CallPermitted)
    here.when(requested(wish("c1", write("/srv/own/a")))).then(CallRequested, like(CallDenied, verdict__because=("plan-reads-only",)))


UNSEEN = wish("c1", push("github.com/me/r")).subject.model_copy(update={"masked": True})
OUTLINED = UNSEEN.model_copy(update={"hidden": {"[masked:password:12345678]": "letters and digits", "[masked:token:87654321]": "$(…\n…)"}})


@covers("session.nobody-is-asked-about-what-they-cannot-be-shown")
def test_a_card_shows_what_its_masks_hide_in_outline() -> None:
    hidden = asked(PUSH).model_copy(update={"subject": OUTLINED})
    here = given(ready()).when(hidden).then(CallRequested, like(ApprovalAsked, digest=OUTLINED.digest))
    lines = here.log[-1].shown.split("\n")
    assert "hides [masked:password:12345678]: letters and digits" in lines
    assert "hides [masked:token:87654321]: $(…\\n…)" in lines


@covers("session.nobody-is-asked-about-what-they-cannot-be-shown")
def test_what_holds_a_part_that_nobody_would_be_shown_is_denied_where_it_would_be_asked_about() -> None:
    unseen = asked(PUSH).model_copy(update={"subject": UNSEEN})
    here = given(ready()).when(unseen).then(CallRequested, like(CallDenied, call=PUSH.call))
    assert here.log[-1].verdict.because == ("masked-arguments",)


@covers("session.nobody-is-asked-about-what-they-cannot-be-shown")
def test_a_yes_to_what_can_no_longer_be_read_answers_nothing_else() -> None:
    gone = drop("c1").model_copy(update={"keep_answer": False})
    here = given(ready(), asked(PUSH), answer(PUSH)).when(gone).then(like(CallDropped, call=PUSH.call))
    assert here.state.grants == {}


def test_changed_instructions_are_granted_once_alone() -> None:
    follow = wish("c1", subject(FOLLOW_INSTRUCTIONS, ToolEffect.MODIFY, Resource(role=Role.READ_PATH, value="/srv/own/AGENTS.md")))
    here = given(ready(), asked(follow))
    here.when(answer(follow, scope=GrantScope.SESSION)).then_refused("once at a time", NotAllowed)
    here.happened(answer(follow))


def test_a_skill_that_nobody_has_seen_is_granted_once_alone() -> None:
    trust = Resource(role=Role.USE_TOOL, value=TRUST_SKILL, facts=ToolFacts(server="session", effect=ToolEffect.INSPECT))
    load = wish("c1", subject(LOAD_SKILL, ToolEffect.INSPECT, Resource(role=Role.READ_PATH, value="/srv/own/.claude/skills/a"), trust))
    here = given(ready(), asked(load))
    here.when(answer(load, scope=GrantScope.SESSION)).then_refused("once at a time", NotAllowed)
    here.happened(answer(load))


def test_a_call_of_a_program_that_would_wait_or_act_needs_the_program() -> None:
    here = given(ready(), turn_running())
    of_program = {"turn": TURN, "of_program": True}
    push, look = asked(PUSH).model_copy(update=of_program), requested(LOOK).model_copy(update=of_program)
    assert needs_program(push, here.when(push).events)
    assert not needs_program(look, here.when(look).events)
    program = SavedProgram(program="p1", step=3, state=Payload(inline="…"))
    saved = push.model_copy(update={"program": program})
    assert not needs_program(saved, here.when(saved).events)
    assert with_program(push, here.when(push).events, program) == here.when(saved).events
    assert with_program(look, here.when(look).events, program) == here.when(look).events
