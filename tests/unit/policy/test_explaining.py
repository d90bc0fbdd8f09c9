"""An explanation names rules, facts and what a person can do."""

import pytest

from curtainwall.model import Effect, Finding, Mode, Role, RuleId, Scope, Subject, SubjectKind, ToolEffect, Verdict, denial
from curtainwall.policy import Explanation, Lists, Policy, Protection, SessionFacts, explain, judge
from tests.support.policies import call, command, plain, policy, read, session, subject, url, write

PROJECT = session("/p", own=False)


def why(asked: Subject, facts: SessionFacts, rules: Policy | None = None) -> Explanation:
    judging = rules or policy()
    return explain(judging, asked, facts, judge(judging, asked, facts))


def test_an_allow_names_its_rules_and_needs_nothing() -> None:
    told = why(call(read("/w/a")), session())
    assert told.effect is Effect.ALLOW
    assert [card.id for card in told.rules] == ["known-tool", "workspace-free"]
    assert "`read-path` on `/w/a`: inside the workspace" in told.facts
    assert "the session works in its own workspace `/w`, in mode `default`; labels: none" in told.facts
    assert told.changes == ("nothing needs to change: it is allowed",)


def test_an_ask_for_an_edit_names_grant_mode_and_rule() -> None:
    told = why(call(write("/p/a"), effect=ToolEffect.MODIFY), PROJECT)
    assert told.changes == (
        "an operator approves it: `curtainwall approve ID --for once|session|project` (in a session `/approve ID`)",
        "a grant for `write-path` on `/p/a` that was given for `project-edit`",
        "mode `accept-edits`",
        "mode `bypass`",
        "an operator switches off every rule that asks, in the session: `/disable project-edit`",
    )


def test_accept_edits_does_not_answer_for_what_runs_later() -> None:
    told = why(call(write("/p/.envrc"), effect=ToolEffect.MODIFY), PROJECT)
    assert "`/p/.envrc` may run later by itself" in told.facts
    assert "mode `accept-edits`" not in told.changes


def test_an_ask_for_a_host_names_the_list() -> None:
    told = why(call(url("a.com"), effect=ToolEffect.SEND), session(labels=["sensitive"]))
    assert "`a.com` in config `lists.hosts`" in told.changes
    assert "`https://a.com` is on no list" in told.facts
    assert "`fetch-url` on `https://a.com`: host `a.com`, port 443, public" in told.facts
    assert told.facts[0].endswith("labels: `sensitive`")


def test_what_a_list_does_not_answer_is_not_told_to_be_listed() -> None:
    listed = policy(lists=Lists(hosts=("a.com",)))
    told = why(call(url("a.com"), effect=ToolEffect.SEND), session(labels=["sensitive"]), listed)
    assert not any("config" in change for change in told.changes)
    assert "`https://a.com` is on `lists.hosts`" in told.facts


def test_lists_for_remotes_and_teams() -> None:
    pushed = why(call(plain(Role.WRITE_REMOTE, "a.com/b/c"), effect=ToolEffect.SEND), session())
    assert "`a.com/b/c` in config `lists.push-remotes`" in pushed.changes
    messaged = why(subject(plain(Role.MESSAGE_TEAM, "data"), kind=SubjectKind.PEER_MESSAGE), session())
    assert "`data` in config `lists.teams`" in messaged.changes


def test_bypass_never_answers_for_credentials() -> None:
    told = why(subject(plain(Role.USE_CREDENTIAL, "github"), kind=SubjectKind.CREDENTIAL), session())
    assert not any("bypass" in change for change in told.changes)
    assert "`use-credential` on `github`" in told.facts


@pytest.mark.parametrize(
    ("asked", "facts", "rules", "change"),
    [
        (call(read("/k/x")), session(), policy(protection=Protection(never=("/k",))), "nothing can: `protected-path`"),
        (
            call(url("169.254.169.254", scope=Scope.FORBIDDEN), effect=ToolEffect.SEND),
            session(),
            policy(),
            "nothing can: `forbidden-address`",
        ),
        (
            call(write("/w/a"), effect=ToolEffect.MODIFY),
            session(mode=Mode.PLAN),
            policy(),
            "leaving mode `plan`: `/mode default` in the session (here `--mode default`)",
        ),
        (call(command("x"), effect=ToolEffect.EXECUTE), session(mode=Mode.PLAN), policy(), "leaving mode `plan`"),
        (call(read("x")), session(), policy(), "a rule or a fact could not be evaluated"),
        (
            call(read("/w/a")),
            session(),
            policy('@id("no") forbid (principal, action, resource in Path::"/w");'),
            "the rule `no` in `mine.cedar`, which its author can change",
        ),
        (subject(), session(), policy(), "nothing can: `no-resources`"),
    ],
)
def test_a_deny_says_whether_anything_can_change_it(asked: Subject, facts: SessionFacts, rules: Policy, change: str) -> None:
    told = why(asked, facts, rules)
    assert told.effect is Effect.DENY
    assert len(told.changes) == 1
    assert told.changes[0].startswith(change)


def test_what_no_rule_knows_needs_a_rule() -> None:
    told = explain(policy(), call(read("/w/a")), session(), denial("no-rule", "x"))
    assert told.changes == ("a rule in a policy file that permits it, or permits it `when { context.approved }`",)


def test_facts_of_commands_tools_and_protected_paths_are_told() -> None:
    rules = policy('@id("no") forbid (principal, action, resource);', protection=Protection(never=("/k",)))
    asked = call(command("ls -l"), command("if", parsed=False), effect=ToolEffect.EXECUTE)
    told = why(asked, session(), rules)
    assert "`run-command` on `ls -l`: runs `ls`" in told.facts
    assert "`run-command` on `if`: cannot be parsed" in told.facts
    assert "`use-tool` on `test.tool`: its effect is at most `execute`" in told.facts
    assert "`/k/x` is, lies in, or contains a protected path" in why(call(read("/k/x")), session(), rules).facts


def test_a_hook_that_asked_is_told_though_no_file_knows_it() -> None:
    hook = RuleId("hook:mine")
    verdict = Verdict(effect=Effect.ASK, because=(hook,), findings=(Finding(resource=0, effect=Effect.ASK, because=(hook,)),))
    told = explain(policy(), call(read("/w/a")), session(), verdict)
    assert told.rules[0].source == "elsewhere"
    assert not any("/disable" in change for change in told.changes)


def test_an_explanation_bears_findings_that_do_not_fit() -> None:
    verdict = Verdict(effect=Effect.ASK, because=(), findings=(Finding(resource=9, effect=Effect.ASK, because=()),))
    assert explain(policy(), call(), session(), verdict).changes == (
        "an operator approves it: `curtainwall approve ID --for once|session|project` (in a session `/approve ID`)",
    )


def test_labels_are_told_with_what_sets_them() -> None:
    secret = why(call(read("/w/.env")), session(labels=["untrusted-content", "mine"]))
    assert secret.labels == (
        "`mine` is in force (which no rule sets)",
        "`untrusted-content` is in force (set by `untrusted-host` or `untrusted-remote`)",
        "`sensitive` is not in force; once permitted, this call sets it, by `read-path` on `/w/.env` (set by `secret-files`)",
    )
    assert "`sensitive` is not in force (set by `secret-files`)" in why(call(read("/w/a")), session()).labels


def test_a_call_that_nobody_can_permit_is_not_told_to_set_a_label() -> None:
    never = why(call(url("a.com", scope=Scope.FORBIDDEN)), session())
    assert never.changes == ("nothing can: `forbidden-address` holds for every session and every answer",)
    assert "`untrusted-content` is not in force (set by `untrusted-host` or `untrusted-remote`)" in never.labels
    asked = why(call(url("a.com")), session())
    assert any("once permitted, this call sets it" in label for label in asked.labels)


def test_a_call_that_is_denied_for_now_is_told_to_set_a_label_only_where_it_would_be_permitted() -> None:
    planned = why(call(read("/w/.env"), command("x"), effect=ToolEffect.EXECUTE), session(mode=Mode.PLAN))
    assert planned.effect is Effect.DENY
    assert any("this call is denied, and would set it, by `read-path` on `/w/.env`" in label for label in planned.labels)


@pytest.mark.parametrize("rule", ["no-rule", "policy-error"])
def test_a_call_that_a_rule_of_ones_own_could_permit_is_told_which_label_it_would_set(rule: str) -> None:
    told = explain(policy(), call(read("/w/.env")), session(), denial(rule, "x"))
    assert any("this call is denied, and would set it, by `read-path` on `/w/.env`" in label for label in told.labels)


def test_of_two_denials_one_for_good_is_enough_to_set_no_label() -> None:
    judging = policy(protection=Protection(never=("/k",)))
    both = denial("protected-path", "x").model_copy(update={"because": (RuleId("protected-path"), RuleId("plan-reads-only"))})
    told = explain(judging, call(read("/w/.env")), session(mode=Mode.PLAN), both)
    assert "`sensitive` is not in force (set by `secret-files`)" in told.labels


def test_a_rule_beside_one_that_cannot_be_switched_off_is_not_told_to_be() -> None:
    because = (RuleId("project-edit"), RuleId("hook:mine"))
    verdict = Verdict(effect=Effect.ASK, because=because, findings=(Finding(resource=0, effect=Effect.ASK, because=because),))
    assert not any("/disable" in change for change in explain(policy(), call(write("/p/a")), PROJECT, verdict).changes)
