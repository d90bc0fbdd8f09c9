"""A person who has ten seconds: the card itself says what is asked, and what it leaves out is one step away."""

from playwright.sync_api import expect

from curtainwall.model import SYSTEM, ApprovalQuery, EndTurn, MessageId, SendMessage, StartTurn, TurnId, TurnStatus, Who
from tests.integration.web.conftest import Screens
from tests.support.covers import covers
from tests.support.webs import Web

PHONE = {"width": 375, "height": 740}


@covers("web.card-shows-what-is-asked")
def test_what_an_answer_is_about_is_seen_without_a_click(screens: Screens, web: Web) -> None:
    session = web.session("in the open", web.scratch / "project")
    web.wish(session, "fetch.get", url="https://example.org/collect?data=secret", method="POST", body="all of it")
    web.wish(session, "session.request_budget", what="tokens", amount=5_000_000, why="it is a long way")
    web.wish(session, "filesystem.read_file", path="/etc/hostname")
    page = screens.window("ann", viewport=PHONE)
    fetch, budget, read = (page.locator(".card", has_text=tool) for tool in ("fetch.get", "request_budget", "read_file"))
    for words in ("/collect?data=secret", "POST", "all of it"):
        expect(fetch.get_by_text(words).first).to_be_visible()
    expect(budget.get_by_text("5000000").first).to_be_visible()
    expect(read.get_by_text("Reading outside the workspace asks").first).to_be_visible()
    expect(read.get_by_text('"/etc/hostname"').first).to_be_hidden()
    page.goto(f"{web.base}/sessions/{session}")
    expect(page.locator("#items").get_by_text("/collect?data=secret").first).to_be_visible()


@covers("web.card-shows-what-is-asked")
def test_what_a_card_leaves_out_is_said_and_shown_on_a_page_where_it_can_be_answered(screens: Screens, web: Web) -> None:
    session = web.session("a long text", web.scratch / "project")
    web.wish(session, "filesystem.write_file", path="long.txt", content="".join(f"line {n}.\n" for n in range(400)))
    page = screens.window("ann", viewport=PHONE)
    card = page.locator(".card", has_text="long.txt")
    expect(card.get_by_text("400 lines, of which 340 are not shown here")).to_be_visible()
    card.get_by_role("link", name="Show everything").click()
    for line in ("+line 0.", "+line 200.", "+line 399."):
        expect(page.get_by_text(line, exact=True)).to_be_visible()
    page.get_by_role("button", name="Approve once").click()
    page.wait_for_url(f"{web.base}/")
    expect(page.locator("#words")).to_contain_text("approved once")
    page.go_back()
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("already answered by `ann on web`".replace("`", ""))


@covers("web.card-shows-what-is-asked")
def test_one_command_among_a_hundred_is_named_first(screens: Screens, web: Web) -> None:
    rules = web.served.wired.setup.home.root / "policy" / "commands.cedar"
    rules.parent.mkdir(mode=0o700, exist_ok=True)
    rules.write_text('@id("commands") forbid (principal, action == Action::"run-command", resource) unless { context.approved };')
    session = web.session("a hundred commands")
    command = "; ".join([*(f"echo {n}" for n in range(60)), "rm -rf x", *(f"echo {n}" for n in range(60, 99))])
    web.until(lambda: web.wish(session, "shell.run", command=command).waiting)
    card = screens.window().locator(".card", has_text="shell.run")
    expect(card.locator(".tally")).to_have_text("100 things at once: rm, echo × 99")
    rules.unlink()


@covers("web.answers-hit-what-was-aimed-at")
def test_a_second_click_does_not_answer_the_ask_that_comes_into_the_place_of_the_first(screens: Screens, web: Web) -> None:
    session = web.session("one after the other")
    for name in ("hostname", "hosts", "passwd", "group"):
        web.an_ask(session, f"/etc/{name}")
    page = screens.window()
    waiting = page.locator(".card:not(.settled)")
    expect(waiting).to_have_count(4)
    page.locator(".live.on").wait_for()
    before = waiting.nth(1).get_by_role("button", name="Approve once").bounding_box()
    waiting.first.get_by_role("button", name="Approve once").click()
    expect(waiting).to_have_count(3)
    after = waiting.first.get_by_role("button", name="Approve once").bounding_box()
    assert before is not None
    assert after is not None
    assert after["y"] != before["y"], "what is below has moved"
    # Wherever it is now: whoever clicks at once has not seen it.
    page.mouse.click(after["x"] + 10, after["y"] + 10)
    waiting.first.get_by_role("button", name="Deny").click()
    expect(waiting).to_have_count(2)
    rows = web.served.wired.store.index.approvals(ApprovalQuery(session=session, open_only=False))
    assert sorted(row.status for row in rows) == ["denied", "granted", "open", "open"]


@covers("web.typed-words-are-kept")
def test_what_was_typed_outlives_a_reload_a_refusal_and_a_house_that_does_not_answer(screens: Screens, web: Web) -> None:
    session = web.session("typed words")
    web.an_ask(session)
    page = screens.window()
    page.goto(f"{web.base}/sessions/{session}")
    text = page.get_by_label("Message to the agent")
    text.fill("half a sentence")
    page.reload()
    expect(text).to_have_value("half a sentence")
    text.fill("/budget steps 400")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert")).to_contain_text("/budget is for the terminal")
    expect(text).to_have_value("/budget steps 400")
    text.fill("a whole sentence")
    page.get_by_role("button", name="Send").click()
    expect(text).to_have_value("")
    page.reload()
    expect(text).to_have_value("")

    page.goto(f"{web.base}/sessions/new")
    page.get_by_label("First task").fill("a long story")
    page.get_by_role("textbox", name="Workspace").fill("/no/such/place")
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("alert")).to_contain_text("/no/such/place")
    expect(page.get_by_label("First task")).to_have_value("a long story")

    page.goto(web.base)
    reason = page.locator(".card").get_by_label("Reason for a denial")
    reason.fill("not now")
    page.route("**/asks/**", lambda route: route.abort())
    page.get_by_role("button", name="Deny").click()
    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    expect(reason).to_have_value("not now")
    page.unroute("**/asks/**")
    page.context.clear_cookies()
    page.get_by_role("button", name="Deny").click()
    expect(page.locator("#words p.bad")).to_contain_text("you are signed out")
    expect(reason).to_have_value("not now")


def test_a_session_that_waits_without_an_ask_is_found_in_the_inbox(screens: Screens, web: Web) -> None:
    session = web.session("out of steps", channel="local")
    send, turn = web.served.wired.registry.send, TurnId("t1")
    web.do(send(session, SendMessage(by=Who(name="ann", channel="web"), message=MessageId("m1"), text="go on")))
    web.do(send(session, StartTurn(by=SYSTEM, turn=turn)))
    web.do(send(session, EndTurn(by=SYSTEM, turn=turn, status=TurnStatus.WAITING)))
    page = screens.window()
    parked = page.locator(".parked")
    expect(parked).to_contain_text("out of steps")
    parked.get_by_role("link").click()
    page.wait_for_url(f"{web.base}/sessions/{session}")


@covers("web.answers-hit-what-was-aimed-at")
def test_whoever_points_stays_where_they_are_and_reads_what_they_answered(screens: Screens, web: Web) -> None:
    session = web.session("by finger")
    for name in ("hostname", "hosts", "passwd", "group"):
        web.an_ask(session, f"/etc/{name}")
    page = screens.window("ann", viewport=PHONE, has_touch=True)
    waiting = page.locator(".card:not(.settled)")
    expect(waiting).to_have_count(4)
    page.locator(".live.on").wait_for()
    waiting.first.get_by_role("button", name="Deny").tap()
    expect(waiting).to_have_count(3)
    expect(page.locator("#words")).to_contain_text("filesystem.read_file /etc/hostname")
    expect(page.locator(".card.settled")).to_be_in_viewport()
    expect(page.locator(".card.settled:focus")).to_contain_text("denied by ann")
    page.locator(".menu summary").tap()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Sign out", exact=True)).to_be_hidden()
