"""Actors, leases, deadlines and the feed: who decides, and who hears of it."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from curtainwall.model import (
    HOUSE,
    SYSTEM,
    AlreadyAnswered,
    AnswerApproval,
    ApprovalId,
    ApprovalQuery,
    Batch,
    CallFinished,
    CallId,
    CallPermitted,
    CallRequested,
    CloseSession,
    CommandRefused,
    Conflict,
    MessageAccepted,
    MessageId,
    NotFound,
    NotReady,
    Place,
    Prepared,
    Presence,
    RenameSession,
    RequestCall,
    Route,
    SendMessage,
    SessionDeleted,
    SessionId,
    SessionQuery,
    SessionRenamed,
    StreamId,
    ToolResult,
    TryLater,
    session_stream,
)
from curtainwall.runtime import SessionGate, SessionRegistry, SystemClock
from curtainwall.serve.sessions import Deadlines
from curtainwall.session import CallStatus, Rules
from curtainwall.store import MemoryDisk, MemoryStore, SqliteStore
from tests.support.covers import covers
from tests.support.houses import (
    ANN,
    BOB,
    FailingStore,
    FakeClock,
    FarSide,
    events,
    house,
    kinds,
    open_session,
    policy,
    read,
    run,
    tools,
    until,
    write,
)
from tests.support.waiting import BOUND

_FOR_EVER = 3600.0


def store(disk: MemoryDisk | None = None) -> MemoryStore:
    return MemoryStore(SystemClock(), disk) if disk else MemoryStore(SystemClock())


def message(word: str) -> SendMessage:
    return SendMessage(by=ANN, message=MessageId(word), text=word)


async def asked_and_left(house: SessionRegistry, workspace: Path) -> SessionId:
    """Return a session with an open ask that no call waits for."""
    session, request = await open_session(house, workspace), read("/etc/hostname")
    async with house.hold(session) as actor:
        place = Place(session=session, workspace=actor.state.workspace, mode=actor.state.mode)
        prepared = tools(FarSide(workspace / "far")).prepare(request.tool, request.arguments, place)
        await actor.submit(RequestCall(by=SYSTEM, call=CallId("c1"), subject=prepared.subject))
        assert actor.state.approvals
    return session


def test_the_same_key_at_the_same_time_is_the_same_command(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(store()) as h:
            session = await open_session(h, tmp_path)
            ends = await asyncio.gather(*(h.send(session, message("one"), "key") for _ in range(5)))
            assert len(set(ends)) == 1
            assert kinds(h, session).count("MessageAccepted") == 1
            first = asyncio.create_task(h.send(session, message("two"), "gone"))
            second = asyncio.create_task(h.send(session, message("two"), "gone"))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.gather(first, second, return_exceptions=True)
            await h.send(session, message("two"), "gone")
            assert kinds(h, session).count("MessageAccepted") == 2

    run(story())


def test_the_same_key_twice_is_the_same_command(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(store()) as h:
            session = await open_session(h, tmp_path)
            first = await h.send(session, message("one"), "key")
            assert await h.send(session, message("two"), "key") == first
            assert [event.text for event in events(h, session) if isinstance(event, MessageAccepted)] == ["one"]

    run(story())


def test_a_session_that_is_just_dropped_from_memory_can_be_held_again_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        # Without any patience the house drops an idle session at every turn of the loop.
        async with house(store(), linger=0) as h:
            session = await open_session(h, tmp_path)
            for number in range(200):
                async with h.hold(session) as actor:
                    await actor.submit(message(f"{number}"))
                for _ in range(number % 7):
                    await asyncio.sleep(0)
            assert len([event for event in events(h, session) if isinstance(event, MessageAccepted)]) == 200

    run(story())


def test_a_refusal_reaches_whoever_sent_the_command_and_changes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(store()) as h:
            session = await open_session(h, tmp_path)
            before = events(h, session)
            with pytest.raises(CommandRefused, match="a name cannot be empty"):
                await h.send(session, RenameSession(by=ANN, name=" "))
            with pytest.raises(NotReady, match="never opened"):
                await h.send(SessionId("nowhere"), message("x"))
            assert events(h, session) == before

    run(story())


def test_a_refused_command_is_refused_again_under_its_key(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(store()) as h:
            session = await open_session(h, tmp_path)
            for _ in range(2):
                with pytest.raises(NotFound, match="there is no approval `zzz`"):
                    await h.send(session, AnswerApproval(by=ANN, approval=ApprovalId("zzz"), granted=True), "key")

    run(story())


@covers("runtime.one-owner-many-clients")
def test_a_command_for_a_session_that_another_house_owns_is_decided_there(tmp_path: Path) -> None:
    async def story() -> None:
        disk = MemoryDisk()
        async with house(store(disk)) as owner, house(store(disk)) as other:
            session = await open_session(owner, tmp_path)
            async with owner.hold(session):
                with pytest.raises(TryLater, match="in use by process"):
                    async with other.hold(session):
                        pass
                await other.send(session, message("hello"))
                assert kinds(owner, session)[-1] == "MessageAccepted"

    run(story())


def test_a_session_that_nobody_uses_is_let_go_and_folded_back(tmp_path: Path) -> None:
    async def story() -> None:
        disk = MemoryDisk()
        async with house(store(disk), linger=0.01) as one, house(store(disk), linger=0.01) as two:
            session = await open_session(one, tmp_path)
            stream = session_stream(session)
            await until(lambda: one.stores.leases.owner(stream) is None)
            async with two.hold(session) as actor:
                assert actor.state.opened is not None
                assert one.stores.leases.owner(stream) is not None

    run(story())


@covers("runtime.lets-go-of-what-it-does-not-need")
def test_a_session_that_another_house_waits_for_is_let_go_as_soon_as_nothing_goes_on_in_it(tmp_path: Path) -> None:
    async def story() -> None:
        disk = MemoryDisk()
        async with house(store(disk), linger=_FOR_EVER) as one, house(store(disk), linger=_FOR_EVER) as two:
            session = await open_session(one, tmp_path)
            stream = session_stream(session)
            holding = one.hold(session)
            await holding.__aenter__()
            waiting = asyncio.create_task(two.until_free(stream, _FOR_EVER))
            await asyncio.sleep(0)
            two.want(session)
            await one.send(session, message("still decided here"))
            assert kinds(one, session)[-1] == "MessageAccepted"
            assert one.stores.leases.owner(stream) is not None, "it is in use"
            assert not waiting.done()
            await holding.__aexit__(None, None, None)
            await asyncio.wait_for(waiting, BOUND)
            async with two.hold(session) as actor:
                assert actor.state.queue
            await one.send(session, message("decided there"))
            assert [event.text for event in events(one, session) if isinstance(event, MessageAccepted)][-1] == "decided there"

    run(story())


@covers("runtime.lets-go-of-what-it-does-not-need")
def test_a_session_stays_with_whoever_waits_for_what_comes_next_in_it_until_they_do_not(tmp_path: Path) -> None:
    async def story() -> None:
        disk = MemoryDisk()
        async with house(store(disk), linger=_FOR_EVER) as one, house(store(disk), linger=_FOR_EVER) as two:
            session = await open_session(one, tmp_path)
            async with one.hold(session) as actor:
                pass
            with actor.followed_by(lambda _state, _events: None):
                waiting = asyncio.create_task(two.until_free(session_stream(session), _FOR_EVER))
                await asyncio.sleep(0)
                two.want(session)
                for number in range(20):
                    await one.send(session, message(f"{number}"))
                assert not waiting.done()
            await asyncio.wait_for(waiting, BOUND)
            async with two.hold(session):
                pass

    run(story())


def test_a_house_that_is_left_tells_whoever_waits_for_its_sessions(tmp_path: Path) -> None:
    async def story() -> None:
        disk = MemoryDisk()
        async with house(store(disk)) as two:
            async with house(store(disk), linger=_FOR_EVER) as one:
                session = await open_session(one, tmp_path)
                holding = one.hold(session)
                await holding.__aenter__()
                waiting = asyncio.create_task(two.until_free(session_stream(session), _FOR_EVER))
                await asyncio.sleep(0)
                two.want(session)
                await one.send(session, message("heard by now"))
            await asyncio.wait_for(waiting, BOUND)

    run(story())


@covers("approvals.deadline")
def test_an_ask_that_nobody_answers_expires_into_a_denial(tmp_path: Path) -> None:
    async def story() -> None:
        clock = FakeClock()
        far = FarSide(tmp_path / "far")
        async with house(store(), Rules(policy=policy(), deadline=60_000), clock) as h:
            session = await open_session(h, tmp_path)
            asking = asyncio.create_task(SessionGate(h, tools(far)).request(session, read("/etc/hostname")))
            [row] = await until(lambda: h.stores.index.approvals(ApprovalQuery()))
            await until(lambda: clock.sleepers)
            clock.advance(59_999)
            assert not asking.done()
            clock.advance(1)
            assert (await asking).verdict.because == ("approval-expired",)
            with pytest.raises(AlreadyAnswered, match="expired at"):
                await h.send(session, AnswerApproval(by=ANN, approval=row.approval, granted=True))
            assert far.lines == []

    run(story())


@covers("approvals.deadline-with-nobody-connected")
def test_an_ask_expires_in_time_also_in_a_session_that_is_not_in_memory(tmp_path: Path) -> None:
    async def story() -> None:
        clock = FakeClock()
        async with house(store(), Rules(policy=policy(), deadline=60_000), clock, linger=0) as h:
            session = await asked_and_left(h, tmp_path)
            await until(lambda: h.peek(session) is None)
            clock.advance(59_999)
            assert h.peek(session) is None
            clock.advance(1)
            await until(lambda: "ApprovalExpired" in kinds(h, session))
            await until(lambda: h.peek(session) is None)

    run(story())


@covers("approvals.deadline-with-nobody-connected")
def test_whoever_serves_a_home_lets_the_asks_of_every_session_expire_in_time(tmp_path: Path) -> None:
    async def story() -> None:
        clock, disk, rules = FakeClock(), MemoryDisk(), Rules(policy=policy(), deadline=60_000)
        async with house(store(disk), rules, clock) as one:
            before = await asked_and_left(one, tmp_path)
        async with house(store(disk), rules, clock) as serving:
            service = asyncio.create_task(Deadlines(serving.feed, serving.stores.index, serving.alarm).run())
            async with house(store(disk), rules, clock) as two:
                meanwhile = await asked_and_left(two, tmp_path)
            asleep = len(clock.sleepers)
            await until(lambda: len(clock.sleepers) > asleep)
            clock.advance(60_000)
            await until(lambda: all("ApprovalExpired" in kinds(serving, session) for session in (before, meanwhile)))
            service.cancel()

    run(story())


@covers("approvals.deadline-with-nobody-connected")
def test_an_ask_of_a_session_that_another_process_had_expires_once_that_one_is_gone(tmp_path: Path) -> None:
    async def story() -> None:
        clock, disk, rules = FakeClock(), MemoryDisk(), Rules(policy=policy(), deadline=60_000)
        async with house(store(disk), rules, clock) as serving:
            held = store(disk)
            async with house(held, rules, clock) as one:
                session = await asked_and_left(one, tmp_path)
            lease = held.leases.take(session_stream(session))
            assert lease is not None
            service = asyncio.create_task(Deadlines(serving.feed, serving.stores.index, serving.alarm).run())
            await until(lambda: clock.sleepers)
            clock.advance(60_000)
            await until(lambda: any(at > clock.at for at, _, _ in clock.sleepers))
            assert "ApprovalExpired" not in kinds(serving, session), "somebody else decides for it"
            lease.release()
            clock.advance(1_000)
            await until(lambda: "ApprovalExpired" in kinds(serving, session))
            service.cancel()

    run(story())


@covers("approvals.deadline-and-the-clock")
@pytest.mark.parametrize("linger", [0.0, _FOR_EVER])
def test_an_ask_expires_at_once_where_the_clock_is_set_forward_and_in_its_time_where_it_is_set_back(tmp_path: Path, linger: float) -> None:
    async def story() -> None:
        clock = FakeClock()
        async with house(store(), Rules(policy=policy(), deadline=60_000), clock, linger=linger) as h:
            session = await asked_and_left(h, tmp_path)
            clock.jump(60_000)
            await until(lambda: "ApprovalExpired" in kinds(h, session))
            session = await asked_and_left(h, tmp_path)
            clock.jump(-86_400_000)
            clock.advance(59_999)
            await h.send(session, message("another command has the alarm set anew"))
            assert "ApprovalExpired" not in kinds(h, session)
            clock.advance(1)
            await until(lambda: "ApprovalExpired" in kinds(h, session))
            assert kinds(h, session)[-1] == "CallDenied"

    run(story())


@covers("approvals.deadline-and-the-clock")
def test_an_ask_of_an_earlier_process_waits_no_longer_than_it_was_to_where_the_clock_was_set_back_between(tmp_path: Path) -> None:
    async def story() -> None:
        clock, disk, rules = FakeClock(), MemoryDisk(), Rules(policy=policy(), deadline=60_000)
        async with house(store(disk), rules, clock) as one:
            session = await asked_and_left(one, tmp_path)
        clock.jump(-86_400_000)
        asleep = len(clock.sleepers)
        async with house(store(disk), rules, clock) as h, h.hold(session) as actor:
            await until(lambda: len(clock.sleepers) > asleep)
            clock.advance(59_999)
            assert actor.state.approvals
            clock.advance(1)
            await until(lambda: not actor.state.approvals)

    run(story())


def test_an_ask_whose_time_is_over_expires_as_soon_as_the_disk_is_well_and_nobody_hurries_until_then(tmp_path: Path) -> None:
    async def story() -> None:
        clock, failing = FakeClock(), FailingStore()
        async with house(failing, Rules(policy=policy(), deadline=60_000), clock) as h:
            session = await open_session(h, tmp_path)
            asking = asyncio.create_task(SessionGate(h, tools(FarSide(tmp_path / "far"))).request(session, read("/etc/hostname")))
            await until(lambda: clock.sleepers)
            failing.is_full = True
            clock.advance(60_000)
            await until(lambda: failing.refused > 0)
            for _ in range(1_000):
                await asyncio.sleep(0)
            assert failing.refused < 10
            failing.is_full = False
            assert (await asking).verdict.because == ("approval-expired",)

    run(story())


@covers("gate.outcomes-are-written-when-they-can-be")
def test_what_a_crash_left_open_is_closed_also_where_the_disk_was_full_at_the_start(tmp_path: Path) -> None:
    async def story() -> None:
        failing, ask = FailingStore(), write(tmp_path / "a")
        async with house(failing) as h:
            session = await open_session(h, tmp_path)
            async with h.hold(session) as actor:
                place = Place(session=session, workspace=actor.state.workspace, mode=actor.state.mode)
                prepared = tools(FarSide(tmp_path / "far")).prepare(ask.tool, ask.arguments, place)
                await actor.submit(RequestCall(by=SYSTEM, call=CallId("c1"), subject=prepared.subject))
        async with house(failing) as h:
            failing.is_full = True
            async with h.hold(session) as actor:
                await until(lambda: failing.refused > 0)
                assert actor.state.calls
                failing.is_full = False
                await until(lambda: not actor.state.calls)
            assert kinds(h, session)[-1] == "CallLost"

    run(story())


@covers("gate.outcomes-are-written-when-they-can-be")
@pytest.mark.parametrize("size", [1, 100_000])
def test_the_outcome_of_a_call_that_ran_is_written_as_soon_as_the_disk_is_well(tmp_path: Path, size: int) -> None:
    class Filling(FarSide):
        async def run(self, prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
            failing.is_full = True
            return ToolResult(ok=True, value="x" * size)

    failing = FailingStore()

    async def story() -> None:
        async with house(failing) as h:
            session = await open_session(h, tmp_path)
            with pytest.raises(TryLater, match="the disk is full"):
                await SessionGate(h, tools(Filling(tmp_path / "far"))).request(session, write(tmp_path / "a"))
            failing.is_full = False
            await until(lambda: any(isinstance(event, CallFinished) and event.ok for event in events(h, session)))

    run(story())


def test_a_house_that_cannot_hear_of_changes_says_so_instead_of_waiting(tmp_path: Path) -> None:
    async def story() -> None:
        with closing(SqliteStore.open(tmp_path / "home", SystemClock())) as there:
            (tmp_path / "home" / "run" / "watch").rmdir()
            with pytest.raises(TryLater, match="run/watch"):
                async with asyncio.timeout(30), house(there):
                    pass

    run(story())


def test_nothing_goes_on_for_a_house_that_was_left(tmp_path: Path) -> None:
    async def story() -> None:
        before = asyncio.all_tasks()
        async with house(store()) as h:
            session = await open_session(h, tmp_path)
            gate, agent = SessionGate(h, tools(FarSide(tmp_path / "far"))), Presence()
            asking = asyncio.create_task(gate.request(session, read("/etc/hostname"), presence=agent))
            await until(lambda: h.stores.index.approvals(ApprovalQuery()))
            agent.leave()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        assert asyncio.all_tasks() == before

    run(story())


def test_a_late_answer_is_told_by_whom_and_when_it_was_settled(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(store(), clock=FakeClock()) as h:
            session = await open_session(h, tmp_path)
            await SessionGate(h, tools(FarSide(tmp_path / "far"))).request(session, read("/etc/hostname"), wait=False)
            [row] = h.stores.index.approvals(ApprovalQuery())
            await h.send(session, AnswerApproval(by=ANN, approval=row.approval, granted=False))
            with pytest.raises(AlreadyAnswered, match="already answered by `ann`: denied at 2023-11-14 22:13:20 UTC"):
                await h.send(session, AnswerApproval(by=BOB, approval=row.approval, granted=True))

    run(story())


def test_a_follower_hears_everything_after_its_cursor_in_order(tmp_path: Path) -> None:
    async def story() -> None:
        disk = MemoryDisk()
        async with house(store(disk)) as writer, house(store(disk)) as reader:
            session = await open_session(writer, tmp_path)
            heard: list[str] = []

            async def follow() -> None:
                async for recorded in reader.feed.follow(session_stream(session), after=2):
                    heard.append(getattr(recorded.event, "name", type(recorded.event).__name__))
                    if isinstance(recorded.event, SessionRenamed) and recorded.event.name == "9":
                        return

            following = asyncio.create_task(follow())
            for number in range(10):
                await writer.send(session, RenameSession(by=ANN, name=str(number)))
            await following
            assert heard == [str(number) for number in range(10)]

    run(story())


def test_whoever_follows_a_session_is_done_when_it_is_deleted(tmp_path: Path) -> None:
    async def story() -> list[str]:
        disk = MemoryDisk()
        async with house(store(disk)) as writer, house(store(disk)) as reader:
            session = await open_session(writer, tmp_path)

            async def followed(here: SessionRegistry, after: int) -> str:
                seen = [recorded.seq async for recorded in here.feed.follow(session_stream(session), after)]
                return f"{after}: {seen}"

            following = [asyncio.create_task(followed(here, after)) for here in (writer, reader) for after in (0, 2)]
            await asyncio.sleep(0)
            await writer.delete(session, ANN)
            return [*await asyncio.gather(*following), await followed(reader, 2)]

    assert run(story()) == ["0: [1, 2]", "2: []", "0: [1, 2]", "2: []", "2: []"]


def test_a_session_with_an_open_ask_is_not_deleted(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(store()) as h:
            session = await open_session(h, tmp_path)
            await SessionGate(h, tools(FarSide(tmp_path / "far"))).request(session, read("/etc/hostname"), wait=False)
            with pytest.raises(CommandRefused, match="1 open approval; answer"):
                await h.delete(session, ANN)
            await h.send(session, CloseSession(by=ANN, reason="done"))
            await h.delete(session, ANN)
            assert h.stores.index.sessions(SessionQuery()) == []
            with pytest.raises(NotFound):
                await h.delete(session, ANN)

    run(story())


def test_a_session_that_could_not_be_deleted_is_still_there(tmp_path: Path) -> None:
    async def contended(stream: StreamId, batch: Batch) -> None:
        raise Conflict(f"someone else wrote first, before {len(batch.writes)} streams of `{stream}`")

    async def story() -> None:
        failing = FailingStore()
        async with house(failing) as h:
            session = await open_session(h, tmp_path)
            erase, failing.log.erase = failing.log.erase, contended
            with pytest.raises(TryLater, match="others keep writing"):
                await h.delete(session, ANN)
            assert h.stores.index.sessions(SessionQuery())
            failing.log.erase = erase
            await h.delete(session, ANN)
            assert h.stores.index.sessions(SessionQuery()) == []

    run(story())


def test_the_house_keeps_where_a_deleted_session_really_ended(tmp_path: Path) -> None:
    async def story() -> None:
        failing = FailingStore()
        erase = failing.log.erase
        async with house(failing) as h:
            session = await open_session(h, tmp_path)

            async def renamed_at_the_last_moment(stream: StreamId, batch: Batch) -> None:
                if len(events(h, session)) == 2:
                    await h.send(session, RenameSession(by=ANN, name="late"))
                await erase(stream, batch)

            failing.log.erase = renamed_at_the_last_moment
            await h.delete(session, ANN)
            [kept] = [event for recorded in h.feed.read(HOUSE) if isinstance(event := recorded.event, SessionDeleted)]
            assert (kept.entries, kept.name) == (3, "late")

    run(story())


@covers("runtime.fails-closed")
def test_a_call_that_cannot_be_logged_does_not_run(tmp_path: Path) -> None:
    async def story() -> None:
        failing = FailingStore()
        far = FarSide(tmp_path / "far")
        async with house(failing) as h:
            session = await open_session(h, tmp_path)
            gate = SessionGate(h, tools(far))
            failing.is_full = True
            with pytest.raises(TryLater, match="the disk is full"):
                await gate.request(session, read(tmp_path / "a"))
            assert far.lines == []
            failing.is_full = False
            assert (await gate.request(session, read(tmp_path / "a"))).result is not None
            async with h.hold(session) as actor:
                await until(lambda: CallStatus.PERMITTED not in [call.standing for call in actor.state.calls.values()])

    run(story())


@covers("gate.the-outcome-of-a-look-is-owed")
def test_the_outcome_of_a_look_is_written_with_what_comes_next_and_before_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(store()) as h:
            session = await open_session(h, tmp_path)
            gate = SessionGate(h, tools(FarSide(tmp_path / "far")))
            for _ in range(20):
                assert (await gate.request(session, read(tmp_path / "a"))).result is not None
                await h.send(session, message("next"), h.mint())
                told = [type(event) for event in events(h, session)]
                assert told[-4:] == [CallRequested, CallPermitted, CallFinished, MessageAccepted]

    run(story())


@covers("gate.the-outcome-of-a-look-is-owed")
def test_the_outcome_of_a_look_is_written_by_itself_also_when_the_house_is_left_or_the_disk_was_full(tmp_path: Path) -> None:
    async def story() -> None:
        disk, far = MemoryDisk(), FarSide(tmp_path / "far")
        async with house(store(disk)) as h:
            session = await open_session(h, tmp_path)
            await SessionGate(h, tools(far)).request(session, read(tmp_path / "a"))
        async with house(store(disk)) as h:
            assert isinstance(events(h, session)[-1], CallFinished)
        failing = FailingStore()
        async with house(failing) as h:
            session = await open_session(h, tmp_path)
            filling = FarSide(tmp_path / "far", lambda _: setattr(failing, "is_full", True))
            assert (await SessionGate(h, tools(filling)).request(session, read(tmp_path / "a"))).result is not None
            await until(lambda: failing.refused > 0)
            assert not any(isinstance(event, CallFinished) for event in events(h, session))
            failing.is_full = False
            await until(lambda: any(isinstance(event, CallFinished) for event in events(h, session)))

    run(story())


ROOM = Route(channel="matrix", reference="!room")


def test_a_place_leads_to_the_first_session_that_it_was_bound_to(tmp_path: Path) -> None:
    async def story() -> None:
        disk = MemoryDisk()
        async with house(store(disk)) as here, house(store(disk)) as there:
            wanted = [SessionId(f"s{number}") for number in range(20)]
            won = await asyncio.gather(*((here, there)[number % 2].bind(ROOM, session, ANN) for number, session in enumerate(wanted)))
            assert len(set(won)) == 1
            assert won[0] in wanted
            assert here.stores.index.session_at(ROOM) == won[0]

    run(story())


def test_a_place_changes_its_session_only_for_whoever_knows_where_it_leads(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(store()) as h:
            old, new, late = SessionId("old"), SessionId("new"), SessionId("late")
            assert await h.bind(ROOM, old, ANN) == old
            assert await h.bind(ROOM, new, ANN, instead_of=old) == new
            assert await h.bind(ROOM, late, ANN, instead_of=old) == new

    run(story())
