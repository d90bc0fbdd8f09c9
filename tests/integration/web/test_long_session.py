"""A session with tens of thousands of events in a real browser, with scripts and without."""

import pytest
from playwright.sync_api import expect

from curtainwall.model import MessageId, SendMessage
from tests.integration.web.conftest import Screens
from tests.support.covers import covers
from tests.support.long_sessions import long_session
from tests.support.stores import ANN
from tests.support.webs import Web

TURNS = 6_000


@covers("web.a-long-session-is-read-in-windows")
@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_a_person_reads_a_long_session_from_its_end_back_and_sees_what_comes(screens: Screens, web: Web, scripts: bool) -> None:
    session, page = long_session(web, TURNS), screens.window("ann", java_script_enabled=scripts)
    page.goto(f"{web.base}/sessions/{session}")
    items = page.locator("#items > li")
    expect(items.last).to_contain_text(f"answer {TURNS - 1};")
    assert items.count() <= 150
    web.until(lambda: page.locator("#rail-budget .budget li").count() or (not scripts and page.reload() and False))
    while (more := page.get_by_role("link", name="earlier things are not shown")).count():
        more.click()
    page.get_by_role("link", name="Show what came earlier").click()
    page.wait_for_url("**before=*")
    earlier = items.last.inner_text()
    assert f"{TURNS - 1};" not in earlier
    page.get_by_role("link", name="Show what came earlier").click()
    expect(items.last).not_to_have_text(earlier)
    page.get_by_role("link", name="Back to the newest").click()
    expect(items.last).to_contain_text(f"answer {TURNS - 1};")
    if scripts:
        web.do(web.served.work.desk.send(session, SendMessage(by=ANN, message=MessageId("live"), text="said just now")))
        expect(items.last).to_contain_text("said just now")
