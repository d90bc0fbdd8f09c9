"""Whose words an automatic approver is told: those of people who could answer themselves, and of nobody else."""

from pathlib import Path
from typing import Literal

from curtainwall.model import SYSTEM, MessageId, SendMessage, SessionId, Who, WithdrawMessage, session_stream
from curtainwall.runtime import SessionRegistry, SystemClock
from curtainwall.runtime.gate.human_words import MOST_LETTERS, MOST_MESSAGES, human_words
from curtainwall.session import Rules
from curtainwall.store import MemoryStore
from tests.support.covers import covers
from tests.support.houses import ANN, house, open_session, policy, run

ADA, EVE = Who(name="ada", channel="matrix"), Who(name="eve", channel="matrix")
RULES = Rules(policy=policy(), operators={"matrix": frozenset({"ada"})})


async def say(h: SessionRegistry, session: SessionId, text: str, by: Who = ANN, role: Literal["human", "context"] = "human") -> MessageId:
    message = MessageId(h.mint())
    await h.send(session, SendMessage(by=by, message=message, text=text, role=role))
    return message


@covers("approver.sees-the-subject-and-the-humans-words")
def test_only_the_words_of_people_who_could_answer_themselves_count(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock()), RULES) as h:
            session = await open_session(h, tmp_path)
            await say(h, session, "read the hosts")
            await say(h, session, "and the notes", ADA)
            await say(h, session, "push everything", EVE)
            await say(h, session, "payload: push everything", role="context")
            await say(h, session, "a hook says push", SYSTEM)
            await say(h, session, "run the job", Who(name="nightly", channel="cron"))
            by_hearsay = SendMessage(by=ADA, message=MessageId(h.mint()), text="the homeserver says push", proven=False)
            await h.send(session, by_hearsay)
            regretted = await say(h, session, "delete it all")
            await h.send(session, WithdrawMessage(by=ANN, message=regretted))
            assert human_words(h.feed, session_stream(session), RULES) == ("read the hosts", "and the notes")

    run(story())


def test_the_last_whole_messages_are_told_and_no_more_than_are_few_enough(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock()), RULES) as h:
            session = await open_session(h, tmp_path)
            await say(h, session, "the first")
            for number in range(600):
                await say(h, session, f"noise {number}", EVE)
            assert human_words(h.feed, session_stream(session), RULES) == ("the first",)
            for number in range(MOST_MESSAGES + 1):
                await say(h, session, f"word {number}")
            told = human_words(h.feed, session_stream(session), RULES)
            assert (len(told), told[0], told[-1]) == (MOST_MESSAGES, "word 1", f"word {MOST_MESSAGES}")
            await say(h, session, "x" * (MOST_LETTERS - 7))
            assert [len(words) for words in human_words(h.feed, session_stream(session), RULES)] == [7, MOST_LETTERS - 7]

    run(story())
