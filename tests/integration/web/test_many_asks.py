"""A person in front of more asks than a page holds."""

from playwright.sync_api import expect

from curtainwall.channels.web.live.hubs import MOST_CARDS
from curtainwall.model import AnswerApproval, Who
from tests.integration.web.conftest import Screens
from tests.support.covers import covers
from tests.support.many_asks import ask_often
from tests.support.webs import Web


@covers("asks.all-are-reachable")
def test_the_rest_of_a_full_inbox_is_a_click_away_and_can_be_answered_there(screens: Screens, web: Web) -> None:
    log, send = web.served.wired.store.log, web.served.wired.registry.send
    keys = web.do(ask_often(log, MOST_CARDS))
    page = screens.window()
    waiting, more = page.locator(".card:not(.settled)"), page.locator("#more")
    expect(waiting).to_have_count(MOST_CARDS)
    page.locator(".live.on").wait_for()
    expect(more).to_be_hidden()
    keys += web.do(ask_often(log, 5, before=MOST_CARDS))
    expect(more).to_contain_text("200 of 205 open asks are shown here")
    more.get_by_role("link", name="Show the next ones").click()
    expect(waiting).to_have_count(5)
    page.locator(".live.on").wait_for()
    waiting.first.get_by_role("button", name="Deny").click()
    expect(waiting).to_have_count(4)
    expect(page.locator(".card.settled")).to_contain_text("denied by ann")
    more.get_by_role("link", name="Show the oldest").click()
    expect(waiting).to_have_count(MOST_CARDS)
    # What the first page has room for again, it shows.
    page.locator(".live.on").wait_for()
    for session, approval in keys[:4]:
        web.do(send(session, AnswerApproval(by=Who(name="ann"), approval=approval, granted=False)))
    expect(page.locator(f"#ask-{'-'.join(keys[-1])}")).to_be_visible()
    expect(more).to_be_hidden()
