"""Lists of sessions: as many as a page can hold, more where somebody asks for them, and those that a search finds."""

import re
from collections.abc import Iterator

import pytest

from curtainwall.model import SYSTEM, EndTurn, MessageId, SendMessage, SessionQuery, StartTurn, TurnId, TurnStatus, Who
from tests.support.covers import covers
from tests.support.webs import CONFIG, Visit, Web, web_at

SESSIONS = 105


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with web_at(tmp_path_factory.mktemp("many").resolve(), CONFIG) as made:
        for number in range(SESSIONS):
            made.session(f"number {number} <&>", channel="local")
        yield made


def rows(ann: Visit, path: str) -> list[str]:
    return re.findall(r'<a class="name" href="[^"]+"><bdi>([^<]*)</bdi>', ann.get(path).text)


@covers("web.long-lists")
def test_a_list_that_is_cut_says_so_and_leads_to_the_rest(ann: Visit) -> None:
    page = ann.get("/sessions").text
    assert len(rows(ann, "/sessions")) == 100
    more = re.search(r'<a href="(/sessions\?[^"]+)">Show more</a>', page)
    assert more
    # Another test may have added a session of its own.
    found = [name for name in rows(ann, more[1].replace("&amp;", "&")) if name.startswith("number ")]
    assert found == [f"number {number} &lt;&amp;&gt;" for number in reversed(range(SESSIONS))]
    assert "Show more" not in ann.get(more[1].replace("&amp;", "&")).text


@covers("web.long-lists")
@pytest.mark.parametrize(("path", "count"), [("/sessions?q=number+10", 6), ("/sessions?q=NUMBER+104", 1), ("/sessions?status=closed", 0)])
def test_a_search_is_not_cut_by_what_is_shown_of_the_rest(ann: Visit, path: str, count: int) -> None:
    assert len(rows(ann, path)) == count


@pytest.mark.parametrize("told", ["-1", "x", "²", "9" * 30, "1e3", ""])
def test_a_number_that_is_none_shows_as_many_as_usual(ann: Visit, told: str) -> None:
    assert len(rows(ann, f"/sessions?rows={told}")) == 100


def test_a_session_whose_last_turn_failed_is_told_from_one_that_is_done(web: Web, ann: Visit) -> None:
    web.session("it fails", channel="local")
    wired, turn = web.served.wired, TurnId("t1")
    (row,) = wired.store.index.sessions(SessionQuery(text="it fails"))
    session, house = row.session, wired.registry
    web.do(house.send(session, SendMessage(by=Who(name="ann", channel="local"), message=MessageId("m1"), text="go on")))
    web.do(house.send(session, StartTurn(by=SYSTEM, turn=turn)))
    web.do(house.send(session, EndTurn(by=SYSTEM, turn=turn, status=TurnStatus.FAILED, failure="no answer")))
    page = ann.get("/sessions?q=it+fails&status=ready").text
    assert '<span class="state fail">failed</span>' in page
