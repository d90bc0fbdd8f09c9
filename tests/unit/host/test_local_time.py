"""Moments as people read them: in their own time, and with its zone."""

import time
from collections.abc import Iterator

import pytest

from curtainwall.channels.slash.lines import event_line, grant_lines
from curtainwall.host.user import clock_time, when
from curtainwall.model import SYSTEM, Grant, GrantId, GrantScope, Recorded, SessionReady, StreamId


@pytest.fixture
def in_kolkata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_kolkata")
def test_people_read_their_own_time_and_its_zone() -> None:
    assert when(0) == "1970-01-01 05:30:00 IST"
    assert clock_time(0) == "1970-01-01 00:00:00 UTC"


@pytest.mark.usefixtures("in_kolkata")
def test_what_slash_words_show_has_the_same_time_as_the_commands() -> None:
    grant = Grant(id=GrantId("g"), scope=GrantScope.SESSION, covers=(), by=SYSTEM, at=0)
    shown = [*grant_lines([grant]), event_line(Recorded(StreamId("session:s"), 1, SessionReady(at=0)))]
    assert all(when(0) in line for line in shown)
