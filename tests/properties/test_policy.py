"""What holds for every policy and every call: rules only tighten the way they should, and memory changes nothing."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from curtainwall.model import (
    Broken,
    CommandFacts,
    Effect,
    HostFacts,
    Label,
    Mode,
    Resource,
    Role,
    Scope,
    SubjectKind,
    ToolEffect,
    ToolFacts,
    Workspace,
    is_beneath,
    strictest,
)
from curtainwall.policy import (
    Lists,
    Policy,
    Protection,
    RuleSource,
    SessionFacts,
    explain,
    import_permissions,
    judge,
    labels_of,
    load,
    shipped,
)
from curtainwall.policy.canonical import is_path
from curtainwall.policy.claude_permissions import literal, pattern
from curtainwall.policy.entities import entity_of, question, surroundings
from tests.support.policies import policy, session, subject

LISTS = Lists(hosts=("a.com", "*.b.com", "localhost"), remotes=("a.com/x/*",), push_remotes=("a.com/x/y",), teams=("data",))
PATHS = Protection(never=("/k",), readonly=("/w/ro",))
SHIPPED = policy(lists=LISTS, protection=PATHS)

paths = st.sampled_from(
    ["/", "/w", "/w/a", "/w/.git/config", "/w/ro/x", "/w-evil", "/etc/passwd", "/k/x", "/p/.envrc", "/p/src", "/w/.env"]
)
hosts = st.sampled_from(
    [("a.com", "public"), ("x.b.com", "public"), ("evil.com", "public"), ("localhost", "private"), ("169.254.169.254", "forbidden")]
)
remotes = st.sampled_from(["a.com/x/y", "a.com/x/z", "evil.com/x/y", "git/x"])


@st.composite
def resources(draw: st.DrawFn) -> Resource:
    role = draw(st.sampled_from(Role))
    match role:
        case Role.USE_TOOL:
            name = draw(st.sampled_from(["fs.read", "session.remember", "test.tool"]))
            return Resource(role=role, value=name, facts=ToolFacts(server=name.partition(".")[0], effect=draw(st.sampled_from(ToolEffect))))
        case Role.READ_PATH | Role.WRITE_PATH | Role.DELETE_PATH:
            return Resource(role=role, value=draw(paths))
        case Role.FETCH_URL | Role.SEND_URL:
            host, scope = draw(hosts)
            return Resource(role=role, value=f"https://{host}", facts=HostFacts(host=host, port=443, secure=True, scope=Scope(scope)))
        case Role.READ_REMOTE | Role.WRITE_REMOTE:
            return Resource(role=role, value=draw(remotes))
        case Role.RUN_COMMAND:
            text = draw(st.sampled_from(["ls -l", "rm x", "curl a"]))
            return Resource(role=role, value=text, facts=CommandFacts(program=text.partition(" ")[0], parsed=draw(st.booleans())))
        case _:
            return Resource(role=role, value=draw(st.sampled_from(["data", "legal", "tokens"])))


sessions = st.builds(
    SessionFacts,
    session=st.just("s"),
    agent=st.sampled_from(["builtin", "codex"]),
    workspace=st.builds(Workspace, path=st.sampled_from(["/w", "/p", "/k/s/w"]), own=st.booleans()),
    mode=st.sampled_from(Mode),
    channel=st.sampled_from(["terminal", "cron"]),
    labels=st.frozensets(st.sampled_from([Label("sensitive"), Label("untrusted-content"), Label("other")])),
)
calls = st.lists(resources(), min_size=1, max_size=4)

heads = st.sampled_from(
    [
        "action",
        *(f'action == Action::"{role}"' for role in Role),
        'action in Action::"send"',
        'action in [Action::"observe", Action::"change"]',
    ]
)
conditions = st.sampled_from(
    [
        "true", "false", "principal.own", 'context.mode == "plan"', 'context.labels.contains("sensitive")', 'context.channel == "cron"',
        'principal in Agent::"codex"', "resource in principal.workspace", 'resource in List::"hosts"', "context.judged",
    ]
)  # fmt: skip


def formulas(leaves: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds("({} && {})".format, inner, inner),
            st.builds("({} || {})".format, inner, inner),
            st.builds("!{}".format, inner.map("({})".format)),
            st.builds("(if {} then {} else {})".format, inner, inner, inner),
        ),
        max_leaves=5,
    )


def with_rules(*rules: str) -> Policy:
    text = "\n".join(f'@id("r{number}") {rule}' for number, rule in enumerate(rules))
    return load((*shipped(), RuleSource("mine.cedar", text, user=True)), lists=LISTS, protection=PATHS)


def effects(rules: Policy, touched: list[Resource], facts: SessionFacts) -> list[Effect]:
    """Return what each resource comes to on its own; the call is egress, so that no tool is needed."""
    return [finding.effect for finding in judge(rules, subject(*touched, kind=SubjectKind.EGRESS), facts).findings]


@settings(max_examples=100, deadline=None)
@given(heads, formulas(conditions), calls, sessions)
def test_a_deny_added_never_allows_more(head: str, condition: str, touched: list[Resource], facts: SessionFacts) -> None:
    denying = with_rules(f"forbid (principal, {head}, resource) when {{ {condition} }};")
    for before, after in zip(effects(SHIPPED, touched, facts), effects(denying, touched, facts), strict=True):
        assert strictest((before, after)) is after


@settings(max_examples=100, deadline=None)
@given(heads, formulas(conditions), calls, sessions)
def test_a_permit_that_waits_for_a_yes_never_allows_without_asking(
    head: str, condition: str, touched: list[Resource], facts: SessionFacts
) -> None:
    asking = with_rules(f"permit (principal, {head}, resource) when {{ ({condition}) && context.approved }};")
    for before, after in zip(effects(SHIPPED, touched, facts), effects(asking, touched, facts), strict=True):
        assert (after is Effect.ALLOW) == (before is Effect.ALLOW)


@settings(max_examples=100, deadline=None)
@given(heads, formulas(conditions), calls, sessions)
def test_a_forbid_that_a_yes_lifts_never_denies_more(head: str, condition: str, touched: list[Resource], facts: SessionFacts) -> None:
    asking = with_rules(f"forbid (principal, {head}, resource) when {{ {condition} }} unless {{ context.approved }};")
    for before, after in zip(effects(SHIPPED, touched, facts), effects(asking, touched, facts), strict=True):
        assert strictest((before, after)) is after
        assert (after is Effect.DENY) == (before is Effect.DENY)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["permit", "forbid"]),
    st.sampled_from(["when", "unless"]),
    formulas(conditions | st.just("context.approved")),
    resources(),
    sessions,
)
def test_what_loads_is_never_made_stricter_by_a_yes(effect: str, kind: str, condition: str, touched: Resource, facts: SessionFacts) -> None:
    try:
        rules = with_rules(f"{effect} (principal, action, resource) {kind} {{ {condition} }};")
    except Broken:
        assume("context.approved" not in condition)
        raise
    asked = question(entity_of(touched, facts, LISTS), touched.role.value, facts, rules.grammar)
    context = {**surroundings(facts, "t"), "role": touched.role.value, "judged": True}
    without, with_yes = (rules.sets.judging.ask(asked, {**context, "approved": approved}) for approved in (False, True))
    assert not without.failed
    assert with_yes.allowed or not without.allowed


@settings(max_examples=100, deadline=None)
@given(calls.flatmap(lambda touched: st.tuples(st.just(touched), st.permutations(touched))), sessions)
def test_the_order_of_resources_changes_nothing(pair: tuple[list[Resource], list[Resource]], facts: SessionFacts) -> None:
    one, other = (judge(SHIPPED, subject(*touched, kind=SubjectKind.EGRESS), facts) for touched in pair)
    assert (one.effect, one.because, one.reason) == (other.effect, other.because, other.reason)
    brought = [{label for label, _ in labels_of(SHIPPED, subject(*touched, kind=SubjectKind.EGRESS), facts)} for touched in pair]
    assert brought[0] == brought[1]


@settings(max_examples=60, deadline=None)
@given(calls, sessions)
def test_memory_changes_nothing(touched: list[Resource], facts: SessionFacts) -> None:
    fresh = load(shipped(), lists=LISTS, protection=PATHS)
    asked = subject(*touched, kind=SubjectKind.EGRESS)
    for _ in range(2):
        assert judge(SHIPPED, asked, facts) == judge(fresh, asked, facts)
        assert labels_of(SHIPPED, asked, facts) == labels_of(fresh, asked, facts)


odd = (
    st.text(alphabet=st.characters(codec=None), max_size=30)
    | st.builds("/{}".format, st.text(max_size=20))
    | st.builds("/w/{}".format, st.text(max_size=9))
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(Role), odd, sessions)
def test_odd_values_never_raise_and_never_open_anything(role: Role, value: str, facts: SessionFacts) -> None:
    asked = subject(Resource(role=role, value=value), kind=SubjectKind.EGRESS)
    verdict = judge(SHIPPED, asked, facts)
    labels_of(SHIPPED, asked, facts)
    assert explain(SHIPPED, asked, facts, verdict).effect is verdict.effect
    if verdict.effect is Effect.ALLOW:
        listed = (role is Role.MESSAGE_TEAM and value == "data") or (role is Role.READ_REMOTE and value.startswith("a.com/x/"))
        listed = listed or (role is Role.WRITE_REMOTE and value == "a.com/x/y")
        inside = role in (Role.READ_PATH, Role.WRITE_PATH, Role.DELETE_PATH) and is_path(value) and is_beneath(value, facts.workspace.path)
        assert listed or inside


@settings(max_examples=100, deadline=None)
@given(odd, sessions, st.sampled_from(Scope), st.integers(), st.booleans())
def test_odd_hosts_and_commands_never_raise(text: str, facts: SessionFacts, scope: Scope, port: int, secure: bool) -> None:
    host = Resource(role=Role.FETCH_URL, value=text, facts=HostFacts(host=text, port=port, secure=secure, scope=scope))
    line = Resource(role=Role.RUN_COMMAND, value=text, facts=CommandFacts(program=text, parsed=secure))
    asked = subject(host, line, kind=SubjectKind.EGRESS)
    verdict = judge(SHIPPED, asked, facts)
    labels_of(SHIPPED, asked, facts)
    assert verdict.findings[0].effect is not Effect.ALLOW or text in ("a.com", "localhost") or text.endswith(".b.com")


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_foreign_words_stay_inside_their_quotes(text: str) -> None:
    condition = f"resource.text == {literal(text)} || resource.text like {pattern([text])}"
    rule = f'@id("x") @title({literal(text)}) permit (principal, action == Action::"read-path", resource) when {{ {condition} }};'
    rules = load((RuleSource("x.cedar", rule, user=True),), lists=Lists(), protection=Protection())
    assert [card.title for card in rules.rules if card.id == "x"] == [text or "x"]


words = st.sampled_from(["Bash", "Read", "Edit", "WebFetch", "mcp__a", "mcp__a__b", "Task", ""])
inner = st.text(max_size=25) | st.sampled_from(
    ['");permit(principal,action,resource);//', '" || true || "', "**/*", "a/*/b", "~/x", "\\", "*\\", 'domain:a"b', "]["]
)
entries = st.builds("{}({})".format, words, inner) | inner | words


@settings(max_examples=100, deadline=None)
@given(st.lists(entries, max_size=4), st.lists(entries, max_size=3), st.lists(entries, max_size=3))
def test_whatever_the_lists_hold_the_import_loads_or_says_why(allow: list[str], ask: list[str], deny: list[str]) -> None:
    try:
        told = import_permissions({"allow": [*allow], "ask": [*ask], "deny": [*deny]}, workspace="/w")
    except Broken:
        return
    rules = load((*shipped(), RuleSource("claude.cedar", told.cedar_text, user=True)), lists=LISTS, protection=PATHS)
    imported = [card for card in rules.rules if card.source == "claude.cedar"]
    assert all(card.id.startswith("claude-") for card in imported)
    opened = [card for card in imported if card.kind == "allow"]
    assert len(opened) <= len(allow)
    never = judge(rules, subject(Resource(role=Role.READ_PATH, value="/k/x"), kind=SubjectKind.EGRESS), session())
    assert never.because == ("protected-path",)


@pytest.mark.parametrize("role", list(Role))
def test_without_rules_nothing_is_allowed(role: Role) -> None:
    empty = load((), lists=LISTS, protection=PATHS)
    verdict = judge(empty, subject(Resource(role=role, value="/w/a"), kind=SubjectKind.EGRESS), session())
    assert verdict.effect is Effect.DENY
