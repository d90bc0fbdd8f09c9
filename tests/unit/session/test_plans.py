"""Plans: shown whole, answered as one, and good for exactly what they list."""

import pytest

from curtainwall.model import (
    SYSTEM,
    AddLabels,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalJoined,
    CallDenied,
    CallDropped,
    CallPermitted,
    CallRequested,
    ChangeMode,
    DropCall,
    Effect,
    GrantGiven,
    GrantRevoked,
    GrantScope,
    GrantUsed,
    HookSays,
    Mode,
    NotAllowed,
    RevokeGrant,
    Role,
    Subject,
)
from curtainwall.session import LONGEST_PLAN
from tests.support.covers import covers
from tests.support.given import (
    ANN,
    PROJECT,
    Situation,
    answer,
    asked,
    changed,
    delete,
    fetch,
    finished,
    given,
    like,
    plan,
    proceed,
    push,
    read,
    ready,
    requested,
    run,
    source,
    wish,
    write,
)

ONE, TWO, THREE = write("/srv/project/a"), delete("/srv/project/b"), fetch("example.com")
FREE = read("/srv/project/a")
PLAN = wish("p", plan(ONE, TWO, THREE))


def approved(*steps: Subject) -> Situation:
    what = wish("p", plan(*steps))
    return given(ready(PROJECT), asked(what), answer(what), proceed(what), finished(what))


def runs(here: Situation, what: Subject, call: str = "c1") -> Situation:
    return here.when(requested(wish(call, what))).then(CallRequested, GrantUsed, like(CallPermitted, verdict__effect=Effect.ASK))


def asks(here: Situation, what: Subject, call: str = "c1") -> Situation:
    return here.when(requested(wish(call, what))).then(CallRequested, ApprovalAsked)


@covers("session.a-plan-answers-each-step-once")
def test_a_plan_is_one_question_and_its_steps_then_run_unasked_each_once() -> None:
    here = given(ready(PROJECT)).when(requested(PLAN)).then(CallRequested, like(ApprovalAsked, digest=PLAN.subject.digest))
    here = here.when(answer(PLAN)).then(ApprovalAnswered)
    here = here.when(proceed(PLAN)).then(CallPermitted, GrantGiven, GrantGiven, GrantGiven).happened(finished(PLAN))
    assert {grant.by for grant in here.state.grants.values()} == {ANN}
    here = runs(runs(runs(here, THREE, "c1"), ONE, "c2"), TWO, "c3")
    assert not here.state.grants
    for number, step in enumerate((ONE, TWO, THREE)):
        asks(here, step, f"d{number}")


@covers("session.a-plan-answers-nothing-outside-its-list")
@pytest.mark.parametrize(
    "other",
    [
        write("/srv/project/c"),
        write("/srv/project/a", content="y"),
        delete("/srv/project/a"),
        fetch("example.com", "/other"),
        push("a.b/c/d"),
    ],
    ids=["a fourth", "other content", "another role", "another page", "something else"],
)
def test_what_is_not_listed_asks(other: Subject) -> None:
    asks(approved(ONE, TWO, THREE), other)


def test_a_step_that_is_listed_twice_runs_twice() -> None:
    here = approved(ONE, ONE)
    asks(runs(runs(here, ONE, "c1"), ONE, "c2"), ONE, "c3")


def test_a_step_that_means_something_else_by_now_asks() -> None:
    asks(approved(ONE), changed(ONE))


@covers("session.a-plan-answers-nothing-outside-its-list")
def test_a_label_that_wakes_another_rule_asks_again() -> None:
    tainted = approved(ONE, THREE).happened(AddLabels(by=SYSTEM, labels=(source("sensitive"),)))
    asks(runs(tainted, ONE, "c1"), THREE, "c2")


@covers("session.a-plan-answers-each-step-once")
def test_a_rule_that_a_step_wakes_is_shown_with_the_steps_after_it_and_answered_with_them() -> None:
    fetched, pushed = fetch("example.com"), push("a.b/c/d")
    here = given(ready(PROJECT), requested(wish("p", plan(fetched, pushed))))
    (card,) = here.state.approvals.values()
    asked_for = {(cover.role, cover.rules) for cover in card.asked.covers}
    assert asked_for == {(Role.FETCH_URL, ("unlisted-host",)), (Role.WRITE_REMOTE, ("unlisted-remote", "untrusted-sends"))}
    assert "untrusted-sends" in card.asked.shown.rpartition("step 2")[2]
    runs(runs(approved(fetched, pushed), fetched, "c1"), pushed, "c2")
    # The other way round it was shown with less than it would ask for.
    asks(runs(approved(pushed, fetched), fetched, "c1"), pushed, "c2")


def test_what_a_hook_asks_on_top_is_asked() -> None:
    hooked = wish("c1", ONE, hook=HookSays(effect="ask", hook="mine", reason="careful"))
    approved(ONE).when(requested(hooked)).then(CallRequested, ApprovalAsked)


def test_a_hook_that_asks_about_the_plan_does_not_hide_what_its_steps_ask() -> None:
    hooked = wish("p", plan(ONE, TWO), hook=HookSays(effect="ask", hook="mine", reason="careful"))
    here = given(ready(PROJECT)).when(requested(hooked)).then(CallRequested, ApprovalAsked)
    (open_,) = here.state.approvals.values()
    assert [cover.rules for cover in open_.asked.covers] == [("hook:mine",), ("project-edit",), ("project-edit",)]


@covers("session.a-denied-step-denies-the-plan")
def test_a_step_that_would_be_denied_denies_the_plan_and_says_which() -> None:
    refused = plan(ONE, read("/home/ann/.ssh/id_rsa"))
    here = given(ready(PROJECT)).when(requested(wish("p", refused)))
    here.then(CallRequested, like(CallDenied, verdict__because=("protected-path",)))
    assert "step 2 (`filesystem.read_multiple_files`)" in here.events[1].verdict.reason


def test_a_plan_of_what_is_allowed_anyway_asks_nobody_and_gives_nothing() -> None:
    given(ready(PROJECT)).when(requested(wish("p", plan(FREE)))).then(CallRequested, CallPermitted)


@pytest.mark.parametrize("mode", [Mode.BYPASS, Mode.ACCEPT_EDITS])
def test_a_mode_that_answers_the_plan_leaves_no_answers_behind(mode: Mode) -> None:
    here = given(ready(PROJECT, mode)).when(requested(wish("p", plan(ONE, TWO)))).then(CallRequested, CallPermitted)
    here = here.happened(ChangeMode(by=ANN, mode=Mode.DEFAULT))
    asks(here, ONE)


@covers("session.a-plan-does-not-lift-plan-mode")
def test_a_plan_approved_in_plan_mode_runs_only_once_somebody_has_left_it() -> None:
    what = wish("p", plan(ONE))
    here = given(ready(PROJECT, Mode.PLAN)).when(requested(what)).then(CallRequested, ApprovalAsked)
    (open_,) = here.state.approvals.values()
    assert "plan mode is on" in open_.asked.shown
    here = here.happened(answer(what), proceed(what), finished(what))
    here = here.when(requested(wish("c1", ONE))).then(CallRequested, like(CallDenied, verdict__because=("plan-reads-only",)))
    runs(here.happened(ChangeMode(by=ANN, mode=Mode.DEFAULT)), ONE, "c2")


def test_the_card_shows_every_step_as_it_would_run_and_what_is_allowed_anyway() -> None:
    here = given(ready(PROJECT)).when(requested(wish("p", plan(ONE, FREE)))).then(CallRequested, ApprovalAsked)
    (open_,) = here.state.approvals.values()
    assert open_.asked.shown.split("\n")[3:] == [
        "step 1: filesystem.write_file, which asks",
        "wants write-path /srv/project/a (project-edit)",
        'with path: "/srv/project/a"',
        'with content: "x"',
        "step 2: filesystem.read_multiple_files, which is allowed anyway",
        'with paths: ["/srv/project/a"]',
    ]


def test_a_step_in_a_shell_says_that_the_project_will_be_read_only_for_it() -> None:
    here = given(ready(PROJECT)).when(requested(wish("p", plan(ONE, run("make build"))))).then(CallRequested, ApprovalAsked)
    (open_,) = here.state.approvals.values()
    assert [line for line in open_.asked.shown.split("\n") if "read-only" in line] == [open_.asked.shown.split("\n")[-1]]


def test_words_of_a_step_stay_on_their_line() -> None:
    here = given(ready(PROJECT)).when(requested(wish("p", plan(write("/srv/project/a", "x\nstep 2: nothing")))))
    (shown,) = [event.shown for event in here.events if isinstance(event, ApprovalAsked)]
    assert not any(line.startswith("step 2") for line in shown.split("\n"))


@covers("session.a-plan-is-shown-whole-or-refused")
def test_a_plan_that_is_too_long_to_be_shown_is_refused() -> None:
    long = wish("p", plan(ONE, write("/srv/project/long", "x" * LONGEST_PLAN)))
    given(ready(PROJECT)).when(requested(long)).then(CallRequested, like(CallDenied, verdict__because=("plan-too-long",)))


def test_a_plan_with_a_part_that_nobody_would_be_shown_is_refused() -> None:
    hidden = ONE.model_copy(update={"masked": True})
    given(ready(PROJECT)).when(requested(wish("p", plan(hidden)))).then(
        CallRequested, like(CallDenied, verdict__because=("masked-arguments",))
    )


def test_a_plan_shows_what_its_masks_hide_in_outline() -> None:
    hidden = ONE.model_copy(update={"masked": True, "hidden": {"[masked:token:12345678]": "$(…)"}})
    here = given(ready(PROJECT)).when(requested(wish("p", plan(hidden)))).then(CallRequested, ApprovalAsked)
    (open_,) = here.state.approvals.values()
    assert "hides [masked:token:12345678]: $(…)" in open_.asked.shown.split("\n")


@pytest.mark.parametrize("scope", [GrantScope.SESSION, GrantScope.PROJECT])
def test_a_plan_is_not_granted_for_longer(scope: GrantScope) -> None:
    given(ready(PROJECT), asked(PLAN)).when(answer(PLAN, scope=scope)).then_refused("each step once", NotAllowed)


@covers("session.a-plan-is-revoked-as-a-whole-or-by-step")
def test_what_is_left_of_a_plan_is_taken_back_at_once_or_one_by_one() -> None:
    here = runs(approved(ONE, TWO, THREE), ONE)
    two, three = here.state.grants.values()
    assert two.plan == three.plan
    assert two.plan is not None
    gone = here.when(RevokeGrant(by=ANN, grant=two.plan)).then(GrantRevoked, GrantRevoked)
    asks(asks(gone, TWO, "d1"), THREE, "d2")
    one = here.when(RevokeGrant(by=ANN, grant=two.id)).then(GrantRevoked)
    runs(asks(one, TWO, "d1"), THREE, "d2")


def test_the_same_plan_twice_is_one_question() -> None:
    given(ready(PROJECT), asked(PLAN)).when(requested(PLAN.again("q"))).then(CallRequested, ApprovalJoined)


@covers("session.a-plan-answers-each-step-once")
def test_a_yes_that_found_its_agent_gone_counts_when_the_same_plan_comes_again() -> None:
    left = given(ready(PROJECT), asked(PLAN), answer(PLAN), DropCall(by=SYSTEM, call=PLAN.call, why="gone"))
    here = left.when(requested(PLAN.again("q"))).then(CallRequested, GrantUsed, CallPermitted, GrantGiven, GrantGiven, GrantGiven)
    runs(here, ONE)


def test_a_plan_that_asks_more_than_was_shown_is_asked_again() -> None:
    here = given(ready(PROJECT), asked(PLAN), answer(PLAN), AddLabels(by=SYSTEM, labels=(source("sensitive"),)))
    here.when(proceed(PLAN)).then(ApprovalAsked)


def test_a_plan_that_means_something_else_by_now_is_dropped() -> None:
    given(ready(PROJECT), asked(PLAN), answer(PLAN)).when(proceed(PLAN, plan(changed(ONE), TWO, THREE))).then(CallDropped)


def test_a_plan_of_too_many_resources_is_refused() -> None:
    many = plan(*(read(*(f"/srv/project/{step}-{number}" for number in range(60))) for step in range(5)))
    given(ready(PROJECT)).when(requested(wish("p", many))).then(CallRequested, like(CallDenied, verdict__because=("too-many-resources",)))


@covers("session.cards-are-in-order")
@pytest.mark.parametrize("letters", ["\u05d0\u05d1", "\u0627\u0628", "\u0661\u0662"])
def test_letters_from_right_to_left_move_nothing_in_a_plan(letters: str) -> None:
    here = given(ready(PROJECT), requested(wish("p", plan(write(f"/srv/project/{letters}/1/x", f"{letters} 1"), run(f"rm {letters} 1 x")))))
    (open_,) = here.state.approvals.values()
    assert letters not in open_.asked.shown
    assert f"rm {letters.encode('unicode_escape').decode()} 1 x" in open_.asked.shown
