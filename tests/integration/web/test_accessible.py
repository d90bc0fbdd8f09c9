"""Every page for everybody: in both colours, on a screen and on a phone, by keys alone, and without scripts."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from curtainwall.model import (
    SYSTEM,
    AgentSpoke,
    AnswerApproval,
    EndTurn,
    RecordProgress,
    SendMessage,
    SessionId,
    StartTurn,
    TurnId,
    TurnStatus,
    Who,
)
from tests.integration.web.conftest import Screens
from tests.support.covers import covers
from tests.support.webs import CONFIG, Web, web_at

LOOK = Path(__file__).with_name("accessible.js").read_text()
FOCUSED = Path(__file__).with_name("focused.js").read_text()
FINE: dict[str, Any] = {"wide": False, "nameless": [], "pale": [], "small": [], "doubled": [], "skipped": [], "landmarks": True}
SIZES = {"screen": {"width": 1280, "height": 860}, "tablet": {"width": 768, "height": 900}, "phone": {"width": 375, "height": 740}}
MOST_STOPS = 40
PLANNED = """
[cron.nightly]
schedule = "0 0 29 2 *"
instructions = "write 'done' to report.txt"

[teams.backend]
project = "{project}"
description = "the API and its database"
"""


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    scratch = tmp_path_factory.mktemp("everybody").resolve()
    (scratch / "project").mkdir()
    with web_at(scratch, CONFIG + PLANNED.replace("{project}", str(scratch / "project"))) as made:
        yield made


@pytest.fixture(scope="module")
def session(web: Web) -> SessionId:
    """A conversation with something of every kind in it, and an open ask."""
    send, ann, turn = web.served.wired.registry.send, Who(name="ann", channel="web"), TurnId("t1")
    made = web.session("something of everything", web.scratch / "project", channel="local")
    web.do(send(made, SendMessage(by=ann, message=web.served.line.new_message(), text="have a look")))
    web.do(send(made, StartTurn(by=SYSTEM, turn=turn)))
    spoke = AgentSpoke(
        at=1, turn=turn, text="# A heading\n\n* one\n* `two`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n[there](https://example.org)"
    )
    web.do(send(made, RecordProgress(by=SYSTEM, events=(spoke,))))
    web.do(send(made, EndTurn(by=SYSTEM, turn=turn, status=TurnStatus.DONE)))
    web.wish(made, "filesystem.list_directory", path=".")
    web.wish(made, "filesystem.read_file", path="/etc/shadow")
    web.wish(made, "no.such_tool")
    for granted in (True, False):
        ask = web.an_ask(made, "/etc/hosts" if granted else "/etc/group")
        web.do(send(made, AnswerApproval(by=ann, approval=ask, granted=granted, scope="session", reason="" if granted else "why?")))  # type: ignore[arg-type] - read as a scope
    return made


@pytest.fixture
def paths(web: Web, session: SessionId) -> list[str]:
    """Return every page there is, with an ask that waits."""
    web.wish(session, "filesystem.write_file", path="notes.txt", content="one\ntwo\n")
    trial = "/rules/try?tool=filesystem.read_file&arguments=%7B%22path%22%3A%22/etc/hostname%22%7D"
    own = [f"/sessions/{session}", f"/sessions/{session}/why?about=", f"/rules?session={session}", f"/audit?session={session}"]
    return [
        *own,
        f"/asks/{session}/{web.asks(session)[-1]}",
        "/",
        "/sessions",
        "/sessions/new",
        "/cron",
        "/teams",
        "/audit",
        "/rules",
        trial,
        "/usage",
        "/health",
        "/grants",
        "/nowhere",
    ]


@covers("web.accessible")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_names_colours_sizes_and_headings_are_fit_for_everybody(
    screens: Screens, web: Web, paths: list[str], scheme: str, size: str
) -> None:
    page = screens.window("ann", color_scheme=scheme, viewport=SIZES[size])
    found = {path: page.evaluate(LOOK) for path in paths if page.goto(f"{web.base}{path}")}
    assert {path: told for path, told in found.items() if told != FINE} == {}


@covers("web.accessible")
def test_the_keyboard_reaches_what_is_there_in_its_order_and_shows_where_it_is(screens: Screens, web: Web, paths: list[str]) -> None:
    page = screens.window()
    for path in paths:
        page.goto(f"{web.base}{path}")
        page.locator(".live.on").wait_for()
        # From the first stop on, also where a page puts the focus into its form.
        page.locator(".skip").focus()
        places: list[int] = [page.evaluate(FOCUSED)["place"]]
        for _ in range(MOST_STOPS):
            page.keyboard.press("Tab")
            told = page.evaluate(FOCUSED)
            if told is None or told["place"] in places:
                break
            assert told["seen"], (path, told["what"])
            places.append(told["place"])
        assert len(places) > 10, path
        assert places == sorted(places), path


@covers("web.works-without-scripts")
def test_without_scripts_every_page_says_what_it_says_with_them(screens: Screens, web: Web, paths: list[str]) -> None:
    bare, live = screens.window("ann", java_script_enabled=False), screens.window("ann")
    for path in paths:
        bare.goto(f"{web.base}{path}")
        live.goto(f"{web.base}{path}")
        expect(live.locator(".live.on")).to_be_visible()
        assert words(live) - words(bare) == set(), path
    bare.goto(f"{web.base}/sessions?status=waiting")
    bare.get_by_role("button", name="Show").click()
    expect(bare.locator(".row")).to_have_count(1)
    bare.goto(f"{web.base}/rules")
    bare.get_by_label("Tool").fill("filesystem.read_file")
    bare.get_by_label("Arguments").fill('{"path": "/etc/hostname"}')
    bare.get_by_role("button", name="Try", exact=True).click()
    expect(bare.locator("#tried")).to_contain_text("read-outside")
    bare.goto(f"{web.base}/")
    bare.get_by_label("Reason for a denial").fill("not today")
    bare.get_by_role("button", name="Deny").click()
    expect(bare.locator("#words")).to_contain_text("denied")


def words(page: Page) -> set[str]:
    """Return the words that somebody sees on a page; figures change from one look to the next."""
    return set(re.findall(r"[a-z-]{2,}", page.locator("body").inner_text()))
