"""An answer hits the ask that it was meant for, or nothing, however asks come and go under keys and fingers."""

from typing import Any

from playwright.sync_api import Locator, Page, expect

from curtainwall.model import SYSTEM, ApprovalId, ApprovalQuery, DropCall, MessageId, SendMessage, SessionId, Who
from tests.integration.web.conftest import Screens
from tests.support.covers import covers
from tests.support.webs import Web

# The moment in which the first card on the page is settled, a key is pressed: 27 ms later, where the focus is by then.
KEYS_AFTER_AN_END = """(keys) => {
  window.pressed = [];
  const card = document.querySelector("#asks .card:not(.settled)");
  new MutationObserver((_, watch) => {
    if (card.isConnected) return;
    watch.disconnect();
    keys.forEach((key, place) => setTimeout(() => {
      const made = new KeyboardEvent("keydown", { key, shiftKey: key === "A", bubbles: true, cancelable: true });
      document.activeElement.dispatchEvent(made);
      window.pressed.push(key);
    }, 27 + place));
  }).observe(document.getElementById("asks"), { childList: true });
}"""
# The answers that a page sends.
COUNT_ANSWERS = """() => {
  window.answers = [];
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.target.matches(".answers")) window.answers.push(event.target.action);
  });
}"""
# What a finger does that has been on its way while a card appeared.
CLICK_WHAT_COMES = """(where) => {
  window.clicked = 0;
  new MutationObserver((_, watch) => {
    const button = [...document.querySelectorAll(`${where} .answers .yes`)].at(-1);
    if (!button || button.closest(".known")) return;
    watch.disconnect();
    button.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true }));
    button.click();
    window.clicked += 1;
  }).observe(document.querySelector(where), { childList: true, subtree: true });
}"""


def asked(web: Web, session: SessionId, *names: str) -> list[ApprovalId]:
    return [web.an_ask(session, f"/etc/{name}") for name in names]


def withdraw(web: Web, session: SessionId, approval: ApprovalId) -> None:
    """Let the agent withdraw an ask."""
    call = next(it.call for it in web.served.work.desk.view(session).pending if it.approval == approval)
    web.do(web.served.wired.registry.send(session, DropCall(by=SYSTEM, call=call, why="not needed any more")))


def statuses(web: Web, session: SessionId) -> list[str]:
    """Return how the asks of a session stand, in their order."""
    rows = web.served.wired.store.index.approvals(ApprovalQuery(session=session, open_only=False))
    return [row.status for row in reversed(rows)]


def inbox(screens: Screens, count: int) -> tuple[Page, Locator]:
    """Return the inbox of somebody who has looked at it for a moment."""
    page = screens.window()
    waiting = page.locator(".card:not(.settled)")
    expect(waiting).to_have_count(count)
    page.locator(".live.on").wait_for()
    steady(page)
    page.evaluate(COUNT_ANSWERS)
    return page, waiting


def press_after_an_end(page: Page, *keys: str) -> None:
    page.evaluate(KEYS_AFTER_AN_END, list(keys))


def steady(page: Page) -> None:
    """Wait until answers count again."""
    expect(page.locator(".unsteady")).to_have_count(0)


def answers(page: Page) -> list[Any]:
    return page.evaluate("window.answers")


@covers("web.answers-hit-what-was-aimed-at")
def test_a_key_that_comes_right_after_the_agent_withdrew_the_focused_ask_answers_nothing(screens: Screens, web: Web) -> None:
    session = web.session("withdrawn")
    first, *_ = asked(web, session, "hostname", "hosts", "passwd")
    page, waiting = inbox(screens, 3)
    waiting.first.focus()
    press_after_an_end(page, "a")
    withdraw(web, session, first)
    web.until(lambda: page.evaluate("window.pressed.length") == 1)
    assert answers(page) == []
    page.keyboard.press("a")
    expect(waiting).to_have_count(2)
    expect(page.locator(".card.settled:focus")).to_contain_text("withdrawn")
    # Whoever goes on and looks can answer again.
    page.keyboard.press("j")
    steady(page)
    expect(page.locator(".card:focus")).to_contain_text("hosts")
    page.keyboard.press("a")
    expect(waiting).to_have_count(1)
    assert len(answers(page)) == 1
    assert statuses(web, session) == ["withdrawn", "granted", "open"]


@covers("web.answers-hit-what-was-aimed-at")
def test_a_key_that_selects_and_one_that_answers_right_after_a_withdrawal_answer_nothing(screens: Screens, web: Web) -> None:
    session = web.session("withdrawn before the next")
    first, *_ = asked(web, session, "hostname", "hosts", "passwd")
    page, waiting = inbox(screens, 3)
    waiting.first.focus()
    press_after_an_end(page, "j", "a", "A", "p")
    withdraw(web, session, first)
    web.until(lambda: page.evaluate("window.pressed.length") == 4)
    assert answers(page) == []
    expect(page.locator("#words")).to_contain_text("Not answered")
    assert statuses(web, session) == ["withdrawn", "open", "open"]


@covers("web.answers-hit-what-was-aimed-at")
def test_words_that_were_meant_as_a_reason_do_not_become_keys(screens: Screens, web: Web) -> None:
    session = web.session("withdrawn while writing")
    first, *_ = asked(web, session, "hostname", "hosts")
    page, waiting = inbox(screens, 2)
    waiting.first.focus()
    page.keyboard.press("d")
    page.keyboard.type("no, ")
    withdraw(web, session, first)
    expect(waiting).to_have_count(1)
    steady(page)
    # Whoever writes looks at the keys; these would select the next ask and approve it.
    page.keyboard.type("jak ja")
    expect(page.locator("#words")).to_contain_text("nothing was sent: no,")
    assert answers(page) == []
    assert statuses(web, session) == ["withdrawn", "open"]


@covers("web.answers-hit-what-was-aimed-at")
def test_an_ask_that_has_just_appeared_cannot_be_answered_by_a_finger_that_was_on_its_way(screens: Screens, web: Web) -> None:
    session = web.session("appears")
    page, waiting = inbox(screens, 0)
    page.evaluate(CLICK_WHAT_COMES, "#asks")
    asked(web, session, "hostname")
    web.until(lambda: page.evaluate("window.clicked") == 1)
    assert answers(page) == []
    expect(page.locator("#words")).to_contain_text("Not answered")
    waiting.get_by_role("button", name="Approve once").click()
    expect(waiting).to_have_count(0)
    assert statuses(web, session) == ["granted"]


@covers("web.answers-hit-what-was-aimed-at")
def test_on_the_page_of_a_session_too(screens: Screens, web: Web) -> None:
    session = web.session("on its page")
    page = screens.window()
    page.goto(f"{web.base}/sessions/{session}")
    page.locator(".live.on").wait_for()
    page.evaluate(COUNT_ANSWERS)
    page.evaluate(CLICK_WHAT_COMES, "#items")
    first, *_ = asked(web, session, "hostname")
    web.until(lambda: page.evaluate("window.clicked") == 1)
    assert answers(page) == []
    # What somebody writes stays while the conversation goes on, and the question stays where it is.
    steady(page)
    reason = page.locator("#items").get_by_label("Reason for a denial")
    reason.fill("half a rea")
    before = reason.bounding_box()
    for number in range(8):
        message = SendMessage(by=Who(name="ann", channel="web"), message=MessageId(f"m{number}"), text="are you there?")
        web.do(web.served.wired.registry.send(session, message))
    expect(page.locator("#items .said")).to_have_count(8)
    assert reason.bounding_box() == before
    expect(reason).to_be_focused()
    withdraw(web, session, first)
    expect(page.locator("#words")).to_contain_text("nothing was sent: half a rea")
    assert answers(page) == []


@covers("web.keys")
def test_single_keys_act_only_in_the_list_and_can_be_switched_off_for_good(screens: Screens, web: Web) -> None:
    session = web.session("single keys")
    asked(web, session, "hostname", "hosts")
    page, waiting = inbox(screens, 2)
    for key in ("j", "a", "Shift+A", "p"):
        page.keyboard.press(key)
    page.locator(".mark").first.focus()
    page.keyboard.press("j")
    page.keyboard.press("a")
    expect(page.locator(".card:focus-within")).to_have_count(0)
    waiting.first.focus()
    for key in ("Control+a", "Alt+a", "Meta+a"):
        page.keyboard.press(key)
    for held in ({"key": "A"}, {"key": "a", "shiftKey": True}, {"key": "a", "isComposing": True}, {"key": "a", "repeat": True}):
        page.evaluate("(held) => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { bubbles: true, ...held }))", held)
    assert answers(page) == []
    page.locator(".menu summary").click()
    page.get_by_role("group", name="Single-key shortcuts").get_by_role("button", name="off").click()
    for _ in range(2):
        page.locator(".live.on").wait_for()
        expect(page.locator(".keys")).to_have_count(0)
        steady(page)
        page.evaluate(COUNT_ANSWERS)
        waiting.first.focus()
        for key in ("a", "Shift+A", "p", "j"):
            page.keyboard.press(key)
        expect(page.locator(".card:focus")).to_contain_text("hostname")
        assert answers(page) == []
        page.reload()
    assert statuses(web, session) == ["open", "open"]
