"""What was said: messages when they are taken up, whole texts or what is left of them, and what a fork knew before."""

from collections.abc import Sequence

import pytest

from curtainwall.channels.conversation import QUEUED, Utterance, recent_utterances, utterances
from curtainwall.model import (
    HistoryInherited,
    MessageId,
    Recorded,
    SendMessage,
    SessionId,
    SessionReady,
    StreamId,
    TurnStatus,
    WithdrawMessage,
)
from curtainwall.operations.activity import SessionActivity, past_activity
from tests.support.desks import Hand, MemoryDesk
from tests.support.given import ANN, BOB, NOW, SESSION, opened


def said(desk: MemoryDesk, text: str, by: object = ANN, message: str = "") -> None:
    desk.do(SendMessage.model_validate({"by": by, "message": message or text, "text": text}))


def test_a_conversation_is_read_back_in_order() -> None:
    desk = MemoryDesk()
    said(desk, "one")
    said(desk, "two", BOB)
    hand = Hand(desk)
    hand.start()
    hand.stream("an")
    hand.speak("answer")
    said(desk, "queued")
    said(desk, "taken back")
    desk.do(WithdrawMessage(by=ANN, message=MessageId("taken back")))
    hand.stream("half of")
    hand.end(TurnStatus.INTERRUPTED)
    assert list(utterances(desk, SESSION)) == [
        Utterance("ann", "one"),
        Utterance("bob", "two"),
        Utterance("", "answer"),
        Utterance("", "half of", "interrupted"),
        Utterance("ann", "queued", "queued"),
    ]


def test_a_failure_is_part_of_what_was_said() -> None:
    desk = MemoryDesk()
    said(desk, "one")
    hand = Hand(desk)
    hand.start()
    hand.end(TurnStatus.FAILED, "no key")
    assert utterances(desk, SESSION)[-1] == Utterance("", "", "failed: no key")


def test_a_fork_knows_what_was_said_until_then_and_a_reset_does_not() -> None:
    desk = MemoryDesk()
    said(desk, "before")
    Hand(desk).reply("yes")
    upto = len(desk.logs[SESSION])
    said(desk, "after")
    for name, how in (("f", "fork"), ("r", "reset")):
        inherited = HistoryInherited.model_validate({"at": NOW, "parent": SESSION, "upto": upto, "history": None, "how": how})
        desk.logs[SessionId(name)] = [opened(), inherited, SessionReady(at=NOW)]
    assert [it.text for it in utterances(desk, SessionId("f"))] == ["before", "yes"]
    assert list(utterances(desk, SessionId("r"))) == []


class CountingDesk(MemoryDesk):
    """Counts the events that are read."""

    events_read = 0

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Recorded]:
        found = super().read(stream, after, limit)
        self.events_read += len(found)
        return found


def test_the_activity_of_a_session_at_rest_takes_no_event_of_its_log() -> None:
    desk = CountingDesk()
    said(desk, "one")
    hand = Hand(desk)
    hand.reply("answer")
    folded = SessionActivity()
    for event in desk.logs[SESSION]:
        folded.take(event)
    assert past_activity(desk, desk, SESSION) == (folded, len(desk.logs[SESSION]))
    assert desk.events_read == 0
    said(desk, "two")
    hand.start()
    activity, cursor = past_activity(desk, desk, SESSION)
    assert (activity.works, cursor) == (True, len(desk.logs[SESSION]))


@pytest.mark.parametrize("extra", [0, 1, 6])
def test_the_end_of_a_long_conversation_is_exact_and_needs_only_the_end_of_the_log(extra: int) -> None:
    desk = CountingDesk()
    hand = Hand(desk)
    for number in range(300):
        said(desk, f"question {number}")
        if number % 7 == 3:
            # It waits in the queue while others come.
            said(desk, f"another {number}", BOB)
        hand.reply(f"answer {number}")
    for number in range(extra):
        said(desk, f"waits {number}")
    whole = utterances(desk, SESSION)
    for count in (1, 7, 50):
        desk.events_read = 0
        recent = recent_utterances(desk, SESSION, count)
        assert desk.events_read == 500 < len(desk.logs[SESSION])
        assert list(recent) == list(whole[-len(recent) :])
        assert sum(message.end != QUEUED for message in recent) >= count


def test_a_message_that_was_accepted_long_before_its_turn_is_not_left_out() -> None:
    desk = CountingDesk()
    hand = Hand(desk)
    said(desk, "first")
    hand.start()
    said(desk, "queued for long")
    for number in range(600):
        hand.speak(f"part {number}")
    hand.end()
    hand.reply("late answer")
    recent = recent_utterances(desk, SESSION, 2)
    assert list(recent) == list(utterances(desk, SESSION))
    assert recent[-2:] == [Utterance("ann", "queued for long"), Utterance("", "late answer")]
