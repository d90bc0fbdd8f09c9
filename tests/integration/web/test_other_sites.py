"""Another site in the same browser, and another name for this machine: neither sees a page of ours nor answers an ask."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.integration.web.conftest import FLAGS, PATIENCE, Screens
from tests.support.covers import covers
from tests.support.sites import Site, reply
from tests.support.sites import site as web_site
from tests.support.webs import Web

TRAP = """<!doctype html><title>kittens</title>
<iframe id="frame" src="{base}/"></iframe>
<form id="form" method="post" action="{base}/asks/{session}/{approval}" target="out"><input name="answer" value="once"></form>
<iframe name="out"></iframe>
<script>
window.tries = {{}};
const tried = (name, work) => work.then((it) => window.tries[name] = String(it.type || it), () => window.tries[name] = "refused");
const send = (mode) => fetch("{base}/asks/{session}/{approval}", {{method: "POST", mode, credentials: "include",
  headers: {{"Content-Type": "application/x-www-form-urlencoded"}}, body: "answer=once"}});
document.getElementById("form").submit();
Promise.all([
  tried("blind", send("no-cors")), tried("read", fetch("{base}/", {{credentials: "include"}}).then((it) => it.text())),
  tried("open", send("cors")),
  tried("stream", new Promise((yes, no) => {{
    const it = new EventSource("{base}/events?on=asks", {{withCredentials: true}}); it.onopen = yes; it.onerror = no;
  }})),
]).then(() => window.tries.over = "yes");
</script>"""


@pytest.fixture
def elsewhere() -> Iterator[Site]:
    with web_site() as made:
        yield made


@covers("web.forms-are-ours", "web.no-entry-without-sign-in")
def test_a_page_of_another_site_neither_answers_nor_reads(screens: Screens, web: Web, elsewhere: Site) -> None:
    session = web.session("a trap")
    approval = web.an_ask(session)
    trap = TRAP.format(base=web.base, session=session, approval=approval)
    elsewhere.pages["/kittens"] = reply(200, trap, content_type="text/html")
    page = screens.window()
    statuses: dict[str, list[int]] = {}
    page.on("response", lambda it: statuses.setdefault(f"{it.request.method} {it.url.removeprefix(web.base)}", []).append(it.status))
    page.goto(f"http://localhost:{elsewhere.port}/kittens")
    page.wait_for_function("window.tries.over === 'yes'")
    answered = f"POST /asks/{session}/{approval}"
    # The browser tells that it shows neither our page nor the answer to the form in a frame.
    web.until(lambda: page.evaluate("1") and answered in statuses and len(screens.faults) == 2)
    assert all("frame-ancestors" in fault for fault in screens.faults)
    screens.faults.clear()
    assert statuses[answered] == [403], "a form of another site"
    assert page.evaluate("window.tries") == {"blind": "refused", "read": "refused", "open": "refused", "stream": "refused", "over": "yes"}
    assert web.asks(session) == [approval]


@covers("web.host-is-checked")
def test_another_name_that_leads_to_this_machine_leads_to_no_page(browser: Browser, web: Web) -> None:
    rebound = browser.browser_type.launch(
        executable_path="/usr/bin/chromium", args=[*FLAGS, "--host-resolver-rules=MAP evil.example 127.0.0.1"]
    )
    try:
        page = rebound.new_page()
        page.set_default_timeout(PATIENCE)
        answer = page.goto(f"http://evil.example:{web.port}/sign-in")
        assert answer is not None
        assert (answer.status, "web.hosts" in answer.text()) == (421, True)
        assert page.evaluate("fetch('/events').then((it) => it.status)") == 421
    finally:
        rebound.close()
