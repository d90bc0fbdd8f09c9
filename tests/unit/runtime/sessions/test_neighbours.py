"""Sessions of one process that write to each other: in one commit where somebody waits for it, else by the inbox; once, and in order."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from curtainwall.model import (
    SYSTEM,
    AnyCommand,
    AnyEvent,
    Batch,
    Concerns,
    Conflict,
    MessageAccepted,
    MessageId,
    MessagePeer,
    NotFound,
    PeerAnswerTaken,
    PeerMessageSent,
    RenameSession,
    SessionId,
    StreamId,
    TryLater,
    session_stream,
)
from curtainwall.policy import Lists
from curtainwall.runtime import SessionRegistry, SystemClock
from curtainwall.session import Rules, SessionState
from curtainwall.store import MemoryDisk, MemoryStore
from tests.support.covers import covers
from tests.support.houses import ANN, FailingStore, events, house, kinds, open_session, policy, run, until


class Watched:
    """A log that remembers what was written in one piece; it can be late once, be held up, and be deaf to what others write."""

    def __init__(self, store: MemoryStore) -> None:
        self._log = store.log
        self.batches: list[list[str]] = []
        self.is_late = False
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.waits = self.is_deaf = False

    @asynccontextmanager
    async def watch(self, concerns: Concerns | None = None) -> AsyncGenerator[AsyncIterator[frozenset[StreamId]]]:
        async with self._log.watch(concerns) as changes:
            yield _silence() if self.is_deaf else changes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, batch: Batch) -> Mapping[StreamId, int]:
        if self.is_late:
            self.is_late = False
            raise Conflict("somebody else was faster")
        self.waits = not self.may_go_on.is_set()
        await self.may_go_on.wait()
        written = await self._log.append(batch)
        self.batches.append([type(event).__name__ for write in batch.writes for event in write.events])
        return written


async def _silence() -> AsyncIterator[frozenset[StreamId]]:
    await asyncio.Event().wait()
    yield frozenset()


def watched(disk: MemoryDisk | None = None) -> tuple[MemoryStore, Watched]:
    store = MemoryStore(SystemClock(), disk) if disk else MemoryStore(SystemClock())
    log = Watched(store)
    store.log = log  # type: ignore[assignment] - the same port, watched
    return store, log


RULES = Rules(policy=policy(lists=Lists(teams=("*",))))


def to(session: SessionId, name: str, team: str = "backend") -> MessagePeer:
    return MessagePeer(by=SYSTEM, message=MessageId(name), to=session, team=team, text=name)


@asynccontextmanager
async def waiting(here: SessionRegistry, session: SessionId) -> AsyncGenerator[None]:
    """Let somebody wait for what comes next in a session, as whoever looks after its turns does."""
    async with here.hold(session) as actor:
        with actor.followed_by(lambda _state, _events: None):
            yield


def messages(here: SessionRegistry, session: SessionId) -> list[str]:
    return [event.message for event in events(here, session) if isinstance(event, MessageAccepted)]


@covers("teams.two-commits")
def test_a_message_to_a_session_where_somebody_waits_is_taken_in_with_the_commit_that_sends_it(tmp_path: Path) -> None:
    async def story() -> None:
        store, log = watched()
        async with house(store, RULES) as here:
            asker, team = await open_session(here, tmp_path), await open_session(here, tmp_path, team="backend")
            log.batches.clear()
            async with waiting(here, team):
                await here.send(asker, to(team, "m1"))
                assert log.batches == [["PeerMessageSent", "MessageAccepted"]]
                assert messages(here, team) == ["m1"]
                assert store.inbox.waiting(session_stream(team)) == []
                assert store.inbox.outcome(session_stream(team), "message:m1") is None

    run(story())


@covers("teams.two-commits")
def test_whoever_is_written_to_hears_of_it_before_whoever_wrote(tmp_path: Path) -> None:
    async def story() -> list[str]:
        store, _ = watched()
        order: list[str] = []
        async with house(store, RULES) as here:
            asker, team = await open_session(here, tmp_path), await open_session(here, tmp_path, team="backend")
            async with waiting(here, team), here.hold(team) as there, here.hold(asker) as from_here:

                async def hears() -> None:
                    await there.wait_for_growth()
                    order.append("team")

                hearing = asyncio.create_task(hears())
                await asyncio.sleep(0)
                await from_here.submit(to(team, "m1"))
                order.append("asker")
                await hearing
        return order

    assert run(story()) == ["team", "asker"]


@covers("teams.two-commits")
def test_where_nobody_waits_the_message_is_posted_and_taken_in_later(tmp_path: Path) -> None:
    async def story() -> None:
        store, log = watched()
        async with house(store, RULES) as here:
            asker, team = await open_session(here, tmp_path), await open_session(here, tmp_path, team="backend")
            log.batches.clear()
            await here.send(asker, to(team, "m1"))
            assert log.batches[0] == ["PeerMessageSent"]
            await until(lambda: messages(here, team) == ["m1"])

    run(story())


@covers("teams.two-commits")
def test_where_the_joint_commit_comes_too_late_the_message_is_sent_once_all_the_same(tmp_path: Path) -> None:
    async def story() -> None:
        store, log = watched()
        async with house(store, RULES) as here:
            asker, team = await open_session(here, tmp_path), await open_session(here, tmp_path, team="backend")
            async with waiting(here, team):
                log.is_late = True
                await here.send(asker, to(team, "m1"))
                await until(lambda: messages(here, team) == ["m1"])
                await here.send(asker, to(team, "m2"))
                assert messages(here, team) == ["m1", "m2"]
            assert [type(event) for event in events(here, asker)].count(PeerMessageSent) == 2

    run(story())


@covers("teams.two-commits")
def test_a_full_disk_leaves_neither_session_with_anything_and_both_go_on_afterwards(tmp_path: Path) -> None:
    async def story() -> None:
        failing = FailingStore()
        async with house(failing, RULES) as here:
            asker, team = await open_session(here, tmp_path), await open_session(here, tmp_path, team="backend")
            before = kinds(here, asker), kinds(here, team)
            async with waiting(here, team):
                failing.is_full = True
                with pytest.raises(TryLater):
                    await here.send(asker, to(team, "m1"))
                assert (kinds(here, asker), kinds(here, team)) == before
                failing.is_full = False
                await here.send(asker, to(team, "m2"))
                assert messages(here, team) == ["m2"]

    run(story())


@covers("teams.two-commits")
def test_a_message_does_not_overtake_the_one_before_it_that_had_to_be_posted(tmp_path: Path) -> None:
    async def story() -> None:
        store, log = watched()
        async with house(store, RULES) as here:
            asker, team = await open_session(here, tmp_path), await open_session(here, tmp_path, team="backend")
            log.may_go_on.clear()
            first = asyncio.create_task(here.send(asker, to(team, "m1")))
            await until(lambda: log.waits)
            async with waiting(here, team):
                second = asyncio.create_task(here.send(asker, to(team, "m2")))
                await asyncio.sleep(0)
                log.may_go_on.set()
                await asyncio.gather(first, second)
                await until(lambda: len(messages(here, team)) == 2)
            assert messages(here, team) == ["m1", "m2"]

    run(story())


@covers("teams.two-commits")
def test_a_message_does_not_overtake_one_that_its_sender_posted_from_another_process(tmp_path: Path) -> None:
    async def story() -> None:
        disk = MemoryDisk()
        here, log = watched(disk)
        log.is_deaf = True
        async with house(here, RULES) as mine, house(MemoryStore(SystemClock(), disk), RULES) as other:
            team = await open_session(mine, tmp_path, team="backend")
            async with waiting(mine, team):
                asker = await open_session(other, tmp_path)
                async with other.hold(asker) as actor:
                    await actor.submit(to(team, "first"))
                await actor.stop()
                async with mine.hold(asker) as actor:
                    await actor.submit(to(team, "second"))
                await until(lambda: len(messages(mine, team)) == 2)
                assert messages(mine, team) == ["first", "second"]

    run(story())


@covers("teams.two-commits")
def test_what_goes_wrong_at_the_receiver_is_no_fault_of_the_sender(tmp_path: Path) -> None:
    async def story() -> None:
        faults = [ValueError("a fault of ours")]

        def stumble(_state: SessionState, _events: Sequence[AnyEvent]) -> AnyCommand | None:
            if faults:
                raise faults[0]
            return None

        async with house(watched()[0], RULES) as here:
            asker, team = await open_session(here, tmp_path), await open_session(here, tmp_path, team="backend")
            async with here.hold(team) as actor:
                with actor.followed_by(stumble):
                    await here.send(asker, to(team, "m1"))
                    assert messages(here, team) == []
                    faults.clear()
                    await until(lambda: messages(here, team) == ["m1"])

    run(story())


@covers("teams.two-commits")
def test_sessions_that_write_to_each_other_at_the_same_time_all_get_everything_once(tmp_path: Path) -> None:
    async def story() -> None:
        disk = MemoryDisk()
        async with house(watched(disk)[0], RULES) as here:
            sessions = [await open_session(here, tmp_path, team=f"team{number}") for number in range(4)]

            async def talk(number: int, session: SessionId) -> None:
                for turn in range(30):
                    for place, other in enumerate(sessions):
                        if place != number:
                            await here.send(session, to(other, f"{number}-{place}-{turn:02}", f"team{place}"))

            async with waiting(here, sessions[0]), waiting(here, sessions[1]):
                await asyncio.gather(*(talk(number, session) for number, session in enumerate(sessions)))
            for place, session in enumerate(sessions):
                wanted = sorted(f"{number}-{place}-{turn:02}" for number in range(4) if number != place for turn in range(30))
                await until(lambda session=session, wanted=wanted: len(messages(here, session)) == len(wanted))
                assert sorted(messages(here, session)) == wanted
        async with house(MemoryStore(SystemClock(), disk), RULES) as again:
            assert all(len(messages(again, session)) == 90 for session in sessions)

    run(story())


def answers(house: SessionRegistry, asker: SessionId) -> list[tuple[str, str]]:
    return [(it.answer.status.value, it.answer.text) for it in events(house, asker) if isinstance(it, PeerAnswerTaken)]


@covers("teams.a-deleted-session-answers")
def test_whoever_waits_for_an_answer_of_a_session_hears_that_it_was_deleted(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock()), RULES) as h:
            asker, team = await open_session(h, tmp_path), await open_session(h, tmp_path, team="backend")
            await h.send(asker, to(team, "waits in the queue"))
            await until(lambda: kinds(h, team).count("MessageAccepted") == 1)
            await h.delete(team, ANN)
            words = f"session `{team}` was deleted"
            await until(lambda: answers(h, asker) == [("refused", words)])
            await h.send(asker, to(team, "comes too late"))
            await until(lambda: len(answers(h, asker)) == 2)
            assert answers(h, asker)[1] == ("refused", "there is no such session: it was never opened, or was deleted")
            assert h.feed.head(session_stream(team)) == 0, "nothing was written where nothing is any more"

    run(story())


@covers("teams.a-deleted-session-answers")
def test_what_waits_in_the_inbox_of_a_session_that_is_deleted_is_answered_along_with_that(tmp_path: Path) -> None:
    async def story() -> None:
        disk = MemoryDisk()
        store, log = watched(disk)
        log.is_deaf = True
        async with house(MemoryStore(SystemClock(), disk), RULES) as here, house(store, RULES) as there:
            asker, team = await open_session(here, tmp_path), await open_session(there, tmp_path, team="backend")
            async with there.hold(team):
                renaming = asyncio.create_task(here.send(team, RenameSession(by=ANN, name="another")))
                await here.send(asker, to(team, "nobody has looked at it"))
                await until(lambda: len(store.inbox.waiting(session_stream(team))) == 2)
                await there.delete(team, ANN)
            await until(lambda: answers(here, asker) == [("refused", f"session `{team}` was deleted")])
            with pytest.raises(NotFound, match="was deleted"):
                await renaming

    run(story())
