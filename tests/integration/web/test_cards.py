"""A person who has ten seconds: the card itself says what is asked, and what it leaves out is one step away."""

from playwright.sync_api import expect

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
