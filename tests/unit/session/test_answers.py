"""Answers: the first one wins, late ones hear the truth, deadlines pass, grants are taken back."""

import pytest
from pydantic import JsonValue

from curtainwall.model import (
    SYSTEM,
    AlreadyAnswered,
    AnswerApproval,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalExpired,
    ApprovalId,
    CallDenied,
    CallPermitted,
    CallRequested,
    Cover,
    DropCall,
    ExpireApprovals,
    Grant,
    GrantGiven,
    GrantId,
    GrantRevoked,
    GrantScope,
    NotAllowed,
    NotFound,
    RevokeGrant,
    Role,
    RuleId,
    ToolEffect,
    denial,
)
from curtainwall.session import SETTLED_KEPT, CallStatus, scope_of_answer
from tests.support.covers import covers
from tests.support.given import (
    ANN,
    BOB,
    EVE,
    NOW,
    OLGA,
    Wish,
    answer,
    asked,
    fetch_with_key,
    given,
    like,
    push,
    raise_of,
    read,
    ready,
    subject,
    wish,
)

PUSH = wish("c1", push("github.com/me/r"))
OTHER = wish("c2", push("github.com/me/other"))
EXPIRE = ExpireApprovals(by=SYSTEM)
CLOCK = "2023-11-14 22:13:20 UTC"


@covers("session.first-answer-wins")
def test_the_first_answer_settles_the_approval() -> None:
    (
        given(ready(), asked(PUSH))
        .when(answer(PUSH, granted=False, by=ANN))
        .then(
            ApprovalAnswered(at=NOW, approval=PUSH.approval, granted=False, by=ANN),
            CallDenied(at=NOW, call=PUSH.call, verdict=denial("denied-by-human", "a human denied it")),
        )
        .when(answer(PUSH, granted=True, by=BOB))
        .then_refused(f"already answered by `ann`: denied at {CLOCK}", AlreadyAnswered)
    )


@covers("session.first-answer-wins")
def test_a_second_yes_is_told_by_whom_and_when_it_was_granted() -> None:
    (
        given(ready(), asked(PUSH))
        .when(answer(PUSH, by=OLGA))
        .then(ApprovalAnswered(at=NOW, approval=PUSH.approval, granted=True, by=OLGA))
        .later(1_000)
        .when(answer(PUSH, by=ANN))
        .then_refused(f"already answered by `olga on matrix`: granted at {CLOCK}", AlreadyAnswered)
    )


def test_a_denial_tells_the_agent_the_reason() -> None:
    here = given(ready(), asked(PUSH)).when(answer(PUSH, granted=False, reason="not this branch"))
    here.then(like(ApprovalAnswered, reason="not this branch"), like(CallDenied, verdict__reason="a human denied it: not this branch"))


def test_two_approvals_are_answered_independently_and_in_any_order() -> None:
    here = given(ready(), asked(PUSH), asked(OTHER), answer(OTHER))
    assert here.state.calls[OTHER.call].standing is CallStatus.ANSWERED
    assert here.state.calls[PUSH.call].standing is CallStatus.ASKED
    here.when(answer(PUSH, granted=False)).then(ApprovalAnswered, like(CallDenied, call=PUSH.call))


@covers("session.only-operators-answer")
def test_being_in_the_room_is_not_enough_to_answer() -> None:
    words = "`eve` is not an operator of `matrix` and may not answer"
    given(ready(), asked(PUSH)).when(answer(PUSH, by=EVE)).then_refused(words, NotAllowed)


@covers("session.only-operators-answer")
def test_who_may_not_answer_learns_nothing_about_approvals() -> None:
    words = "`eve` is not an operator of `matrix` and may not answer"
    given(ready(), asked(PUSH), answer(PUSH)).when(answer(PUSH, by=EVE)).then_refused(words, NotAllowed)
    given(ready()).when(answer(PUSH, by=EVE)).then_refused(words, NotAllowed)


def test_an_approval_that_never_was_is_not_found() -> None:
    unknown = AnswerApproval(by=ANN, approval=ApprovalId("zzzzzz"), granted=True)
    given(ready(), asked(PUSH)).when(unknown).then_refused("there is no approval `zzzzzz` in this session", NotFound)


def test_an_answer_to_a_withdrawn_approval_hears_that() -> None:
    here = given(ready(), asked(PUSH), DropCall(by=SYSTEM, call=PUSH.call, why="the agent went away"))
    words = f"too late: approval `{PUSH.approval}` was withdrawn at {CLOCK} (the agent went away)"
    here.when(answer(PUSH)).then_refused(words, AlreadyAnswered)


# Scopes


@pytest.mark.parametrize("scope", [GrantScope.SESSION, GrantScope.PROJECT])
def test_an_answer_with_a_scope_gives_a_grant_for_what_was_shown(scope: GrantScope) -> None:
    cover = Cover(role=Role.WRITE_REMOTE, value="github.com/me/r", rules=(RuleId("unlisted-remote"),))
    grant = Grant(id=PUSH.grant, scope=scope, covers=(cover,), by=ANN, at=NOW)
    here = given(ready(), asked(PUSH)).when(answer(PUSH, scope=scope))
    here.then(ApprovalAnswered(at=NOW, approval=PUSH.approval, granted=True, by=ANN, scope=scope), GrantGiven(at=NOW, grant=grant))


def test_a_denial_has_no_scope() -> None:
    here = given(ready(), asked(PUSH)).when(answer(PUSH, granted=False, scope=GrantScope.SESSION))
    here.then(like(ApprovalAnswered, scope=GrantScope.ONCE), CallDenied)


@covers("session.a-scope-covers-only-what-was-shown-whole")
@pytest.mark.parametrize("scope", [GrantScope.SESSION, GrantScope.PROJECT])
@pytest.mark.parametrize("paths", [["/etc/" + "x" * 3_000], [f"/etc/{number:0100}" for number in range(200)]], ids=["long", "many"])
def test_what_was_too_long_to_be_shown_whole_is_granted_once_alone(paths: list[str], scope: GrantScope) -> None:
    flood = wish("c1", read(*paths))
    here = given(ready(), asked(flood))
    here.when(answer(flood, scope=scope)).then_refused("too long to be shown whole, so it can be granted once alone", NotAllowed)
    here.when(answer(flood, scope=scope, granted=False)).then(ApprovalAnswered, CallDenied)
    here.when(answer(flood)).then(ApprovalAnswered)


# Credentials


KEY = wish("c1", fetch_with_key("docs.python.org", "github"))
KEY_ELSEWHERE = wish("c1", fetch_with_key("example.org", "github"))


@covers("credentials.are-asked-for-once-per-session")
def test_a_plain_yes_to_a_credential_holds_for_the_session() -> None:
    cover = Cover(role=Role.USE_CREDENTIAL, value="github", rules=(RuleId("credential-asks"),))
    grant = Grant(id=KEY.grant, scope=GrantScope.SESSION, covers=(cover,), by=ANN, at=NOW)
    here = given(ready(), asked(KEY)).when(answer(KEY))
    after = here.then(
        ApprovalAnswered(at=NOW, approval=KEY.approval, granted=True, by=ANN, scope=GrantScope.SESSION), GrantGiven(at=NOW, grant=grant)
    )
    again = wish("c2", fetch_with_key("docs.python.org", "github"))
    after.when(asked(again)).then(CallRequested, like(CallPermitted, answered_by=(KEY.grant,)))
    other = wish("c3", fetch_with_key("docs.python.org", "gitlab"))
    after.when(asked(other)).then(CallRequested, ApprovalAsked)
    revoked = after.happened(RevokeGrant(by=ANN, grant=KEY.grant))
    revoked.when(asked(again)).then(CallRequested, ApprovalAsked)


def test_a_plain_yes_to_more_than_a_credential_holds_once() -> None:
    given(ready(), asked(KEY_ELSEWHERE)).when(answer(KEY_ELSEWHERE)).then(like(ApprovalAnswered, scope=GrantScope.ONCE))


def test_an_automatic_approver_says_yes_to_a_credential_once() -> None:
    given(ready(), asked(KEY)).when(answer(KEY, by=SYSTEM)).then(like(ApprovalAnswered, scope=GrantScope.ONCE))


def test_a_denied_credential_leaves_nothing_standing() -> None:
    given(ready(), asked(KEY)).when(answer(KEY, granted=False)).then(like(ApprovalAnswered, scope=GrantScope.ONCE), CallDenied)


@covers("credentials.are-asked-for-once-per-session")
@pytest.mark.parametrize("what", [KEY, KEY_ELSEWHERE], ids=["alone", "with a host"])
def test_a_credential_is_never_granted_for_a_project(what: Wish) -> None:
    here = given(ready(), asked(what))
    here.when(answer(what, scope=GrantScope.PROJECT)).then_refused("which is granted for one session at most", NotAllowed)
    here.when(answer(what, scope=GrantScope.PROJECT, granted=False)).then(ApprovalAnswered, CallDenied)
    here.when(answer(what, scope=GrantScope.SESSION)).then(like(ApprovalAnswered, scope=GrantScope.SESSION), GrantGiven)


@pytest.mark.parametrize(
    ("rules", "reaches"),
    [
        (("credential-asks",), GrantScope.SESSION),
        (("credential-asks", "mine"), GrantScope.ONCE),
        (("mine",), GrantScope.ONCE),
        ((), GrantScope.ONCE),
    ],
)
def test_a_rule_of_ones_own_about_a_credential_can_ask_every_time(rules: tuple[str, ...], reaches: GrantScope) -> None:
    cover = Cover(role=Role.USE_CREDENTIAL, value="github", rules=tuple(map(RuleId, rules)))
    assert scope_of_answer(GrantScope.ONCE, (cover,)) is reaches
    assert scope_of_answer(GrantScope.ONCE, ()) is GrantScope.ONCE
    assert scope_of_answer(GrantScope.PROJECT, (cover,)) is GrantScope.PROJECT


# Deadlines


@covers("session.deadlines-deny")
def test_what_nobody_answers_in_time_expires_and_is_denied() -> None:
    same = PUSH.again("c3")
    here = given(ready()).under(deadline=1_000).happened(asked(PUSH), asked(same)).under(deadline=None).happened(asked(OTHER))
    here.later(999).when(EXPIRE).then_nothing()
    verdict = denial("approval-expired", "nobody answered in time")
    after = (
        here.later(1_000)
        .when(EXPIRE)
        .then(
            ApprovalExpired(at=NOW + 1_000, approval=PUSH.approval),
            CallDenied(at=NOW + 1_000, call=PUSH.call, verdict=verdict),
            CallDenied(at=NOW + 1_000, call=same.call, verdict=verdict),
        )
    )
    assert list(after.state.approvals) == [OTHER.approval]
    after.when(answer(PUSH)).then_refused(f"too late: approval `{PUSH.approval}` expired at 2023-11-14 22:13:21 UTC", AlreadyAnswered)
    after.when(EXPIRE).then_nothing()


@covers("approvals.deadline-and-the-clock")
def test_what_is_overdue_by_a_clock_that_nobody_sets_expires_at_any_time_of_day_unless_it_has_no_deadline() -> None:
    here = given(ready()).under(deadline=1_000).happened(asked(PUSH)).under(deadline=None).happened(asked(OTHER))
    expire = ExpireApprovals(by=SYSTEM, overdue=(PUSH.approval, OTHER.approval, ApprovalId("nobody")))
    after = here.later(1).when(expire).then(ApprovalExpired, CallDenied)
    assert list(after.state.approvals) == [OTHER.approval]


@covers("session.deadlines-deny")
def test_an_answer_after_the_deadline_is_too_late_even_before_anyone_noticed() -> None:
    here = given(ready()).under(deadline=1_000).happened(asked(PUSH))
    here.later(999).when(answer(PUSH)).then(ApprovalAnswered)
    words = f"too late: the deadline of approval `{PUSH.approval}` passed at 2023-11-14 22:13:21 UTC"
    here.later(1_000).when(answer(PUSH)).then_refused(words, AlreadyAnswered)


# Taking back


def test_a_grant_is_taken_back_by_an_operator() -> None:
    here = given(ready(), asked(PUSH), answer(PUSH, scope=GrantScope.SESSION))
    revoke = RevokeGrant(by=OLGA, grant=PUSH.grant)
    here.when(revoke.model_copy(update={"by": EVE})).then_refused("`eve` is not an operator of `matrix` and may not revoke", NotAllowed)
    here = here.when(revoke).then(GrantRevoked(at=NOW, grant=PUSH.grant, by=OLGA))
    here.when(revoke).then_refused(f"there is no grant `{PUSH.grant}` in this session", NotFound)


def test_a_grant_that_stands_elsewhere_is_not_found_here() -> None:
    here = given(ready(), asked(PUSH), answer(PUSH, scope=GrantScope.PROJECT))
    here.when(RevokeGrant(by=ANN, grant=PUSH.grant)).then_refused("there is no grant", NotFound)
    here.when(RevokeGrant(by=ANN, grant=GrantId("nope"))).then_refused("there is no grant `nope`", NotFound)


# Memory


def test_the_newest_settlements_are_remembered_and_memory_stays_flat() -> None:
    here = given(ready())
    wishes = [wish(f"c{number}", push(f"github.com/me/{number}")) for number in range(3 * SETTLED_KEPT)]
    for each in wishes:
        here = here.later(10_000).happened(asked(each), answer(each, granted=False))
        assert len(here.state.settled) < 2 * SETTLED_KEPT
    for each in wishes[-SETTLED_KEPT:]:
        here.when(answer(each)).then_refused("already answered by `ann`", AlreadyAnswered)
    here.when(answer(wishes[0])).then_refused("there is no approval", NotFound)


def test_a_raise_of_a_budget_is_granted_once_at_a_time() -> None:
    raising = wish("c1", raise_of("tokens", 2_000_000))
    asked_for = given(ready(), asked(raising))
    asked_for.when(answer(raising, scope=GrantScope.SESSION)).then_refused("once at a time", NotAllowed)


@covers("session.a-scope-covers-only-what-was-shown-whole")
@pytest.mark.parametrize("scope", [GrantScope.SESSION, GrantScope.PROJECT])
@pytest.mark.parametrize(
    "arguments", [{"text": "x" * 3_000}, {f"a{number}": "x" * 1_000 for number in range(10)}, {"text": "\u05d0" * 400}]
)
def test_a_call_whose_arguments_were_cut_is_granted_once_alone(arguments: dict[str, JsonValue], scope: GrantScope) -> None:
    words = f"approval `{wish('c1', read('/a')).approval}` was too long to be shown whole, so it can be granted once alone"
    pay = wish("c1", subject("pay.echo", ToolEffect.SEND, **arguments))
    here = given(ready(), asked(pay))
    here.when(answer(pay, scope=scope)).then_refused(words, NotAllowed)
    here.when(answer(pay)).then(ApprovalAnswered)
