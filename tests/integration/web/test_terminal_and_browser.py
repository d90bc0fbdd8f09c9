"""One session in a terminal and in a browser at once: both see everything, either answers, and the late one is told."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.integration.app.conftest import Program, make_program
from tests.integration.web.conftest import PATIENCE
from tests.support.covers import covers
from tests.support.ports import free_port
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
    serving.says(r"the web is at")
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
        card.get_by_role("button", name="Approve once").click()
        tmux.until("approved once by ann on web", bound=60)
        until((program.workspace / "first.txt").exists)
        expect(other.locator("#items")).to_contain_text("approved once by ann on web")

        other.get_by_label("Message to the agent").fill("write 'from the browser' to second.txt")
        other.get_by_role("button", name="Send").click()
        tmux.until("from the browser", bound=60)
        second = page.locator("#asks .card:not(.settled)").first
        expect(second).to_contain_text("second.txt")
        asked = program.open_approval()
        tmux.until(asked, bound=60)
        program("deny", asked, "--reason", "enough")
        expect(page.locator("#asks")).to_contain_text("enough")
        tmux.until("enough", bound=60)
        late = page.request.post(
            f"http://127.0.0.1:{port}/asks/{session}/{asked}",
            form={"csrf": page.locator('meta[name="csrf"]').get_attribute("content") or "", "answer": "once"},
            headers={"Origin": f"http://127.0.0.1:{port}"},
        )
        assert late.status == 409
        assert "already answered by" in late.text()
        assert not (program.workspace / "second.txt").exists()
    browser.contexts[-1].close()
