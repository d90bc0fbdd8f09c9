"""The page of a long session: it reads the end of the log, and goes back from there to the beginning without losing anything."""

import re
from collections import Counter
from collections.abc import Sequence

from curtainwall.channels.web.live.session_hub import EARLIER, WINDOW, window_at
from curtainwall.channels.web.render.items import PageConversation
from curtainwall.model import (
    Recorded,
    StreamId,
    session_stream,
)
from tests.support.covers import covers
from tests.support.long_sessions import long_session
from tests.support.webs import Visit, Web

TURNS = 900


class Reads:
    """A feed that counts the entries that are read from it."""

    def __init__(self, web: Web) -> None:
        self._feed = web.served.wired.registry.feed
        self.follow, self.grown, self.head, self.changes = self._feed.follow, self._feed.grown, self._feed.head, self._feed.changes
        self.entries = 0

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Recorded]:
        found = self._feed.read(stream, after, limit)
        self.entries += len(found)
        return found


def said_on(page: str) -> list[str]:
    return re.findall(r"(?:question|answer) \d+;", page)


@covers("web.a-long-session-is-read-in-windows")
def test_a_page_of_a_long_session_shows_its_end_and_leads_back_to_its_beginning(web: Web, ann: Visit) -> None:
    session = long_session(web, TURNS)
    page = ann.get(f"/sessions/{session}").text
    assert said_on(page)[-1] == f"answer {TURNS - 1};"
    assert len(said_on(page)) <= 150
    page = ann.get(f"/sessions/{session}?items=5000").text
    seen = said_on(page)
    pages = 1
    while found := re.search(r'<a href="\?(before=\d+)">', page):
        page = ann.get(f"/sessions/{session}?{found[1]}").text
        assert "Back to the newest" in page
        seen = said_on(page) + seen
        pages += 1
        assert pages < 20
    assert pages > 2
    assert Counter(seen) == Counter(f"{what} {number};" for number in range(TURNS) for what in ("question", "answer"))
    assert [it for it in seen if it.startswith("question")] == [f"question {number};" for number in range(TURNS)]


@covers("web.a-long-session-is-read-in-windows")
def test_a_page_reads_a_window_of_the_log_and_not_all_of_it(web: Web) -> None:
    session = long_session(web, TURNS)
    feed = Reads(web)
    conversation, recorded = window_at(feed, session)
    assert recorded[-1].seq == feed.head(session_stream(session))
    assert feed.entries <= WINDOW + 1
    assert conversation.activity.workspace, "where it works is known all the same"
    feed.entries = 0
    window_at(feed, session, conversation.begin + 1)
    assert feed.entries <= 2 * EARLIER + 1


def test_what_is_said_has_the_same_name_wherever_a_page_begins(web: Web) -> None:
    session = long_session(web, TURNS)
    whole, later = PageConversation(), PageConversation(1_000)
    for it in web.served.wired.registry.feed.read(session_stream(session)):
        whole.take(it)
        if it.seq > 1_000:
            later.take(it)
    names = list(later.items)
    assert set(names[2:]) <= set(whole.items)
    assert whole.saying == later.saying


def test_whoever_has_seen_less_than_the_window_is_sent_for_the_page_again(web: Web, ann: Visit) -> None:
    session = long_session(web, TURNS)
    ann.get(f"/sessions/{session}")
    with ann.listen(f"on=&session={session}&after=1") as stream:
        assert "event: reload" in next(line for line in stream.iter_lines() if line.startswith("event:"))
