"""Standing answers: each covers everything that is asked, or nothing."""

import pytest

from curtainwall.model import (
    SYSTEM,
    AddLabels,
    ApprovalAsked,
    CallDenied,
    CallPermitted,
    CallRequested,
    ChangeMode,
    CloseSession,
    Cover,
    DisableRule,
    Effect,
    EnableRule,
    Finding,
    Grant,
    GrantGiven,
    GrantId,
    GrantScope,
    HookSays,
    Mode,
    RevokeGrant,
    Role,
    RuleId,
    Scope,
    Subject,
    ToolEffect,
    Verdict,
)
from curtainwall.session import Since, covered, covers_of, standing_answer, still_permitted
from tests.support.covers import covers
from tests.support.given import (
    ANN,
    NOW,
    PROJECT,
    RULES,
    Situation,
    answer,
    asked,
    delete,
    fetch,
    fetch_with_key,
    given,
    host,
    like,
    move,
    proceed,
    push,
    raise_of,
    read,
    ready,
    requested,
    run,
    source,
    subject,
    wish,
    write,
)

TAINTED = AddLabels(by=SYSTEM, labels=(source("sensitive"),))
PASSWD = wish("c1", read("/etc/passwd"))


def granted(what: Subject, scope: GrantScope = GrantScope.SESSION) -> Situation:
    first = wish("g1", what)
    return given(ready(), asked(first), answer(first, scope=scope))


def is_permitted(here: Situation, what: Subject, by: str) -> None:
    here.when(requested(wish("c1", what))).then(CallRequested, like(CallPermitted, answered_by=(by,), verdict__effect=Effect.ASK))


def is_asked(here: Situation, what: Subject) -> None:
    here.when(requested(wish("c1", what))).then(CallRequested, ApprovalAsked)


# Grants


@covers("session.a-grant-covers-every-asked-role-resource-and-rule")
@pytest.mark.parametrize("scope", [GrantScope.SESSION, GrantScope.PROJECT])
def test_a_grant_answers_the_same_role_and_resource_later(scope: GrantScope) -> None:
    here = granted(fetch("example.org"), scope)
    is_permitted(here, fetch("example.org", "/another/page"), wish("g1", fetch("example.org")).grant)


def test_an_answer_for_once_leaves_nothing_standing() -> None:
    is_asked(granted(fetch("example.org"), GrantScope.ONCE), fetch("example.org", "/another/page"))


@covers("session.a-grant-covers-every-asked-role-resource-and-rule")
def test_a_grant_for_reading_does_not_answer_a_move() -> None:
    here = granted(read("/etc/a"))
    is_permitted(here, read("/etc/a"), wish("g1", read("/etc/a")).grant)
    is_asked(here, move("/etc/a", "/srv/own/a"))
    is_asked(here, delete("/etc/a"))
    is_asked(here, write("/etc/a"))


def test_a_grant_does_not_answer_for_another_resource() -> None:
    here = granted(read("/etc/a"))
    is_asked(here, read("/etc/b"))
    is_asked(here, read("/etc/a", "/etc/b"))
    is_asked(here, read("/etc/a/b"))


@covers("session.a-grant-covers-every-asked-role-resource-and-rule")
def test_a_grant_from_before_a_label_does_not_answer_the_rule_that_the_label_woke() -> None:
    is_asked(granted(fetch("example.org")).happened(TAINTED), fetch("example.org"))


def test_a_grant_from_after_the_label_answers_for_both_rules() -> None:
    first = wish("g1", fetch("example.org"))
    here = given(ready(), TAINTED, asked(first), answer(first, scope=GrantScope.SESSION))
    is_permitted(here, fetch("example.org", "/x"), first.grant)


@covers("session.half-answers-do-not-add-up")
def test_two_half_answers_do_not_add_up() -> None:
    one, two = wish("g1", read("/etc/a")), wish("g2", read("/etc/b"))
    here = given(ready(), *(step for each in (one, two) for step in (asked(each), answer(each, scope=GrantScope.SESSION))))
    is_permitted(here, read("/etc/a"), one.grant)
    is_permitted(here, read("/etc/b"), two.grant)
    is_asked(here, read("/etc/a", "/etc/b"))


def test_a_grant_and_a_disabled_rule_do_not_add_up() -> None:
    here = granted(fetch("example.org")).happened(DisableRule(by=ANN, rule=RuleId("sensitive-stays")), TAINTED)
    is_asked(here, fetch("example.org"))


def test_a_grant_answers_a_part_of_what_it_covers() -> None:
    here = granted(read("/etc/a", "/etc/b"))
    is_permitted(here, read("/etc/b"), wish("g1", read("/etc/a", "/etc/b")).grant)


def test_a_revoked_grant_answers_nothing() -> None:
    first = wish("g1", read("/etc/a"))
    here = granted(read("/etc/a")).happened(RevokeGrant(by=ANN, grant=first.grant))
    is_asked(here, read("/etc/a"))


def test_a_grant_does_not_help_against_a_denial() -> None:
    cover = Cover(role=Role.FETCH_URL, value="https://metadata.google.internal", rules=(RuleId("forbidden-address"),))
    grant = Grant(id=GrantId("g1"), scope=GrantScope.SESSION, covers=(cover,), by=ANN, at=NOW)
    metadata = subject("fetch.get", ToolEffect.SEND, host(Role.FETCH_URL, "metadata.google.internal", Scope.FORBIDDEN))
    here = given(ready(mode=Mode.BYPASS), GrantGiven(at=NOW, grant=grant))
    here.when(requested(wish("c1", metadata))).then(CallRequested, CallDenied)


def test_only_what_asks_is_asked_about() -> None:
    findings = tuple(Finding(resource=place, effect=effect, because=()) for place, effect in enumerate(Effect))
    subject = read("/etc/a", "/etc/b")
    assert [cover.value for cover in covers_of(Verdict(effect=Effect.DENY, because=(), findings=findings), subject)] == ["/etc/a"]


def test_an_ask_that_says_nothing_is_answered_by_nothing() -> None:
    here = granted(read("/etc/a")).happened(ChangeMode(by=ANN, mode=Mode.BYPASS))
    silent = Verdict(effect=Effect.ASK, because=(RuleId("x"),))
    assert standing_answer(here.state, read("/etc/a"), covers_of(silent, read("/etc/a")), RULES) is None


def test_an_ask_for_which_no_rule_speaks_is_not_taken_for_a_disabled_one() -> None:
    silent = Verdict(effect=Effect.ASK, because=(), findings=(Finding(resource=1, effect=Effect.ASK, because=()),))
    for mode in (Mode.DEFAULT, Mode.ACCEPT_EDITS):
        assert standing_answer(given(ready(mode=mode)).state, read("/etc/a"), covers_of(silent, read("/etc/a")), RULES) is None


def test_covering_compares_role_resource_and_rules() -> None:
    def cover(role: Role, value: str, *rules: str) -> Cover:
        return Cover(role=role, value=value, rules=tuple(map(RuleId, rules)))

    shown = [cover(Role.READ_PATH, "/a", "one", "two")]
    assert covered([cover(Role.READ_PATH, "/a", "one")], shown)
    assert covered([cover(Role.READ_PATH, "/a", "two", "one")], shown)
    assert not covered([cover(Role.READ_PATH, "/a", "one", "three")], shown)
    assert not covered([cover(Role.READ_PATH, "/b", "one")], shown)
    assert not covered([cover(Role.WRITE_PATH, "/a", "one")], shown)


# Disabled rules


def test_a_disabled_rule_asks_no_more() -> None:
    here = given(ready(), DisableRule(by=ANN, rule=RuleId("read-outside")))
    is_permitted(here, read("/etc/a"), "disabled-rule")
    is_asked(here, write("/etc/a"))


def test_every_asking_rule_must_be_disabled() -> None:
    here = given(ready(), TAINTED, DisableRule(by=ANN, rule=RuleId("unlisted-host")))
    is_asked(here, fetch("example.org"))
    is_permitted(here.happened(DisableRule(by=ANN, rule=RuleId("sensitive-stays"))), fetch("example.org"), "disabled-rule")


# Modes


@covers("session.accept-edits-answers-edits-alone")
def test_accept_edits_answers_edits_in_the_project_alone() -> None:
    here = given(ready(PROJECT, Mode.ACCEPT_EDITS))
    is_permitted(here, write("/srv/project/a"), "mode:accept-edits")
    is_permitted(here, delete("/srv/project/a"), "mode:accept-edits")
    is_permitted(here, move("/srv/project/a", "/srv/project/b"), "mode:accept-edits")
    is_asked(here, write("/etc/a"))
    is_asked(here, move("/etc/a", "/srv/project/a"))
    is_asked(here, push("github.com/me/r"))


@covers("session.accept-edits-answers-edits-alone")
@pytest.mark.parametrize("file", [".git/hooks/pre-commit", ".envrc", ".vscode/tasks.json", ".mcp.json"])
def test_accept_edits_does_not_answer_for_files_that_run_later(file: str) -> None:
    is_asked(given(ready(PROJECT, Mode.ACCEPT_EDITS)), write(f"/srv/project/{file}"))


def test_bypass_answers_what_is_asked() -> None:
    here = given(ready(PROJECT, Mode.BYPASS), TAINTED)
    for what in (read("/etc/a"), write("/srv/project/.envrc"), push("github.com/me/r"), fetch("example.org")):
        is_permitted(here, what, "mode:bypass")


@covers("session.bypass-never-answers-for-credentials-or-budget")
def test_bypass_never_answers_for_credentials_or_budget() -> None:
    here = given(ready(mode=Mode.BYPASS))
    is_asked(here, fetch_with_key("docs.python.org", "github"))
    is_asked(here, fetch_with_key("example.org", "github"))
    is_asked(here, raise_of("tokens", 5))


def test_bypass_never_lifts_a_denial() -> None:
    here = given(ready(mode=Mode.BYPASS))
    here.when(requested(wish("c1", read("/home/ann/.ssh/id_rsa")))).then(
        CallRequested, like(CallDenied, verdict__because=("protected-path",))
    )


def test_what_is_allowed_needs_no_answer() -> None:
    here = given(ready(mode=Mode.BYPASS))
    here.when(requested(wish("c1", run("ls")))).then(CallRequested, like(CallPermitted, answered_by=()))


# What was permitted, looked at again

WEB = fetch("example.org")
NOTHING = Since()


def holds(here: Situation, since: Since = NOTHING, call: str = "c1") -> bool:
    """Tell whether the call that was permitted would be permitted now."""
    [permit] = [event for event in here.log if isinstance(event, CallPermitted) and event.call == call]
    [asked_for] = [event for event in here.log if isinstance(event, CallRequested) and event.call == call]
    return still_permitted(here.state, asked_for.subject, permit, here.rules, since)


def approved(what: Subject, hook: HookSays | None = None, scope: GrantScope = GrantScope.ONCE) -> Situation:
    first = wish("c1", what, hook=hook)
    return given(ready(), asked(first), answer(first, scope=scope), proceed(first))


def test_what_rules_permit_holds_until_the_mode_or_the_end_of_the_session_forbids_it() -> None:
    here = given(ready(), requested(wish("c1", write("/srv/own/a"))))
    assert holds(here)
    assert holds(here.happened(ChangeMode(by=ANN, mode=Mode.BYPASS)))
    assert not holds(here.happened(ChangeMode(by=ANN, mode=Mode.PLAN)))
    assert not holds(here.happened(CloseSession(by=ANN, reason="done")))


def test_a_yes_for_once_holds_for_what_it_was_a_yes_to() -> None:
    here = approved(WEB)
    assert holds(here)
    assert not holds(here.happened(TAINTED))


def test_a_yes_does_not_hold_where_a_grant_was_revoked_since_unless_another_stands() -> None:
    assert not holds(approved(WEB), Since(is_revoked=True))
    assert holds(approved(WEB, scope=GrantScope.SESSION), Since(is_revoked=True))


def test_what_a_mode_or_a_disabled_rule_answered_is_no_yes_of_a_person() -> None:
    by_mode = given(ready(mode=Mode.BYPASS), requested(wish("c1", WEB)))
    assert holds(by_mode)
    assert not holds(by_mode.happened(ChangeMode(by=ANN, mode=Mode.DEFAULT)))
    by_rule = given(ready(), DisableRule(by=ANN, rule=RuleId("unlisted-host")), requested(wish("c1", WEB)))
    assert holds(by_rule)
    assert not holds(by_rule.happened(EnableRule(by=ANN, rule=RuleId("unlisted-host"))))


def test_a_label_that_the_permit_brought_counts_against_it_only_when_something_else_brings_it() -> None:
    sends = subject("fetch.get", ToolEffect.SEND, host(Role.SEND_URL, "example.org"), url="https://example.org/")
    here = approved(sends)
    brought = [label for label, from_ in here.state.labels.items() if from_.call == "c1"]
    assert brought, "it brings no label"
    assert holds(here)
    assert not holds(here, Since(labels=brought))


def test_what_a_hook_asked_about_holds_by_a_yes_of_a_person_alone() -> None:
    hook = HookSays(hook="mine", effect="ask", reason="it says so")
    here = approved(write("/srv/own/a"), hook)
    assert holds(here)
    assert not holds(here, Since(is_revoked=True))
    granted_before = approved(write("/srv/own/a"), hook, GrantScope.SESSION).happened(requested(wish("c2", write("/srv/own/a"), hook=hook)))
    assert holds(granted_before, call="c2")
    assert not holds(granted_before, Since(is_revoked=True), call="c2")
    assert not holds(given(ready(mode=Mode.BYPASS), requested(wish("c1", write("/srv/own/a"), hook=hook))))


@covers("approvals.a-yes-says-what-it-answers")
@pytest.mark.parametrize("scope", [GrantScope.SESSION, GrantScope.PROJECT])
def test_a_lasting_yes_to_what_a_hook_asked_about_is_for_that_call(scope: GrantScope) -> None:
    hook = HookSays(hook="mine", effect="ask", reason="look at the content")
    first = wish("g1", write("/srv/own/a", "harmless"), hook=hook)
    here = given(ready(), asked(first), answer(first, scope=scope), proceed(first))
    here.when(requested(wish("c1", write("/srv/own/a", "harmful"), hook=hook))).then(CallRequested, ApprovalAsked)
    here.when(requested(wish("c2", first.subject, hook=hook))).then(CallRequested, like(CallPermitted, answered_by=(first.grant,)))


@covers("approvals.a-yes-says-what-it-answers")
@pytest.mark.parametrize(
    ("role", "value", "rule", "why"),
    [
        (Role.WRITE_PATH, "/srv/own/a", "hook:mine", "for a hook's question without the call itself"),
        (Role.USE_TOOL, "session.remember_for_all", "general-note", "for a tool without its arguments"),
        (Role.USE_TOOL, "git.push_secrets", "secrets-pushed", "for a tool without its arguments"),
        (Role.RUN_COMMAND, "make", "command-asks", "for a command without its directory and limits"),
        (Role.FETCH_URL, "https://example.org", "unlisted-host", ""),
    ],
)
def test_an_old_grant_that_leaves_open_what_was_approved_answers_nothing(role: Role, value: str, rule: str, why: str) -> None:
    cover = Cover(role=role, value=value, rules=(RuleId(rule),))
    grant = Grant(id=GrantId("g0"), scope=GrantScope.SESSION, covers=(cover,), by=ANN, at=NOW)
    assert grant.lapsed == (f"it was given {why}; approve the call again" if why else "")
    assert not grant.model_copy(update={"digest": wish("c", read("/a")).subject.digest}).lapsed
