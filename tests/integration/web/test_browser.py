"""A person at a real browser: signs in, begins a session, watches it, answers, takes back, looks things up; on a screen and on a phone."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.integration.web.conftest import Screens
from tests.support.covers import covers
from tests.support.waiting import replace
from tests.support.webs import Web

WATCH = """() => {
  window.lengths = [];
  const look = () => { const it = document.querySelector(".saying"); if (it) window.lengths.push(it.textContent.length); };
  new MutationObserver(look).observe(document.getElementById("items"), { childList: true, subtree: true, characterData: true });
}"""
SIZES: dict[str, dict[str, Any]] = {
    "screen": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"},
    "phone": {"viewport": {"width": 375, "height": 740}, "color_scheme": "dark", "has_touch": True},
}


def begin(page: Page, base: str, task: str, project: Path) -> str:
    """Begin a session by its form and return where it is."""
    page.goto(f"{base}/sessions/new")
    page.get_by_label("First task").fill(task)
    page.get_by_label("Model").fill("demo")
    page.get_by_role("textbox", name="Workspace").fill(str(project))
    page.get_by_role("button", name="Begin").click()
    page.wait_for_url(f"{base}/sessions/*")
    return page.url


def into_the_list(page: Page) -> None:
    """Go to the first open ask by keys alone, and wait until it can be answered."""
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.locator(".card:focus")).to_be_visible()
    expect(page.locator(".unsteady")).to_have_count(0)


def fits(page: Page) -> None:
    """See that nothing sticks out of the window."""
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), page.url


@covers("web.a-day-in-the-browser")
@pytest.mark.parametrize("size", SIZES)
def test_a_person_works_with_a_session_from_its_beginning_to_the_audit(screens: Screens, web: Web, size: str) -> None:
    page, watcher = screens.window("ann", **SIZES[size]), screens.window("olga")
    project = web.scratch / "project"
    where = begin(page, web.base, f"write 'milk and honey' to list-{size}.txt then write 'more' to other-{size}.txt", project)
    watcher.goto(where)
    ask = page.locator("#items .call.asked")
    expect(ask).to_be_visible()
    expect(ask).to_contain_text("+milk and honey")
    expect(watcher.locator("#items .call.asked")).to_be_visible()
    fits(page)

    page.goto(web.base)
    card = page.locator("#asks .card:not(.settled)").first
    expect(card).to_contain_text(f"list-{size}.txt")
    fits(page)
    card.get_by_role("link", name="Why is this asked?").click()
    expect(card.locator(".why")).to_contain_text("project-edit")
    card.get_by_role("button", name="For the session").click()
    expect(page.locator("#words")).to_contain_text("approved for the session")
    expect(page.locator(".card.settled").first).to_contain_text("granted by ann on web")
    expect(page.locator("#recent li").first).to_contain_text("granted by ann on web")
    expect(page.get_by_text("Nothing was settled yet.")).to_be_hidden()
    expect(watcher.locator("#items")).to_contain_text("approved for the session by ann on web")

    second = page.locator("#asks .card:not(.settled)").first
    expect(second).to_contain_text(f"other-{size}.txt")
    second.get_by_label("Reason for a denial").fill("one list is enough")
    second.get_by_role("button", name="Deny").click()
    expect(watcher.locator("#items")).to_contain_text("denied by ann on web (one list is enough)")
    assert (project / f"list-{size}.txt").read_text() == "milk and honey"
    assert not (project / f"other-{size}.txt").exists()

    page.goto(where)
    expect(page.locator("#rail-grants")).to_contain_text("write-path")
    page.locator("#rail-grants").get_by_role("button", name="revoke").click()
    expect(page.locator("#rail-grants")).to_contain_text("No answer stands.")
    expect(watcher.locator("#rail-grants")).to_contain_text("No answer stands.")

    session = where.rpartition("/")[2]
    web.until(lambda: "GrantRevoked" in page.goto(f"{web.base}/audit?session={session}").text())  # type: ignore[union-attr] - a page
    expect(page.locator(".timeline .ApprovalAnswered").first).to_contain_text("by ann on web")
    fits(page)

    page.goto(f"{web.base}/rules")
    page.get_by_label("Tool").fill("fetch.get")
    page.get_by_label("Arguments").fill(f'{{"url": "{web.base}/"}}')
    page.get_by_role("button", name="Try", exact=True).click()
    expect(page.locator("#tried")).to_contain_text("forbidden-address")
    fits(page)
    for path in ("/usage", "/health", "/grants", "/sessions"):
        page.goto(f"{web.base}{path}")
        expect(page.locator("h1")).to_be_visible()
        fits(page)


@covers("web.keys")
def test_the_inbox_is_driven_by_keys(screens: Screens, web: Web) -> None:
    session = web.session("by keys")
    for name in ("hostname", "hosts", "passwd"):
        web.an_ask(session, f"/etc/{name}")
    page = screens.window()
    mine = page.locator(".card:not(.settled)")
    expect(mine).to_have_count(3)
    into_the_list(page)
    expect(page.locator(".card:focus")).to_contain_text("hostname")
    page.keyboard.press("w")
    expect(page.locator(".card:focus .why")).to_contain_text("read-outside")
    page.keyboard.press("a")
    expect(mine).to_have_count(2)
    expect(page.locator(".card.settled:focus")).to_contain_text("granted by ann")
    page.keyboard.press("j")
    page.keyboard.press("d")
    page.keyboard.type("jak")
    page.keyboard.press("Enter")
    expect(mine).to_have_count(1)
    page.keyboard.press("j")
    page.keyboard.press("Shift+A")
    expect(mine).to_have_count(0)
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
    view = web.served.work.desk.view(session)
    assert [grant.scope for grant in view.grants] == ["session"]


@covers("web.keys")
def test_a_key_that_is_held_down_answers_one_ask_alone(screens: Screens, web: Web) -> None:
    session = web.session("held down")
    for name in ("hostname", "hosts"):
        web.an_ask(session, f"/etc/{name}")
    page = screens.window()
    waiting = page.locator(".card:not(.settled)")
    expect(waiting).to_have_count(2)
    into_the_list(page)
    page.keyboard.down("a")
    expect(waiting).to_have_count(1)
    waiting.focus()
    for _ in range(3):
        # It was never let go of, so the browser repeats it.
        page.keyboard.down("a")
    page.keyboard.up("a")
    page.keyboard.press("w")
    expect(page.locator(".card:focus .why")).to_contain_text("read-outside")
    assert len(web.asks(session)) == 1


@covers("web.works-without-scripts")
def test_without_scripts_everything_can_be_read_and_answered(screens: Screens, web: Web) -> None:
    session = web.session("without scripts")
    web.an_ask(session)
    page = screens.window("ann", java_script_enabled=False)
    page.get_by_role("button", name="Approve once").click()
    expect(page.locator("#words")).to_contain_text("approved once")
    page.goto(f"{web.base}/sessions/{session}")
    page.get_by_label("Message to the agent").fill("are you there?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#items")).to_contain_text("are you there?")
    page.goto(f"{web.base}/sessions?q=without")
    expect(page.locator(".row")).to_have_count(1)


@covers("web.a-day-in-the-browser")
def test_the_agents_words_are_seen_while_they_come_and_after_a_restart_of_the_stream(screens: Screens, web: Web) -> None:
    page = screens.window()
    begin(page, web.base, "", web.scratch / "project")
    expect(page.locator(".live.on")).to_be_visible()
    page.evaluate(WATCH)
    page.get_by_label("Message to the agent").fill("read notes.txt")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#items .prose")).to_have_count(2)
    lengths = page.evaluate("window.lengths")
    assert any(shorter < longer for shorter, longer in pairwise(lengths)), lengths
    expect(page.locator("#rail-status .state")).to_have_text("ready")
    page.context.set_offline(True)
    web.do(_rename(web, page.url.rpartition("/")[2], "renamed while away"))
    page.context.set_offline(False)
    expect(page.locator("#items")).to_contain_text("renamed while away")


async def _rename(web: Web, session: Any, name: str) -> None:
    from curtainwall.model import RenameSession, Who

    await web.served.work.desk.send(session, RenameSession(by=Who(name="olga", channel="web"), name=name))


@covers("web.long-lists")
def test_what_comes_live_does_not_get_into_a_search(screens: Screens, web: Web) -> None:
    page = screens.window()
    first = web.session("a needle")
    page.goto(f"{web.base}/sessions")
    expect(page.locator(".live.on")).to_be_visible()
    page.get_by_label("Search by name or workspace").fill("needle")
    page.wait_for_url("**/sessions?q=needle*")
    expect(page.locator(".row")).to_have_count(1)
    web.session("a haystack")
    web.do(_rename(web, first, "a needle with an eye"))
    expect(page.locator(".row")).to_contain_text(["a needle with an eye"])
    expect(page.locator(".row")).to_have_count(1)
    page.go_back()
    expect(page.locator(".row", has_text="a haystack")).to_be_visible()


def test_the_colours_can_be_chosen_and_stay(screens: Screens, web: Web) -> None:
    page = screens.window("ann", color_scheme="light")
    light = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.locator(".menu summary").click()
    page.get_by_role("button", name="dark").click()
    page.goto(f"{web.base}/rules")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != light


@covers("web.refused-files-are-told")
def test_a_configuration_or_rule_that_is_not_valid_is_told_on_the_health_page_with_its_line(screens: Screens, web: Web) -> None:
    page, home = screens.window(), web.served.wired.setup.home.root
    rules, config = home / "policy" / "broken.cedar", home / "config.toml"
    rules.parent.mkdir(mode=0o700, exist_ok=True)
    told, before = page.locator(".row.finding", has_text="configuration and rules"), config.read_text()

    def says(words: str) -> None:
        web.until(lambda: page.goto(f"{web.base}/health") and words in told.inner_text())

    replace(rules, "permit (principal, action, resource)\nnonsense")
    says("`broken.cedar`, line 1, is no Cedar".replace("`", ""))
    expect(told.locator(".state")).to_have_text("fail")
    expect(told).to_contain_text("the old ones stay in force")
    rules.unlink()
    says("in force as they are written")
    replace(config, f"{before}\n[lists]\nhostz = 1\n")
    says("unknown key lists.hostz")
    replace(config, before)
    says("in force as they are written")
