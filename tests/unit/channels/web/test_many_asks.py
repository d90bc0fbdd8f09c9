"""More open asks than one page holds: each is on some page, and can be answered there."""

import html
import re
from collections.abc import Iterator

import pytest

from curtainwall.model import ApprovalId, ApprovalQuery, SessionId
from tests.support.covers import covers
from tests.support.many_asks import ask_often
from tests.support.webs import Visit, Web, told, web_at

MANY = 1_150
MOST_LOOKED_AT = 1_000
Keys = list[tuple[SessionId, ApprovalId]]


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with web_at(tmp_path_factory.mktemp("many").resolve()) as made:
        yield made


@pytest.fixture(scope="module")
def keys(web: Web) -> Keys:
    return web.do(ask_often(web.served.wired.store.log, MANY))


def shown(page: str) -> list[str]:
    return re.findall(r'<article class="card" id="ask-[^"-]+-([^"]+)"', page)


def following(page: str) -> str | None:
    found = re.search(r'<a href="(/\?after=[^"]+)">Show the next ones</a>', page)
    return html.unescape(found[1]) if found else None


@covers("asks.all-are-reachable")
def test_every_open_ask_is_on_some_page_of_the_inbox(web: Web, ann: Visit, keys: Keys) -> None:
    open_ = [row.approval for row in reversed(web.served.wired.store.index.approvals(ApprovalQuery(limit=None)))]
    path: str | None = "/"
    pages: list[list[str]] = []
    while path is not None:
        page = ann.get(path).text
        pages.append(shown(page))
        assert f"{len(pages[-1])} of {len(open_):,} open asks are shown here" in page
        path = following(page)
    assert len(open_) > MOST_LOOKED_AT
    assert [ask for page in pages for ask in page] == open_
    assert f'<span class="count" id="count">{len(open_)}</span>' in ann.get("/").text


@covers("asks.all-are-reachable")
def test_the_oldest_and_the_newest_can_be_read_and_answered(web: Web, ann: Visit, keys: Keys) -> None:
    for session, approval in (keys[0], keys[-1]):
        assert "Approve once" in ann.get(f"/asks/{session}/{approval}").text
        assert ann.post(f"/asks/{session}/{approval}", answer="deny", reason="no").status_code == 303
        assert not web.asks(session)


@covers("asks.all-are-reachable")
def test_a_page_goes_on_behind_an_ask_that_was_settled_meanwhile(ann: Visit, keys: Keys) -> None:
    later = following(ann.get("/").text)
    assert later is not None
    session, approval = later.removeprefix("/?after=").split("/")
    before = shown(ann.get(later).text)
    assert ann.post(f"/asks/{session}/{approval}", answer="deny").status_code == 303
    assert shown(ann.get(later).text) == before
    assert ann.get("/?after=s00001/nothing").status_code == 404


@covers("asks.all-are-reachable")
def test_a_later_page_hears_of_ends_and_of_nothing_new(web: Web, ann: Visit, keys: Keys) -> None:
    session, approval = keys[700]
    with ann.listen("on=later") as stream:
        heard = told(stream.iter_lines())
        event, data, _ = next(it for it in heard if it[0] != "count")
        assert event == "only"
        assert f"ask-{session}-{approval}" in data
        web.do(ask_often(web.served.wired.store.log, 1, before=MANY))
        ann.post(f"/asks/{session}/{approval}", answer="deny")
        piece = next(data for event, data, _ in heard if event == "put")
        assert f'id="ask-{session}-{approval}" data-into="asks" data-settled="yes"' in piece
