"""The event stream: nothing is missed over a broken connection, nothing comes twice, and who falls behind comes back."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import pytest

from curtainwall.channels.web.live.clients import BEAT_SECONDS, StreamClient, StreamGroup, sse_json
from curtainwall.model import RenameSession, SessionId, Who
from tests.support.covers import covers
from tests.support.houses import run
from tests.support.webs import Visit, Web, told

ANN = Who(name="ann", channel="web")


@contextmanager
def listening(visit: Visit, query: str, **headers: str) -> Iterator[Iterator[tuple[str, str, str]]]:
    with visit.listen(query, **headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield told(answer.iter_lines())


def rename(web: Web, session: SessionId, name: str) -> None:
    web.do(web.served.work.desk.send(session, RenameSession(by=ANN, name=name)))


def puts(messages: Iterator[tuple[str, str, str]], until: str) -> list[tuple[str, str]]:
    """Return the pieces that come, up to the one with these words in it."""
    found: list[tuple[str, str]] = []
    for event, data, seq in messages:
        if event == "put" and 'class="item' in data:
            found.append((data, seq))
            if until in data:
                return found
    raise AssertionError(f"the stream ended without {until}")


@covers("web.streams-miss-nothing")
def test_a_browser_that_was_cut_off_goes_on_behind_what_it_saw(web: Web, ann: Visit) -> None:
    session = web.session()
    with listening(ann, f"session={session}&after=0") as messages:
        rename(web, session, "name-1")
        seen = puts(messages, "name-1")[-1][1]
    for number in range(2, 12):
        rename(web, session, f"name-{number}")
    with listening(ann, f"session={session}&after=0", **{"Last-Event-ID": seen}) as messages:
        rename(web, session, "name-12")
        pieces = "".join(data for data, _ in puts(messages, "name-12"))
    assert [pieces.count(f"<code>name-{number}</code>") for number in range(2, 13)] == [1] * 11
    assert "name-1`" not in pieces


@covers("web.streams-miss-nothing")
def test_asks_come_to_the_inbox_and_leave_it_with_who_settled_them(web: Web, ann: Visit) -> None:
    session = web.session("the one")
    with listening(ann, "on=asks") as messages:
        approval = web.an_ask(session)
        assert next(data for event, data, _ in messages if event == "put" and approval in data).count("<article") == 1
        web.visit("olga").post(f"/asks/{session}/{approval}", answer="deny", reason="no")
        gone = next(data for event, data, _ in messages if event == "put" and "data-settled" in data)
        assert "olga on web" in gone
        assert f"ask-{session}-{approval}" in gone
        lately = next(data for event, data, _ in messages if event == "put" and 'data-into="recent"' in data)
        assert "denied" in lately
        assert f"settled-{session}-{approval}" in lately


def test_a_stream_begins_with_what_there_is_so_that_old_cards_can_go(web: Web, ann: Visit) -> None:
    session = web.session()
    approval = web.an_ask(session)
    with listening(ann, "on=asks") as messages:
        ids = next(json.loads(data)["ids"] for event, data, _ in messages if event == "only")
    assert f"ask-{session}-{approval}" in ids
    web.visit("ann").post(f"/asks/{session}/{approval}", answer="deny")


def test_rows_of_sessions_come_as_they_change(web: Web, ann: Visit) -> None:
    session = web.session()
    with listening(ann, "on=rows") as messages:
        next(messages)
        rename(web, session, "freshly named")
        assert next(data for event, data, _ in messages if event == "put" and "freshly named" in data)


@pytest.mark.parametrize("cursor", ["-1", "x", "99999999999999999999999", "1.5", "٣"])
def test_a_cursor_that_means_nothing_is_the_beginning(web: Web, ann: Visit, cursor: str) -> None:
    session = web.session()
    rename(web, session, "a name")
    with listening(ann, f"session={session}&after={cursor}") as messages:
        assert puts(messages, "a name")


def test_a_cursor_from_a_longer_log_asks_the_page_to_load_again(web: Web, ann: Visit) -> None:
    session = web.session()
    with listening(ann, f"session={session}&after=999999") as messages:
        assert next(messages)[0] == "reload"


@covers("web.streams-end-with-the-sign-in")
@pytest.mark.parametrize("how", ["sign-out", "everywhere"])
def test_who_signs_out_hears_nothing_more_however_busy_a_session_is(web: Web, how: str) -> None:
    """A page that was left open, or copied, says nothing more; and nothing has to fall silent before it does."""
    olga, session = web.visit("olga"), web.session()
    other = web.visit("olga")
    with listening(olga, f"session={session}&after=0") as messages:
        rename(web, session, "while she looks")
        puts(messages, "while she looks")
        (olga if how == "sign-out" else other).post("/sign-out", **({} if how == "sign-out" else {"everywhere": "yes"}))
        began, number = time.monotonic(), 0
        said: list[str] = []
        # Far less than a beat lies between two words, for longer than one would.
        while time.monotonic() - began < BEAT_SECONDS:
            number += 1
            rename(web, session, f"name-{number}")
            told = [data for event, data, _ in islice(messages, 1)]
            if not told:
                break
            said += told
        assert time.monotonic() - began < BEAT_SECONDS / 3, f"{len(said)} pieces were told after she had signed out"


@covers("web.streams-are-bounded")
def test_a_browser_that_does_not_read_is_let_go_and_the_others_hear_everything() -> None:
    async def check() -> None:
        group, slow, quick = StreamGroup(), StreamClient(), StreamClient()
        group.join(slow)
        group.join(quick)
        heard = 0
        reading = quick.messages(lambda: True)
        for number in range(2_000):
            group.send(sse_json("n", number))
            heard += (await anext(reading)).count(b"event: n")
        assert heard == 2_000
        assert (slow.is_over, len(group)) == (True, 1)
        kept = b"".join([message async for message in slow.messages(lambda: True)])
        assert kept.count(b"event: n") == 512

    run(check())
