"""The audit as people go through it: every line is somewhere on its pages, once, newest first, and in the exports."""

import csv
import io
import json
import re
from collections.abc import Iterator

import pytest

from curtainwall.channels.web.pages.audit import EVENT_WORDS
from curtainwall.channels.web.pages.timeline import KINDS, LATEST, Cursor, read_cursor
from curtainwall.model import SessionId
from curtainwall.store.audit.lines import AUDITED
from tests.support.covers import covers
from tests.support.webs import CONFIG, Visit, Web, web_at

CALLS = 60
LINE = re.compile(r'<span class="kind" title="(\w+)">.*?>call</span> <bdi>(\w+)</bdi>', re.DOTALL)
OLDER = re.compile(r'<a class="button" href="([^"]+)" rel="next">')


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with web_at(tmp_path_factory.mktemp("audit").resolve(), CONFIG) as made:
        yield made


@pytest.fixture(scope="module")
def ann(web: Web) -> Visit:
    return web.visit("ann")


@pytest.fixture(scope="module")
def busy(web: Web, ann: Visit) -> list[SessionId]:
    """Two sessions whose calls alternate, so that neither is on a page of its own."""
    sessions = [web.session("left", channel="local"), web.session("right", channel="local")]
    for number in range(CALLS):
        for session in sessions:
            assert web.wish(session, "filesystem.get_file_info", path=f"file-{number}").result is not None
    # Each call is a line when it is wanted, when it is permitted and when it is over.
    web.until(lambda: len(ann.get("/audit.jsonl").text.splitlines()) == CALLS * len(sessions) * 3)
    return sessions


def walked(ann: Visit, path: str) -> list[list[tuple[str, str]]]:
    """Follow the pages from one on to their end."""
    found: list[list[tuple[str, str]]] = []
    while path:
        text = ann.get(path).text
        found.append([(kind, call) for kind, call in LINE.findall(text)])
        older = OLDER.search(text)
        path = older[1].replace("&amp;", "&") if older else ""
    return found


@covers("web.audit-by-pages")
def test_every_line_is_on_one_of_the_pages_newest_first(ann: Visit, busy: list[SessionId]) -> None:
    exported = [json.loads(line) for line in ann.get("/audit.jsonl").text.splitlines()]
    pages = walked(ann, "/audit")
    assert len(pages) > 1
    assert [line for page in pages for line in page] == [(it["type"], it["call"]) for it in exported]
    times = [it["at"] for it in exported]
    assert times == sorted(times, reverse=True)
    assert {it["session"] for it in exported[:12]} == set(busy)


@covers("web.audit-by-pages")
@pytest.mark.parametrize(("query", "count"), [("kind=outcomes", CALLS * 2), ("q=file-7", 2), ("q=nothing+like+it", 0), ("kind=grants", 0)])
def test_a_filter_finds_what_fits_however_old_it_is(ann: Visit, busy: list[SessionId], query: str, count: int) -> None:
    assert sum(map(len, walked(ann, f"/audit?{query}"))) == count
    assert len(ann.get(f"/audit.jsonl?{query}").text.splitlines()) == count
    assert len(list(csv.reader(io.StringIO(ann.get(f"/audit.csv?{query}").text)))) == count + 1


def test_one_session_is_shown_alone(ann: Visit, busy: list[SessionId]) -> None:
    assert sum(map(len, walked(ann, f"/audit?session={busy[0]}"))) == CALLS * 3


@pytest.mark.parametrize("told", ["", "x", "2026-01-01T00:00:00.000Z~a", "2026-01-01T00:00:00.000Z~<b>~1", "²~a~1", "2026-01-01~a~-1"])
def test_a_place_that_is_none_is_the_newest_end(told: str) -> None:
    assert read_cursor(told) == LATEST


def test_a_place_is_read_as_it_was_written() -> None:
    place = Cursor("2026-01-01T00:00:00.000Z", "abc1", 7)
    assert read_cursor(str(place)) == place
    assert place < LATEST


def test_every_audited_event_has_words_and_is_found_under_one_kind() -> None:
    assert EVENT_WORDS.keys() == AUDITED
    assert sorted(name for names in KINDS.values() for name in names) == sorted(AUDITED)
