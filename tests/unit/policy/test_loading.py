"""Whatever could make a rule silently not hold is refused when it is loaded, with file, rule and what to do."""

import pytest

from curtainwall.model import Broken, RuleId
from curtainwall.policy import SCHEMA, Lists, Protection, RuleSource, load, may_disable, shipped
from tests.support.covers import covers
from tests.support.policies import NO_LISTS, NO_PATHS, policy

READ = 'permit (principal, action == Action::"read-path", resource)'
FORBID = 'forbid (principal, action == Action::"read-path", resource)'


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("permit (principal", "`mine.cedar`, line 1, is no Cedar"),
        (f"@id(\"x\") {READ} when {{ resource.nothing }};", "rule `x` does not fit the schema: attribute `nothing`"),
        ('@id("x") permit (principal, action == Action::"fly", resource);', "unrecognized action"),
        ('@id("x") permit (principal == Session::"s", action, resource == Martian::"x");', "does not fit the schema"),
        (f"{READ};", "`mine.cedar`, line 1, rule number 1 has no id"),
        (f'@id("a") {READ}; @id {READ};', "rule number 2 has no id"),
        (f'@id("") {READ};', "has no id"),
        (f'@id("X y") {READ};', "lower-case letters"),
        (f'@id("x:y") {READ};', "lower-case letters"),
        (f'@id("{"x" * 65}") {READ};', "at most 64"),
        (f'@id("x") {READ}; @id("x") {FORBID};', "rule `x` stands 2 times, in `mine.cedar`; an id names one rule"),
        (f'@id("known-tool") {READ};', "rule `known-tool` stands 2 times, in `default.cedar` and `mine.cedar`"),
        (f'@id("protected-path") {READ};', "belongs to a structural rule"),
        (f'@id("no-rule") {READ};', "belongs to a structural rule"),
        (f'@id("call-budget") {READ};', "belongs to a structural rule"),
        (f'@id("denied-by-human") {READ};', "belongs to a structural rule"),
        ('@id("x") permit (principal == ?principal, action, resource);', "holds a template"),
        ('@id("x") forbid (principal, action, resource in Host::"GitHub.com");', "write `github.com`"),
        ('@id("x") forbid (principal, action, resource in Host::"github.com.");', "write `github.com`"),
        ('@id("x") forbid (principal, action, resource in Host::"*.github.com");', 'write `resource in Host::"github.com"`'),
        ('@id("x") forbid (principal, action, resource in Host::"git*.com");', "a rule has no wildcards"),
        ('@id("x") forbid (principal, action, resource in Host::"127.1");', "would never match"),
        ('@id("x") forbid (principal, action, resource in Host::"0x7f000001");', "would never match"),
        ('@id("x") forbid (principal, action, resource in Host::"[::1]");', "would never match"),
        ('@id("x") forbid (principal, action, resource in Host::"::ffff:1.2.3.4");', "would never match"),
        ('@id("x") forbid (principal, action, resource in Host::"https://a.com");', "would never match"),
        ('@id("x") forbid (principal, action, resource in Path::"~/x");', "write the whole path"),
        ('@id("x") forbid (principal, action, resource in Path::"/a/../b");', "write the whole path"),
        ('@id("x") forbid (principal, action, resource in Path::"/a/");', "write the whole path"),
        ('@id("x") forbid (principal, action, resource in Path::"a");', "write the whole path"),
        ('@id("x") forbid (principal, action, resource is Path in Path::"/a//b");', "write the whole path"),
        ('@id("x") forbid (principal, action, resource) when { [Path::"/a/"].contains(resource) };', "write the whole path"),
        ('@id("x") forbid (principal, action, resource) when { resource is Path in Path::"/a/" };', "write the whole path"),
        ('@id("x") forbid (principal, action, resource in Remote::"https://github.com/me/r");', "without scheme"),
        ('@id("x") forbid (principal, action, resource in Remote::"github.com/me/r.git");', "without scheme"),
        ('@id("x") forbid (principal, action, resource in Remote::"github.com/Me/r");', "write `github.com/me/r`"),
        ('@id("x") forbid (principal, action, resource in Remote::"github.com");', 'write `resource in Host::"github.com"`'),
        ('@id("x") forbid (principal, action, resource in List::"host");', "the lists are `hosts`"),
        ('@id("x") forbid (principal, action, resource in Server::"my server");', "a server's name"),
        ('@id("x") forbid (principal, action, resource == Tool::"read_file");', "write `server.tool`"),
        ('@id("x") forbid (principal, action, resource == Team::" data");', "no space around it"),
        (f'@id("x") {FORBID} when {{ context.mode == "Plan" }};', "`mode` is never `Plan`"),
        ('@id("x") forbid (principal, action == Action::"fetch-url", resource) when { "Public" != resource.scope };', "`scope` is never"),
        ('@id("x") forbid (principal, action == Action::"use-tool", resource) when { ["w"].contains(resource.effect) };', "is never `w`"),
        (f'@id("x") @label("y") {READ};', 'has `action == Action::"label"` in its head'),
        ('@id("x") permit (principal, action == Action::"label", resource);', "say which label"),
        ('@id("x") @label("Bad Label") permit (principal, action == Action::"label", resource);', "say which label"),
        ('@id("x") @label("y") forbid (principal, action == Action::"label", resource);', "a label is never taken back"),
        ('@id("x") @label("y") permit (principal, action in [Action::"label", Action::"read-path"], resource);', "make two rules"),
        ('@id("x") @label("y") permit (principal, action == Action::"label", resource) when { context.approved };', "does not wait"),
        (f'@id("x") {READ} unless {{ context.approved }};', "a yes would make this stricter"),
        (f'@id("x") {READ} when {{ !context.approved }};', "a yes would make this stricter"),
        (f'@id("x") {FORBID} when {{ context.approved }};', "a yes would make this stricter"),
        (f'@id("x") {READ} when {{ context.approved == false }};', "a yes would make this stricter"),
        (f'@id("x") {READ} when {{ if context.approved then false else true }};', "a yes would make this stricter"),
        (f'@id("x") {READ} when {{ [context.approved].contains(false) }};', "a yes would make this stricter"),
        ("permit(\0)", "holds a NUL"),
        (f'@id("x") {READ} when {{ {" && ".join(["true"] * 3000)} }};', "goes on too long"),
        (f'@id("x") {READ} when {{ {"(" * 100}true{")" * 100} }};', "nested too deeply"),
        (f'@id("x") {READ} when {{ {"!(!(" * 5000}true{"))" * 5000} }};', "nested too deeply"),
        (f'@id("x") {READ} when {{ {"if true then true else " * 3000} true }};', "goes on too long"),
        (f'@id("x") {READ} when {{ {"if true then true else " * 550} true }};', "nested too deeply"),
        (f'@id("x") {READ} when {{ resource{".a" * 3000} }};', "goes on too long"),
        (f'@id("x") {READ} when {{ resource{"[{}]".format(chr(34) + "a" + chr(34)) * 3000} }};', "goes on too long"),
        ("}" * 9, "is no Cedar"),
    ],
)  # fmt: skip
def test_a_rule_that_would_not_hold_as_written_is_refused(rules: str, words: str) -> None:
    with pytest.raises(Broken) as refusal:
        policy(rules)
    assert words in str(refusal.value)
    assert not str(refusal.value).endswith(".")


@pytest.mark.parametrize(
    "rules",
    [
        '@id("x") forbid (principal, action, resource in Host::"github.com");',
        '@id("x") forbid (principal, action, resource in Host::"10.0.0.1");',
        '@id("x") forbid (principal, action, resource in Host::"fd00::1");',
        '@id("x") forbid (principal, action, resource in Path::"/");',
        '@id("x") forbid (principal, action, resource in Path::"/a b/c");',
        '@id("x") forbid (principal, action, resource in Remote::"git.example.com:2222/Me");',
        '@id("x") forbid (principal, action, resource == Tool::"github.issues/list");',
        '@id("x.y-2") forbid (principal, action, resource) unless { context.approved };',
        f'@id("x") {READ} when {{ resource.text like "/data/*.csv" && context has approved }};',
        f'@id("x") {READ} when {{ !(!context.approved) || (if principal.own then context["approved"] else false) }};',
        f'@id("x") {FORBID} when {{ context.mode != "plan" && !context.approved }};',
        "",
        "// only words; (((",
        f'@id("x") {READ} when {{ {" || ".join(f"resource.text == {chr(34)}/;{n}{chr(34)}" for n in range(200))} }}; // end',
    ],
)
def test_a_rule_that_holds_loads(rules: str) -> None:
    assert policy(rules).warnings == ()


@covers("policy.own-files-only-narrow")
@pytest.mark.parametrize("rule", [f"{READ};", f"{READ} when {{ context.approved }};"])
def test_a_file_that_only_narrows_allows_nothing_and_has_nothing_asked_that_is_denied(rule: str) -> None:
    own = RuleSource("own.cedar", f'@id("less") {FORBID};\n@id("more") {rule}', user=True, narrows=True)
    with pytest.raises(Broken, match=r"`own\.cedar`, line 2, rule `more`: the file of one team, job or webhook only narrows"):
        load((*shipped(), own), lists=NO_LISTS, protection=NO_PATHS)


def test_a_file_that_only_narrows_may_deny_ask_and_set_labels() -> None:
    label = '@id("finance") @label("sensitive") permit (principal, action == Action::"label", resource in Path::"/finance");'
    text = f'@id("no") {FORBID};\n@id("ask") {FORBID} unless {{ context.approved }};\n{label}'
    found = load((*shipped(), RuleSource("own.cedar", text, user=True, narrows=True)), lists=NO_LISTS, protection=NO_PATHS)
    assert [found.card(RuleId(name)) is not None for name in ("no", "ask", "finance")] == [True, True, True]


def test_a_schema_that_does_not_load_is_refused() -> None:
    for schema in ("entity X in [Y];", "", "garbage"):
        with pytest.raises(Broken, match="schema"):
            load(shipped(), lists=NO_LISTS, protection=NO_PATHS, schema=schema)


def test_a_free_for_all_of_a_user_is_warned_about() -> None:
    (warning,) = policy('@id("all") permit (principal, action, resource);').warnings
    assert warning.startswith("`mine.cedar`, rule `all` allows everything that no rule forbids")
    assert policy('@id("some") permit (principal, action, resource) when { context.approved };').warnings == ()


def test_a_label_that_no_rule_sets_is_warned_about() -> None:
    rules = (
        '@id("x") forbid (principal, action == Action::"send-url", resource) when { context.labels.containsAny(["finance", "sensitive"]) };'
    )
    assert policy(rules).warnings == ("`mine.cedar`, rule `x` waits for the label `finance`, which no rule sets",)


def test_the_version_depends_on_everything_that_judges() -> None:
    rule = f'@id("x") {READ} when {{ context.approved }};'
    versions = {
        policy().version,
        policy(rule).version,
        policy(lists=Lists(hosts=("a.com",))).version,
        policy(lists=Lists(remotes=("a.com/b/c",))).version,
        policy(protection=Protection(never=("/x",))).version,
        policy(protection=Protection(readonly=("/x",))).version,
        policy(protection=Protection(never=("/x",), except_=("/x/y",))).version,
        load(shipped(), lists=NO_LISTS, protection=NO_PATHS, schema=SCHEMA + "\n").version,
        load((*shipped(), RuleSource("other.cedar", rule, user=True)), lists=NO_LISTS, protection=NO_PATHS).version,
    }
    assert len(versions) == 9
    assert policy().version == policy().version
    assert all(len(version) == 64 for version in versions)


def test_cards_say_what_each_rule_is_for() -> None:
    rules = f"""
    @id("mine") {READ};
    @id("asks") @title("Hm") @reason("why not") {FORBID} unless {{ context.approved || true }};
    @id("half") {FORBID} unless {{ context.approved && principal.own }};
    @id("maybe") {READ} when {{ context.approved || principal.own }};
    @id("folded") {FORBID} when {{ principal.own && !(context.approved || principal.own) }};
    @id("never") {FORBID} when {{ !context.approved && "x" == "y" }};
    @id("chosen") {FORBID} when {{ if principal.own then !context.approved else false }};
    """
    cards = {card.id: card for card in policy(rules).rules}
    kinds = {
        name: cards[RuleId(name)].kind for name in ("mine", "asks", "half", "maybe", "folded", "never", "chosen", "no-rule", "secret-files")
    }
    assert kinds == {
        "mine": "allow",
        "asks": "ask",
        "half": "deny",
        "maybe": "ask",
        "folded": "ask",
        "never": "ask",
        "chosen": "deny",
        "no-rule": "structural",
        "secret-files": "label",
    }
    asks = cards[RuleId("asks")]
    assert (asks.title, asks.reason, asks.source) == ("Hm", "why not", "mine.cedar")
    assert asks.text.startswith("@id(")
    assert (cards[RuleId("mine")].title, cards[RuleId("mine")].reason) == ("mine", "")


@pytest.mark.parametrize(
    ("rule", "may"),
    [
        ("read-outside", True),
        ("runs-later", True),
        ("private-address", True),
        ("workspace-free", False),
        ("forbidden-address", False),
        ("plan-reads-only", False),
        ("protected-path", False),
        ("secret-files", False),
        ("nobody-knows", False),
    ],
)
def test_only_a_rule_that_makes_something_ask_may_be_disabled(rule: str, may: bool) -> None:
    assert may_disable(policy(), RuleId(rule)) is may


def test_every_shipped_rule_says_what_it_does_and_why() -> None:
    for card in policy().rules:
        assert card.title, card.id
        assert card.reason, card.id
