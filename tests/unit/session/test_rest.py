"""Whether a session has anything to do by itself, by the last entries of its log."""

from collections.abc import Sequence
from typing import get_args

import pytest

from curtainwall.model import (
    AnyEvent,
    CallId,
    CompactionAsked,
    Entry,
    HistoryInherited,
    LifeEvent,
    MessageAccepted,
    MessageId,
    SessionClosed,
    SessionOpened,
    SessionReady,
    SessionRenamed,
    SessionReopened,
    SettingEvent,
    TurnId,
    TurnResumed,
    TurnStatus,
)
from curtainwall.session import is_at_rest
from tests.support.entries import STREAM, entries_of
from tests.support.stores import ANN, NOON, answered, asked, opened, permitted, requested, revoked, spoke, turn_ended, turn_started

BEGUN: tuple[AnyEvent, ...] = (opened("s"), SessionReady(at=NOON))
SAID = MessageAccepted(at=NOON, message=MessageId("m"), text="hello", by=ANN)
TURN: tuple[AnyEvent, ...] = (SAID, turn_started(), spoke(), turn_ended())
ASKED: tuple[AnyEvent, ...] = (SAID, turn_started(), requested(), asked())
PARKED = turn_ended(TurnStatus.WAITING).model_copy(update={"waits_for": (CallId("c1"),)})
CUT_OFF = turn_ended(TurnStatus.WAITING)
RESUMED = TurnResumed(at=NOON, turn=TurnId("t1"))
RENAMED = SessionRenamed(at=NOON, name="another", by=ANN)


@pytest.mark.parametrize(
    "events",
    [BEGUN, (*BEGUN, RENAMED, revoked()), (*BEGUN, *TURN), (*BEGUN, *TURN, RENAMED), (*BEGUN, *ASKED, PARKED), (*BEGUN, *TURN, *TURN)],
)
def test_a_session_whose_last_turn_has_ended_or_waits_for_a_human_is_at_rest(events: Sequence[AnyEvent]) -> None:
    assert is_at_rest(entries_of(events), is_whole=True)


@pytest.mark.parametrize(
    "events",
    [
        (),
        BEGUN[:1],
        (*BEGUN, SAID),
        (*BEGUN, *TURN, SAID),
        (*BEGUN, SAID, turn_started()),
        (*BEGUN, turn_started(), SAID, turn_ended()),
        (*BEGUN, SAID, turn_started(), CUT_OFF),
        (*BEGUN, *ASKED, CUT_OFF),
        (*BEGUN, *ASKED, PARKED, answered()),
        (*BEGUN, *ASKED, answered(), PARKED),
        (*BEGUN, *ASKED, PARKED, RESUMED),
        (*BEGUN, *TURN, permitted()),
        (*BEGUN, *TURN, CompactionAsked(at=NOON, instructions="", by=ANN)),
    ],
)
def test_a_session_that_may_have_something_to_do_is_not(events: Sequence[AnyEvent]) -> None:
    assert is_at_rest(entries_of(events), is_whole=True) is False


def test_a_kind_of_event_that_is_not_known_here_may_be_something_to_do() -> None:
    assert is_at_rest([*entries_of((*BEGUN, *TURN)), Entry(STREAM, 7, "SomethingNew", 1, b"{}", b"")], is_whole=True) is False


BEGIN_OR_END = {SessionOpened, SessionReady, HistoryInherited, SessionClosed, SessionReopened}


@pytest.mark.parametrize("kind", sorted({*get_args(LifeEvent), *get_args(SettingEvent)} - BEGIN_OR_END, key=lambda kind: kind.__name__))
def test_a_setting_that_changed_is_nothing_to_do(kind: type[AnyEvent]) -> None:
    changed = Entry(STREAM, 7, kind.__name__, 1, b"{}", b"")
    assert is_at_rest([*entries_of((*BEGUN, *TURN)), changed], is_whole=True), "name the event in `session/rest.py`, or here if it is work"


def test_an_end_that_does_not_reach_back_to_the_last_turn_does_not_say() -> None:
    assert is_at_rest(entries_of(TURN[2:]), is_whole=False) is None
    assert is_at_rest(entries_of(TURN[1:]), is_whole=False) is True
    assert is_at_rest(entries_of((SAID, turn_ended())), is_whole=False) is False
