"""Turns at odd moments: a disk that fails, a session closed in the middle or opened by another, an agent that leaves and is interrupted."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from curtainwall.model import (
    Closed,
    CloseSession,
    CommandRefused,
    InterruptTurn,
    MessageId,
    Place,
    SendMessage,
    SessionId,
    TurnAt,
    TurnEnded,
    TurnResult,
    TurnStatus,
    session_stream,
)
from curtainwall.runtime import NoHooks, SessionRegistry, SystemClock, Turns
from curtainwall.store import MemoryDisk, MemoryStore, SqliteStore
from tests.support.covers import covers
from tests.support.houses import ANN, FailingStore, house, kinds, open_session, run, until


def ends(here: SessionRegistry, session: SessionId) -> list[TurnStatus]:
    """Return how a session's turns ended."""
    return [it.event.status for it in here.feed.read(session_stream(session)) if isinstance(it.event, TurnEnded)]


@dataclass
class Filling:
    """An agent whose first turn fills the disk."""

    store: FailingStore
    turns: int = 0

    async def work(self, at: TurnAt) -> TurnResult:
        self.turns += 1
        self.store.is_full = self.turns == 1
        return TurnResult(status=TurnStatus.DONE)

    async def compact(self, session: SessionId, instructions: str) -> None:
        raise NotImplementedError

    def forget(self, session: SessionId) -> None:
        raise NotImplementedError


@covers("runtime.a-turn-ends-once")
def test_a_turn_that_ends_while_the_disk_is_full_is_written_down_later_and_not_worked_on_again(tmp_path: Path) -> None:
    async def story() -> None:
        store = FailingStore()
        agent = Filling(store)
        async with house(store) as here:
            session = await open_session(here, tmp_path)
            turns = Turns(here, agent, NoHooks(), lambda _: "")
            turns.attend(session)
            await here.send(session, SendMessage(by=ANN, message=MessageId("m1"), text="hello"))
            await until(lambda: store.refused > 0)
            store.is_full = False
            await until(lambda: kinds(here, session)[-1] == "TurnEnded")
            await here.send(session, SendMessage(by=ANN, message=MessageId("m2"), text="and again"))
            await until(lambda: kinds(here, session).count("TurnEnded") == 2)
            assert (agent.turns, kinds(here, session).count("TurnStarted"), kinds(here, session).count("TurnResumed")) == (2, 2, 0)
            await turns.close()

    run(story())


def test_whoever_waits_for_a_turn_that_the_disk_cannot_take_is_told_once_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        store = FailingStore()
        async with house(store) as here:
            session = await open_session(here, tmp_path)
            turns = Turns(here, Filling(store), NoHooks(), lambda _: "")
            turns.attend(session)
            await here.send(session, SendMessage(by=ANN, message=MessageId("m1"), text="hello"))
            await until(lambda: store.refused > 1)
            store.is_full = False
            await until(lambda: kinds(here, session)[-1] == "TurnEnded")
            await turns.close()
            told = [record.getMessage() for record in caplog.records]
            assert told == [f"session `{session}` waits until the end of its turn can be written down: the disk is full"]

    run(story())


@dataclass
class Slow:
    """An agent that works until it is told to stop, and stops when it is let."""

    may_stop: asyncio.Event = field(default_factory=asyncio.Event)
    told: list[str] = field(default_factory=list[str])
    """How each time was meant that it was cancelled."""
    is_working: bool = False

    async def work(self, at: TurnAt) -> TurnResult:
        self.is_working = True
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.told.append("left" if at.presence.has_left else "interrupted")
            try:
                await self.may_stop.wait()
            except asyncio.CancelledError:
                self.told.append("cancelled again")
            raise
        raise AssertionError

    async def compact(self, session: SessionId, instructions: str) -> None:
        raise NotImplementedError

    def forget(self, session: SessionId) -> None:
        raise NotImplementedError


@dataclass
class Heard:
    """Somebody who hears of sessions, once nothing goes wrong any more."""

    ends: list[SessionId] = field(default_factory=list[SessionId])
    faults: list[Exception] = field(default_factory=list[Exception])
    idle_after: float = 60.0

    async def begun(self, place: Place, reopened: int) -> None:
        if self.faults:
            raise self.faults.pop()

    async def ended(self, place: Place, reopened: int) -> None:
        self.ends.append(place.session)


def test_a_session_that_is_closed_while_its_agent_works_has_ended_for_everybody(tmp_path: Path) -> None:
    async def story() -> None:
        agent, heard = Slow(), Heard()
        agent.may_stop.set()
        async with house(FailingStore()) as here:
            session = await open_session(here, tmp_path)
            turns = Turns(here, agent, NoHooks(), lambda _: "", None, heard)
            turns.attend(session)
            await here.send(session, SendMessage(by=ANN, message=MessageId("m1"), text="hello"))
            await until(lambda: agent.is_working)
            await here.send(session, CloseSession(by=ANN, reason="enough"))
            await until(lambda: heard.ends == [session])
            await until(lambda: turns.attended == ())
            await turns.close()

    run(story())


def test_an_agent_that_is_interrupted_is_told_so_and_not_that_it_leaves(tmp_path: Path) -> None:
    async def story() -> None:
        agent = Slow()
        agent.may_stop.set()
        async with house(FailingStore()) as here:
            session = await open_session(here, tmp_path)
            turns = Turns(here, agent, NoHooks(), lambda _: "")
            turns.attend(session)
            await here.send(session, SendMessage(by=ANN, message=MessageId("m1"), text="hello"))
            await until(lambda: agent.is_working)
            await here.send(session, InterruptTurn(by=ANN))
            await until(lambda: kinds(here, session)[-1] == "TurnEnded")
            assert agent.told == ["interrupted"]
            await turns.close()

    run(story())


def test_an_agent_that_leaves_is_not_interrupted_besides(tmp_path: Path) -> None:
    async def story() -> None:
        agent = Slow()
        async with house(FailingStore()) as here:
            session = await open_session(here, tmp_path)
            turns = Turns(here, agent, NoHooks(), lambda _: "")
            turns.attend(session)
            await here.send(session, SendMessage(by=ANN, message=MessageId("m1"), text="hello"))
            await until(lambda: agent.is_working)
            leaving = asyncio.create_task(turns.leave(session))
            await until(lambda: agent.told == ["left"])
            await here.send(session, InterruptTurn(by=ANN))
            agent.may_stop.set()
            await leaving
            assert agent.told == ["left"]

    run(story())


@dataclass
class Done:
    """An agent that is done at once."""

    async def work(self, at: TurnAt) -> TurnResult:
        return TurnResult(status=TurnStatus.DONE)

    async def compact(self, session: SessionId, instructions: str) -> None:
        raise NotImplementedError

    def forget(self, session: SessionId) -> None:
        raise NotImplementedError


def test_an_agent_is_interrupted_once_however_often_that_is_wanted(tmp_path: Path) -> None:
    async def story() -> None:
        agent = Slow()
        async with house(FailingStore()) as here:
            session = await open_session(here, tmp_path)
            turns = Turns(here, agent, NoHooks(), lambda _: "")
            turns.attend(session)
            await here.send(session, SendMessage(by=ANN, message=MessageId("m1"), text="hello"))
            await until(lambda: agent.is_working)
            await here.send(session, InterruptTurn(by=ANN))
            await until(lambda: len(agent.told) == 1)
            # Whatever is written meanwhile says again that the turn is to end.
            await here.send(session, SendMessage(by=ANN, message=MessageId("m2"), text="are you done?"))
            agent.may_stop.set()
            await until(lambda: ends(here, session) == [TurnStatus.INTERRUPTED])
            assert len(agent.told) == 1
            await turns.close()

    run(story())


@dataclass
class Raising:
    """An agent that raises something, and then works."""

    faults: list[BaseException]

    async def work(self, at: TurnAt) -> TurnResult:
        if self.faults:
            raise self.faults.pop()
        return TurnResult(status=TurnStatus.DONE)

    async def compact(self, session: SessionId, instructions: str) -> None:
        raise NotImplementedError

    def forget(self, session: SessionId) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (asyncio.CancelledError("by itself"), TurnStatus.INTERRUPTED),
        (TimeoutError("its own"), TurnStatus.FAILED),
        (Closed("closed"), TurnStatus.INTERRUPTED),
        (RuntimeError("broken"), TurnStatus.FAILED),
    ],
)
def test_whatever_ends_a_turn_the_next_message_is_worked_on(tmp_path: Path, fault: BaseException, status: TurnStatus) -> None:
    async def story() -> None:
        async with house(FailingStore()) as here:
            session = await open_session(here, tmp_path)
            agent = Raising([fault])
            turns = Turns(here, agent, NoHooks(), lambda _: "")
            turns.attend(session)
            for number in (1, 2):
                await here.send(session, SendMessage(by=ANN, message=MessageId(f"m{number}"), text="hello"))
                await until(lambda number=number: len(ends(here, session)) == number)
            assert ends(here, session) == [status, TurnStatus.DONE]
            await turns.close()

    run(story())


@covers("runtime.lets-go-of-what-it-does-not-need")
def test_an_agent_works_at_once_in_a_session_that_another_house_only_opened(tmp_path: Path) -> None:
    async def story() -> None:
        disk = MemoryDisk()
        # A house that drops nothing by itself: only that it is asked lets it go.
        async with house(MemoryStore(SystemClock(), disk), linger=3600) as opener, house(MemoryStore(SystemClock(), disk)) as keeper:
            session = await open_session(opener, tmp_path)
            turns = Turns(keeper, Done(), NoHooks(), lambda _: "")
            turns.attend(session)
            for number in (1, 2, 3):
                await opener.send(session, SendMessage(by=ANN, message=MessageId(f"m{number}"), text="hello"))
                await until(lambda number=number: kinds(keeper, session).count("TurnEnded") == number)
            await turns.close()

    run(story())


def test_a_session_is_still_looked_after_when_there_was_no_room_for_its_lease(tmp_path: Path) -> None:
    async def story() -> None:
        store = FailingStore()
        async with house(store, linger=0) as here:
            session = await open_session(here, tmp_path)
            await here.send(session, SendMessage(by=ANN, message=MessageId("m1"), text="hello"))
            await until(lambda: store.leases.owner(session_stream(session)) is None)
            store.is_crowded = True
            turns = Turns(here, Done(), NoHooks(), lambda _: "")
            turns.attend(session)
            await until(lambda: store.refused > 2)
            store.is_crowded = False
            await until(lambda: kinds(here, session)[-1] == "TurnEnded")
            await turns.close()

    run(story())


def test_a_fault_of_ours_leaves_no_session_without_anybody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        heard = Heard(faults=[RuntimeError("broken"), CommandRefused("not now")])
        async with house(FailingStore()) as here:
            session = await open_session(here, tmp_path)
            turns = Turns(here, Done(), NoHooks(), lambda _: "", None, heard)
            turns.attend(session)
            await until(lambda: not heard.faults)
            await here.send(session, SendMessage(by=ANN, message=MessageId("m1"), text="hello"))
            await until(lambda: kinds(here, session)[-1] == "TurnEnded")
            await turns.close()

    run(story())
    assert "is looked after again in a moment" in caplog.text
    assert "RuntimeError: broken" in caplog.text


def test_a_session_that_is_not_there_is_not_looked_after() -> None:
    async def story() -> None:
        async with house(FailingStore()) as here:
            turns = Turns(here, Done(), NoHooks(), lambda _: "")
            turns.attend(SessionId("nowhere"))
            await until(lambda: turns.attended == ())

    run(story())


@pytest.mark.parametrize("store", [MemoryStore, SqliteStore])
def test_a_session_that_is_deleted_is_not_looked_after_any_more(tmp_path: Path, store: type[MemoryStore | SqliteStore]) -> None:
    async def story() -> None:
        opened = MemoryStore(SystemClock()) if store is MemoryStore else SqliteStore.open(tmp_path / "home", SystemClock())
        async with opened, house(opened) as here:
            session = await open_session(here, tmp_path)
            turns = Turns(here, Filling(FailingStore()), NoHooks(), lambda _: "")
            turns.attend(session)
            await until(lambda: session_stream(session) in here.wakes)
            changes = here.feed.changes()
            assert await anext(changes) == frozenset()
            await here.delete(session, ANN)
            told = set(await asyncio.wait_for(anext(changes), 30))
            while session_stream(session) not in told:
                told |= await asyncio.wait_for(anext(changes), 30)
            await until(lambda: turns.attended == ())

    run(story())
