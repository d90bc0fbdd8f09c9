"""What was said: messages when they are taken up, whole texts or what is left of them, and what a fork knew before."""

from curtainwall.channels.conversation import Utterance, utterances
from curtainwall.model import HistoryInherited, MessageId, SendMessage, SessionId, SessionReady, TurnStatus, WithdrawMessage
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
