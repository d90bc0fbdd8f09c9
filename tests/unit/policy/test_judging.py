"""Verdicts in the corners that the corpus cannot reach: failures, order, memory, speed of memory."""

from dataclasses import replace

import pytest

from curtainwall.model import Effect, Label, Mode, Resource, Role, RuleId, SubjectKind, ToolEffect, ToolFacts, Workspace
from curtainwall.policy import Lists, SessionFacts, explain, judge, labels_of
from curtainwall.policy.cedar import FAILED
from curtainwall.policy.entities import path_entity, question
from curtainwall.policy.rulebook import Cache
from tests.support.policies import call, command, plain, policy, read, session, subject, tool, url, write

ERROR = (RuleId("policy-error"),)


def test_findings_carry_their_index_and_the_verdict_the_strictest_reason() -> None:
    verdict = judge(policy(), call(read("/w/a"), read("/etc/x"), write("/etc/y"), effect=ToolEffect.MODIFY), session())
    assert [(finding.resource, finding.effect, finding.because) for finding in verdict.findings] == [
        (0, Effect.ALLOW, ("known-tool",)),
        (1, Effect.ALLOW, ("workspace-free",)),
        (2, Effect.ASK, ("read-outside",)),
        (3, Effect.ASK, ("change-outside",)),
    ]
    assert verdict.because == ("read-outside", "change-outside")
    assert verdict.reason == (
        "Reading outside the workspace asks (other files may be private); "
        "Writing or deleting outside the workspace asks (other files are not the session's)"
    )


def test_a_rule_without_a_reason_is_told_by_its_title() -> None:
    verdict = judge(policy('@id("not-this") forbid (principal, action, resource in Path::"/w");'), call(read("/w/a")), session())
    assert verdict.reason == "not this"


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("value", ["", " ", "\0", "\ud800", "x\ud800"])
def test_a_value_that_means_nothing_is_denied(role: Role, value: str) -> None:
    judged = judge(
        policy('@id("all") permit (principal, action, resource);'), subject(plain(role, value), kind=SubjectKind.EGRESS), session()
    )
    assert (judged.effect, judged.because) == (Effect.DENY, ERROR)


@pytest.mark.parametrize(
    "resource",
    [
        Resource(role=Role.USE_TOOL, value="test.tool", facts=None),
        Resource(role=Role.USE_TOOL, value="test.tool", facts=ToolFacts(server="other", effect=ToolEffect.INSPECT)),
        Resource(role=Role.FETCH_URL, value="https://a.com", facts=ToolFacts(server="a", effect=ToolEffect.INSPECT)),
        Resource(role=Role.READ_REMOTE, value="a.com/b/c", facts=url("b.com").facts),
        Resource(role=Role.READ_REMOTE, value="a.com/b/c", facts=command("a").facts),
        Resource(role=Role.USE_CREDENTIAL, value="a", facts=command("a").facts),
        url("127.1"),
        url("a.com", port=2**70),
    ],
)
def test_wrong_facts_are_denied(resource: Resource) -> None:
    verdict = judge(policy(lists=Lists(hosts=("*",), remotes=("*",))), subject(resource, kind=SubjectKind.EGRESS), session())
    assert (verdict.effect, verdict.because) == (Effect.DENY, ERROR)


@pytest.mark.parametrize(
    "facts",
    [
        session(workspace="w"),
        session(workspace=""),
        session(workspace="/w/"),
        session(workspace="/\ud800"),
        session(labels=["\ud800"]),
        SessionFacts("\ud800", "a", Workspace(path="/w", own=True), session().mode, "c", frozenset()),
        SessionFacts("s", "\ud800", Workspace(path="/w", own=True), session().mode, "c", frozenset()),
        SessionFacts("s", "a", Workspace(path="/w", own=True), session().mode, "\ud800", frozenset()),
    ],
)
def test_a_session_that_cannot_be_told_is_denied_and_has_every_label(facts: SessionFacts) -> None:
    asked = call(read("/w/a"))
    assert judge(policy(), asked, facts).because == ERROR
    assert labels_of(policy(), asked, facts) == ((Label("sensitive"), 0), (Label("untrusted-content"), 0))
    assert explain(policy(), asked, facts, judge(policy(), asked, facts)).effect is Effect.DENY


def test_a_label_rule_that_errs_taints_with_every_label() -> None:
    rules = '@id("err") @label("third") permit (principal, action == Action::"label", resource) when { principal.workspace.runs_later };'
    found = labels_of(policy(rules), call(read("/w/a")), session())
    assert dict(found) == {"sensitive": 0, "untrusted-content": 0, "third": 0}


def test_a_label_is_set_by_the_first_resource_that_does() -> None:
    asked = call(read("/w/a"), read("/w/.env"), read("/w/k.pem"), plain(Role.RAISE_BUDGET, "tokens"))
    assert labels_of(policy(), asked, session()) == ((Label("sensitive"), 2),)
    assert labels_of(policy(), asked, session()) == ((Label("sensitive"), 2),)


def test_an_unknown_tool_is_denied_before_any_rule() -> None:
    everything = policy('@id("all") permit (principal, action, resource);')
    assert judge(everything, subject(read("/w/a")), session()).because == ("unknown-tool",)
    assert judge(everything, subject(tool("other.tool"), read("/w/a")), session()).because == ("unknown-tool",)
    assert judge(everything, subject(), session()).because == ("no-resources",)


def test_rules_under_every_head_hold_for_their_actions_alone() -> None:
    heads = {
        "action": True,
        'action == Action::"read-path"': True,
        'action in Action::"observe"': True,
        'action in [Action::"observe", Action::"send"]': True,
        'action in [Action::"write-path", Action::"read-path"]': True,
        'action in Action::"read-path"': True,
        'action == Action::"write-path"': False,
        'action in Action::"send"': False,
    }
    for head, holds in heads.items():
        verdict = judge(
            policy(f'@id("no") forbid (principal, {head}, resource);'), subject(read("/w/a"), kind=SubjectKind.EGRESS), session()
        )
        assert (verdict.effect is Effect.DENY) is holds, head


def test_the_cache_forgets_what_nobody_asks_for_and_keeps_what_is_asked_again() -> None:
    cache = Cache[int, str](10)
    for number in range(100):
        cache.put(number, str(number))
        assert cache.get(0) == "0"
    assert len(cache) <= 20
    assert cache.get(50) is None
    assert cache.get(99) == "99"


def test_memory_does_not_outlive_a_change_of_facts() -> None:
    rules = policy()
    push = subject(plain(Role.MESSAGE_TEAM, "a"), kind=SubjectKind.PEER_MESSAGE)
    assert judge(rules, push, session()).because == ("peer-asks",)
    assert judge(rules, push, session(labels=["sensitive"])).because == ("peer-asks", "sensitive-stays")
    assert judge(rules, push, session()).because == ("peer-asks",)


def test_a_question_that_cannot_be_put_is_a_failure() -> None:
    rules = policy()
    asked = question(path_entity("/w/a", "/w"), "read-path", session(), rules.grammar)
    assert rules.sets.judging.ask(replace(asked, principal=("Session", "\ud800")), {}) == FAILED
    assert rules.sets.judging.ask(asked, {"approved": "maybe"}) == FAILED
    assert rules.sets.judging.ask(asked, {}) == FAILED


def test_what_is_remembered_does_not_grow_with_how_much_a_call_names() -> None:
    rules = policy()
    few, many = call(read("/w/a")), call(*(read(f"/w/{number}") for number in range(100)))
    assert judge(rules, few, session()) is judge(rules, few, session())
    before = len(rules.verdicts)
    assert judge(rules, many, session()) == judge(rules, many, session())
    assert len(rules.verdicts) == before


def test_the_steps_of_a_plan_are_judged_in_the_mode_that_the_session_is_in() -> None:
    rules = policy('@id("not-unasked") forbid (principal, action == Action::"read-path", resource) when { context.mode == "bypass" };')
    plan = call().model_copy(update={"steps": (call(read("/w/a")),)})
    assert judge(rules, plan, session(mode=Mode.BYPASS)).because == ("not-unasked",)
    assert judge(rules, plan, session()).effect is not Effect.DENY


def test_a_rule_that_fails_until_somebody_approves_denies_and_asks_nobody() -> None:
    rule = '@id("odd") forbid (principal, action == Action::"read-path", resource) unless { context.approved || context.tool == "" };'
    too_big = rule.replace('context.tool == ""', "9223372036854775807 + 1 > 0")
    assert judge(policy(rule), call(read("/w/a")), session()).effect is Effect.ASK
    found = judge(policy(too_big), call(read("/w/a")), session())
    assert (found.effect, found.because) == (Effect.DENY, ("policy-error",))
