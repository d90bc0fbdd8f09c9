"""One session in a terminal and in a browser at once: both see everything, either answers, and the late one is told."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.integration.web.conftest import PATIENCE
from tests.support.covers import covers
from tests.support.ports import free_port
from tests.support.program import Program, make_program
from tests.support.waiting import until


@pytest.fixture
def program(tmp_path_factory: pytest.TempPathFactory, real_part: Callable[[str], str]) -> Iterator[Program]:
    real_part("tmux")
    made = make_program(tmp_path_factory.mktemp("both").resolve())
    yield made
    for child in made.started:
        child.terminate()
        child.wait(timeout=60)


@covers("web.beside-the-terminal")
def test_terminal_and_browser_share_a_session(program: Program, browser: Browser) -> None:
    port = free_port()
    program.configure(f'[web]\nport = {port}\noperators = ["ann"]\n')
    serving = program.begin("serve")
    serving.says(r"the web is at", 90)
    page = browser.new_context().new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(program.json("web", "link")["url"])
    page.get_by_role("button", name="Sign in").click()
    with program.terminal("start", "--model", "demo", "--workspace", program.workspace) as tmux:
        tmux.enter("write 'from the terminal' to first.txt")
        card = page.locator("#asks .card:not(.settled)").first
        expect(card).to_contain_text("first.txt")
        session = program.sessions()[0]["id"]
        other = page.context.new_page()
        other.set_default_timeout(PATIENCE)
        other.goto(f"http://127.0.0.1:{port}/sessions/{session}")
        expect(other.locator("#items")).to_contain_text("from the terminal")
        first = program.open_approval()
        card.get_by_role("button", name="Approve once").click()
        tmux.until("approved once by ann on web")
        tmux.enter(f"/deny {first} too late")
        tmux.until("already answered by `ann on web`")
        until((program.workspace / "first.txt").exists)
        expect(other.locator("#items")).to_contain_text("approved once by ann on web")

        other.get_by_label("Message to the agent").fill("write 'from the browser' to second.txt")
        other.get_by_role("button", name="Send").click()
        tmux.until("from the browser")
        second = page.locator("#asks .card:not(.settled)").first
        expect(second).to_contain_text("second.txt")
        asked = program.open_approval()
        tmux.until(asked)
        # A page that does not follow, because scripts are off, is late without knowing it.
        stale = browser.new_context(java_script_enabled=False).new_page()
        stale.set_default_timeout(PATIENCE)
        stale.goto(program.json("web", "link")["url"])
        stale.get_by_role("button", name="Sign in").click()
        expect(stale.locator("#asks")).to_contain_text("second.txt")
        tmux.enter(f"/deny {asked} enough")
        expect(page.locator("#asks")).to_contain_text("enough")
        expect(other.locator("#items")).to_contain_text("enough")
        stale.get_by_role("button", name="Approve once").click()
        expect(stale.get_by_role("alert")).to_contain_text("already answered by")
        assert not (program.workspace / "second.txt").exists()
    for context in browser.contexts:
        context.close()
