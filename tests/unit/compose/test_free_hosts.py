"""What an agent is told of the network: what the rules in force say to its session, and nothing that they keep from it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from curtainwall.compose.free_hosts import describe_hosts
from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.host.user import local_user
from curtainwall.model import DisableRule, Mode, RuleId
from curtainwall.operations.open import SessionSpec, open_new
from tests.support.covers import covers
from tests.support.in_process import Places, opened

Told = Callable[..., str]

OTHERS_ARE_ASKED = "Any other is asked of a person first, unless a rule refuses it outright."
ONLY_LISTED = '@id("only-listed") forbid (principal, action == Action::"fetch-url", resource) unless { resource in List::"hosts" };'


@pytest.fixture
def told(places: Places) -> Told:
    """Return what tells a new session of the network, under some lists and rules."""

    async def work(disabled: str, options: dict[str, Any]) -> str:
        async with open_gate(load_setup()) as wired:
            session = await opened(wired, places.workspace, **options)
            if disabled:
                await wired.registry.send(session, DisableRule(by=local_user(), rule=RuleId(disabled)))
            return describe_hosts(wired, session)

    def tell(*hosts: str, rules: str = "", disabled: str = "", **options: Any) -> str:
        (places.home / "policy").mkdir(parents=True, exist_ok=True)
        (places.home / "config.toml").write_text(f"[lists]\nhosts = {list(hosts)}\n")
        (places.home / "policy" / "mine.cedar").write_text(rules)
        return asyncio.run(asyncio.wait_for(work(disabled, options), 60))

    return tell


@covers("agents.told-free-hosts")
def test_the_listed_hosts_are_named_and_all_others_are_asked_about(told: Told) -> None:
    words = told("docs.python.org", "*.github.com", "wiki.python.org:8443")
    assert "without anybody being asked: docs.python.org, *.github.com, wiki.python.org:8443. " in words
    assert OTHERS_ARE_ASKED in words
    assert "a request with a body is judged on its own" in words


def test_without_a_list_nothing_is_free(told: Told) -> None:
    assert told() == "Hosts: none may be fetched from freely; each is asked of a person first, unless a rule refuses it outright."


def test_a_host_that_a_rule_permits_is_named_like_one_of_the_list(told: Told) -> None:
    rules = '@id("mine") permit (principal, action == Action::"fetch-url", resource in Host::"example.org");'
    assert "asked: docs.python.org, example.org, *.example.org. " in told("docs.python.org", rules=rules)
    rules = '@id("mine") permit (principal, action == Action::"fetch-url", resource == Host::"example.org");'
    assert "asked: example.org. " in told(rules=rules), "and without its subdomains where the rule is not about them"


@covers("agents.told-free-hosts")
def test_what_a_rule_refuses_or_asks_about_is_not_named_although_it_is_listed(told: Told) -> None:
    rules = """
    @id("no-secret") forbid (principal, action, resource == Host::"secret.example.org");
    @id("ask-first") forbid (principal, action == Action::"fetch-url", resource == Host::"wary.example.org") unless { context.approved };
    @id("asks") permit (principal, action == Action::"fetch-url", resource == Host::"asked.example.org") when { context.approved };
    """
    words = told("secret.example.org", "wary.example.org", "docs.python.org", rules=rules)
    assert "asked: docs.python.org. " in words
    assert "example.org" not in words


@covers("agents.told-free-hosts")
def test_nothing_of_a_private_network_is_named(told: Told) -> None:
    words = told("localhost:8080", "10.0.0.5", "grafana.corp", "fd00::1", "docs.python.org")
    assert "asked: docs.python.org, others that are not named here. " in words
    assert not [name for name in ("localhost", "10.0.0.5", "grafana", "fd00") if name in words]
    assert "asked: some of the user's own network, not named here. " in told("localhost:8080")


def test_a_long_list_is_cut_and_says_so(told: Told) -> None:
    words = told(*(f"host-{number}.example.org" for number in range(5_000)))
    assert words.count("example.org") == 20
    assert "host-19.example.org, others that are not named here. " in words
    long = told(*(f"{'x' * 60}.{'y' * 60}-{number}.example.org" for number in range(20)))
    assert len(long) < 1_500


def test_of_a_list_that_names_little_that_is_free_only_the_beginning_is_looked_at(told: Told) -> None:
    hidden = [f"10.0.0.{number}" for number in range(1, 100)]
    words = told(*hidden, "docs.python.org")
    assert "asked: some of the user's own network, not named here. " in words
    assert "docs.python.org" in told(*hidden[:50], "docs.python.org")


def test_an_address_is_named_as_it_is_listed(told: Told) -> None:
    assert "asked: 2606:4700:4700::1111, 1.1.1.1. " in told("2606:4700:4700::1111", "1.1.1.1")


def test_where_any_host_is_free_it_says_so_and_names_none(told: Told) -> None:
    anyone = "Hosts: `fetch` reads from any public host without anybody being asked, unless a rule says otherwise. "
    assert told("*", "docs.python.org").startswith(anyone)
    assert told(mode=Mode.BYPASS).startswith(anyone)
    assert told(disabled="unlisted-host").startswith(anyone), "a rule that is switched off in this session asks nobody"


def test_where_others_are_refused_it_does_not_speak_of_a_person(told: Told) -> None:
    words = told("docs.python.org", rules=ONLY_LISTED)
    assert "asked: docs.python.org. Any other is refused. " in words
    assert told(rules=ONLY_LISTED) == "Hosts: none may be fetched from freely; each is refused."
    wary = '@id("wary") forbid (principal, action == Action::"fetch-url", resource == Host::"wiki.python.org") unless { context.approved };'
    assert "Any other is refused, or asked of a person first. " in told(
        "docs.python.org", "wiki.python.org", rules=f"{ONLY_LISTED}\n{wary}"
    )


def test_it_is_what_holds_for_this_session_with_its_labels(told: Told) -> None:
    assert "docs.python.org" in told("docs.python.org")
    assert "docs.python.org" not in told("docs.python.org", labels=("sensitive",)), "after sensitive material every host is asked about"


def test_the_rules_of_its_own_webhook_count_for_a_session(places: Places) -> None:
    own = places.user / "own.cedar"
    own.write_text('@id("ci-stays-here") forbid (principal, action == Action::"fetch-url", resource);')
    places.home.mkdir(mode=0o700, exist_ok=True)
    hook = f'[webhooks.hooks.ci]\nsecret-env = "CI_SECRET"\nprompt = "go"\npolicy = "{own}"\n'
    (places.home / "config.toml").write_text(f'[lists]\nhosts = ["docs.python.org"]\n{hook}')

    async def work() -> list[str]:
        async with open_gate(load_setup()) as wired:
            wanted = (SessionSpec("demo"), SessionSpec("demo", hook="ci"))
            return [describe_hosts(wired, await open_new(wired.sessions, each, local_user())) for each in wanted]

    free, narrow = asyncio.run(asyncio.wait_for(work(), 60))
    assert "asked: docs.python.org. " in free
    assert narrow == "Hosts: none may be fetched from freely; each is refused."


def test_it_is_told_also_beside_the_process_that_decides_for_the_session(places: Places) -> None:
    async def work() -> str:
        async with open_gate(load_setup()) as deciding, open_gate(load_setup()) as beside:
            session = await opened(deciding, places.workspace)
            async with deciding.registry.hold(session):
                return describe_hosts(beside, session)

    assert asyncio.run(asyncio.wait_for(work(), 60)).startswith("Hosts: none may be fetched from freely")
