"""A conversation outlives processes, files and ourselves; where it does not, it is said, once."""

import asyncio
import json
import os
import random
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from curtainwall.agents.external import USED_UP
from curtainwall.agents.external.process import ProcessLimits
from curtainwall.host import lock_file
from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    BudgetExhausted,
    CommandRefused,
    ContextMeasured,
    HistoryCompacted,
    ModelRequested,
    Payload,
    SessionId,
    SessionQuery,
    TurnEnded,
    TurnStarted,
    TurnStatus,
    session_stream,
)
from curtainwall.runtime import SystemClock
from curtainwall.store import SqliteStore
from tests.support import fake_claude
from tests.support.covers import covers
from tests.support.forks import Begun, begun
from tests.support.houses import run, until
from tests.support.processed import folders, gone, processed


@pytest.mark.parametrize("damage", ["deleted", "truncated", "emptied", "unreadable", "a directory"])
@covers("process.lost-conversations-are-said")
def test_a_lost_conversation_becomes_one_new_one_and_the_answer_says_so(short_path: Path, fake: Path, damage: str) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake) as rig:
            session = await rig.open()
            for text in ("first", "second", "third"):
                await rig.say(session, text)
            await rig.agent.sleep(session)
            (path,) = rig.transcripts(session)
            content = path.read_text()
            match damage:
                case "truncated":
                    path.write_text(content[:40])
                case "emptied":
                    path.write_text("")
                case "unreadable":
                    path.chmod(0)
                case _:
                    path.unlink()
            if damage == "a directory":
                path.mkdir()
            turned = await rig.say(session, "fourth")
            assert turned.is_done
            assert turned.text.startswith("[the agent's conversation is lost (its file ")
            assert "message 1: You have lost the conversation" in turned.text
            assert "You: message 3: third" in turned.text, "it is told what was said before"
            after = await rig.say(session, "fifth")
            assert after.text == "message 2: fifth", "it is said once"
            assert len([each for each in rig.transcripts(session) if each != path]) == 1

    run(scenario())


def test_half_a_line_at_the_end_is_mended_and_nothing_is_lost(short_path: Path, fake: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake) as rig:
            session = await rig.open()
            await rig.say(session, "first")
            await rig.agent.sleep(session)
            with rig.transcripts(session)[0].open("a") as file:
                file.write('{"type":"assis')
            assert (await rig.say(session, "second")).text == "message 2: second"

    run(scenario())


def test_a_turn_that_was_not_written_down_is_told_again(short_path: Path, fake: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake) as rig:
            session = await rig.open()
            await rig.say(session, "first")
            before = rig.transcripts(session)[0].read_text()
            await rig.say(session, "second")
            await rig.agent.sleep(session)
            rig.transcripts(session)[0].write_text(before)
            turned = await rig.say(session, "third")
            assert turned.text.startswith("message 2: Your memory lacks what was said last:\n\nUser: second\n\nYou: message 2: second")
            assert len(rig.transcripts(session)) == 1

    run(scenario())


@covers("process.discovery")
def test_what_is_on_disk_is_compared_with_the_log_and_an_orphan_adopted_on_request(short_path: Path, fake: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake) as rig:
            one, other = await rig.open(), await rig.open()
            assert rig.standing(one).state == "none"
            await rig.say(one, "first")
            await rig.say(other, "elsewhere")
            assert rig.standing(one).state == "kept"
            orphan, name = short_path / "orphan.jsonl", "11111111-2222-4333-8444-555555555555"
            orphan.write_text(rig.transcripts(one)[0].read_text() * 5)
            with pytest.raises(CommandRefused, match="no id of a conversation"):
                await rig.adopt(other, "../../x", orphan)
            with pytest.raises(CommandRefused, match="its file is gone"):
                await rig.adopt(other, name)
            await rig.adopt(other, name, orphan)
            assert (await rig.say(other, "second")).text == "message 6: second"
            assert [each.conversation for each in rig.standing(other).orphans] == [
                path.stem for path in rig.transcripts(other) if path.stem != name
            ]
            await rig.agent.sleep(one)
            rig.transcripts(one)[0].unlink()
            assert rig.standing(one).state == "broken"

    run(scenario())


@covers("process.one-at-a-time")
def test_two_processes_are_never_in_one_conversation(short_path: Path, fake: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake) as rig:
            one, other = await rig.open(), await rig.open()
            await rig.say(one, "first")
            path = rig.transcripts(one)[0]
            await rig.adopt(other, path.stem, path)
            turned = await rig.say(other, "second")
            assert turned.end.status is TurnStatus.FAILED
            assert "another process is in the conversation" in turned.end.failure
            await rig.agent.sleep(one)
            assert (await rig.say(other, "third")).is_done

    run(scenario())


@covers("process.one-at-a-time")
def test_a_process_that_is_about_to_leave_is_waited_for(short_path: Path, fake: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake) as rig:
            session = await rig.open()
            await rig.say(session, "first")
            await rig.agent.sleep(session)
            lock = lock_file(rig.folders(session).locks / f"{rig.transcripts(session)[0].stem}.lock")
            assert lock is not None
            saying = asyncio.create_task(rig.say(session, "second"))
            await until(lambda: sum(isinstance(event, TurnStarted) for event in rig.events(session)) == 2)
            await asyncio.wait((saying,), timeout=0.5)
            lock.release()
            assert (await saying).text == "message 2: second"

    run(scenario())


@covers("process.pool")
def test_never_more_processes_than_allowed_and_everybody_is_answered(short_path: Path, fake: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake, limits=ProcessLimits(processes=2)) as rig:
            sessions = [await rig.open() for _ in range(6)]
            most, words = 0, list[str]()

            async def look() -> None:
                nonlocal most
                while True:
                    most = max(most, _processes(rig.folders(sessions[0]).state.parents[1]))
                    await asyncio.sleep(0.01)

            async def hear(session: SessionId) -> None:
                async with rig.journal.listen(session) as live:
                    async for each in live:
                        words.append(each.text)

            beside = [asyncio.create_task(look()), *(asyncio.create_task(hear(session)) for session in sessions)]
            turns = await asyncio.gather(*(rig.say(session, fake_claude.SLOWLY) for session in sessions))
            again = await asyncio.gather(*(rig.say(session, "again") for session in sessions))
            for task in beside:
                task.cancel()
            assert [turned.text for turned in turns] == [f"message 1: {fake_claude.SLOWLY}"] * 6
            assert [turned.text for turned in again] == ["message 2: again"] * 6, "one that was ended for another resumes"
            assert 0 < most <= 2
            assert any("2 agents are at work already" in word for word in words)

    run(scenario())


@covers("process.idle")
def test_a_process_that_rests_answers_to_its_health_and_ends_after_a_while(short_path: Path, fake: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake, limits=ProcessLimits(idle=3.0, health=0.2)) as rig:
            session = await rig.open()
            await rig.say(session, "first")
            assert rig.agent.alive == 1
            await until(lambda: rig.agent.alive == 0)
            assert (await rig.say(session, "second")).text == "message 2: second", "asking for its health left nothing in it"

    run(scenario())


@covers("teams.waking-tells-the-truth")
def test_waking_says_whether_a_process_was_started(short_path: Path, fake: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake) as rig:
            session = await rig.open()
            assert await rig.agent.wake(session) == "it has no conversation to go on with yet; its process starts with the next message"
            assert rig.agent.alive == 0
            await rig.say(session, "first")
            await rig.agent.sleep(session)
            assert rig.agent.alive == 0
            assert (await rig.agent.wake(session), rig.agent.alive) == ("awake", 1)
            assert (await rig.say(session, "second")).text == "message 2: second"

    run(scenario())


def requests(told: list[AnyEvent], many: int) -> tuple[ModelRequested, ...]:
    (started,) = (event for event in told if isinstance(event, TurnStarted))
    first = ModelRequested(at=started.at, turn=started.turn, request="0", base=None, added=Payload(), model="anthropic:claude")
    return tuple(first.model_copy(update={"request": str(number)}) for number in range(many))


@covers("process.budget")
@pytest.mark.parametrize("is_used_up", [True, False])
def test_a_refused_key_is_a_used_up_budget_where_one_is_used_up(short_path: Path, fake: Path, *, is_used_up: bool) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake) as rig:
            session = await rig.open()
            await rig.tell(session, fake_claude.SIGNED_OUT)
            state = rig.folders(session).state
            await until((state / "asking").exists)
            if is_used_up:
                # Of steps, because a turn is not stopped for these: the request after the last one is refused.
                await rig.journal.record(session, requests(rig.events(session), 200))
                assert any(isinstance(event, BudgetExhausted) for event in rig.events(session))
            (state / "refused").touch()
            end = await until(lambda: next((event for event in rig.events(session) if isinstance(event, TurnEnded)), None))
            if is_used_up:
                assert (end.status, end.failure) == (TurnStatus.WAITING, USED_UP)
            else:
                assert end.status is TurnStatus.FAILED
                assert end.fault == "LoginNeeded"

    run(scenario())


def test_one_that_ends_badly_again_and_again_is_started_ever_later(short_path: Path, fake: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake, limits=ProcessLimits(back_off=0.3)) as rig:
            session = await rig.open()
            words = list[str]()

            async def hear() -> None:
                async with rig.journal.listen(session) as live:
                    async for each in live:
                        words.append(each.text)

            task = asyncio.create_task(hear())
            for _ in range(3):
                await rig.say(session, fake_claude.LEAVES)
            assert any("ended badly 2 times in a row" in word for word in words)
            assert (await rig.say(session, "hello")).is_done
            task.cancel()

    run(scenario())


@covers("process.carries-over")
def test_a_conversation_that_is_nearly_too_long_goes_on_in_a_new_one_with_its_summary(short_path: Path, fake: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake) as rig:
            session = await rig.open()
            await rig.say(session, "first")
            full = ContextMeasured(at=rig.house.clock.now(), used=95, size=100, measured=True)
            await rig.journal.record(session, (full,))
            turned = await rig.say(session, "second")
            assert turned.text.startswith("message 1: This goes on from an earlier conversation, which came to this:\n\nmessage 2: This")
            assert turned.text.endswith("Now:\n\nsecond")
            assert [event.trigger for event in turned.events if isinstance(event, HistoryCompacted)] == ["overflow"]
            assert (await rig.say(session, "third")).text == "message 2: third"

    run(scenario())


@contextmanager
def ours(home: Path, program: Path, text: str) -> Generator[tuple[SessionId, Begun]]:
    """Run a process of ours that has accepted a message, and kill it at the end."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as said, Path(os.devnull).open() as nothing:
        process = begun("tests.support.process_crash", home, program, text, files=(nothing.fileno(), writing, 2))
        os.close(writing)
        try:
            session = SessionId(said.readline().strip())
            assert not text or said.readline() == "accepted\n"
            yield session, process
        finally:
            process.kill()
            process.wait()


@covers("process.survives-kill")
@pytest.mark.parametrize(
    ("words", "sign", "answer"),
    [
        (fake_claude.WRITES, "written", "message 1: please write only"),
        (fake_claude.HANGS, "hanging", "message 2: Your last turn broke off"),
    ],
)
def test_a_turn_survives_our_own_end_and_its_message_is_not_sent_twice(
    short_path: Path, fake: Path, words: str, sign: str, answer: str
) -> None:
    with ours(short_path, fake, words) as (session, _):
        state = folders(short_path, session, short_path).state
        run(_until_there(state / sign))
    run(_end_of_children(short_path))

    async def scenario() -> None:
        async with SqliteStore.open(short_path / "store", SystemClock()) as store, processed(short_path, program=fake, stores=store) as rig:
            rig.turns.attend(session)
            turned = await rig.ended(session, 0)
            assert turned.is_done
            assert answer in turned.text
            marks = [json.loads(line)["uuid"] for line in rig.transcripts(session)[0].read_text().splitlines() if '"type":"user"' in line]
            assert len(marks) == len(set(marks))
            assert sum(words in line for line in rig.transcripts(session)[0].read_text().splitlines() if '"type":"user"' in line) == 1

    run(scenario())


@covers("process.survives-kill")
def test_killed_at_any_point_every_message_arrives_once(short_path: Path, fake: Path) -> None:
    chance = random.Random(7)
    for number in range(3):
        with ours(short_path, fake, f"message-{number}!") as (session, process), pytest.raises(subprocess.TimeoutExpired):
            process.wait(chance.random() * 0.6)
        run(_end_of_children(short_path))

    async def scenario() -> None:
        async with SqliteStore.open(short_path / "store", SystemClock()) as store, processed(short_path, program=fake, stores=store) as rig:
            assert [row.session for row in store.index.sessions(SessionQuery())] == [session]
            rig.turns.attend(session)
            await rig.tell(session, "last!")
            await until(lambda: any(isinstance(event, AgentSpoke) and "last!" in event.text for event in rig.events(session)), 40)
            asked = [line for path in rig.transcripts(session) for line in path.read_text().splitlines() if '"type":"user"' in line]
            told = [json.loads(line)["message"]["content"] for line in asked]
            for number in range(3):
                direct = [text for text in told if f"message-{number}!" in text.rpartition("Now:\n\n")[2]]
                assert len(direct) == 1, told

    run(scenario())


@covers("process.carries-over", "process.survives-kill")
def test_killed_in_the_middle_of_a_summary_nothing_is_lost_and_nothing_said_twice(short_path: Path, fake: Path) -> None:
    async def filled() -> SessionId:
        async with SqliteStore.open(short_path / "store", SystemClock()) as store, processed(short_path, program=fake, stores=store) as rig:
            session = await rig.open()
            assert (await rig.say(session, fake_claude.FULL)).is_done
            (rig.folders(session).state / fake_claude.HANG_IN_SUMMARY).touch()
            return session

    session = run(filled())
    with ours(short_path, fake, "second!") as (found, _):
        assert found == session
        run(_until_there(folders(short_path, session, short_path).state / "hanging"))
    run(_end_of_children(short_path))

    async def taken_up() -> None:
        async with SqliteStore.open(short_path / "store", SystemClock()) as store, processed(short_path, program=fake, stores=store) as rig:
            before = rig.house.feed.head(session_stream(session))
            rig.turns.attend(session)
            turned = await rig.ended(session, before)
            assert turned.text.startswith("message 1: This goes on from an earlier conversation")
            assert turned.text.endswith("Now:\n\nsecond!")
            events = rig.events(session)
            assert [event.trigger for event in events if isinstance(event, HistoryCompacted)] == ["overflow"]
            assert len(rig.transcripts(session)) == 2, "the old conversation and the one that goes on"
            told = [line for path in rig.transcripts(session) for line in path.read_text().splitlines() if '"type":"user"' in line]
            assert sum("second!" in line for line in told) == 1
            assert (await rig.say(session, "third")).text == "message 2: third"

    run(taken_up())


@covers("process.no-orphans")
def test_no_process_of_the_agents_outlives_ours(short_path: Path, fake: Path) -> None:
    with ours(short_path, fake, fake_claude.HANGS) as (session, _):
        run(_until_there(folders(short_path, session, short_path).state / "hanging"))
        pids = _pids(short_path)
        assert pids
    for pid in pids:
        run(gone(pid))


async def _until_there(path: Path) -> None:
    await until(path.exists)


async def _end_of_children(home: Path) -> None:
    await until(lambda: not _pids(home))


def _pids(home: Path) -> list[int]:
    """Return the processes on this machine that work for agents of this home."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            environment = Path(f"/proc/{entry}/environ").read_bytes() if entry.isdecimal() else b""
        except OSError:
            continue
        if f"CLAUDE_CONFIG_DIR={home}/".encode() in environment:
            found.append(int(entry))
    return found


def _processes(home: Path) -> int:
    """Return for how many sessions of this home an agent lives."""
    states = set()
    for pid in _pids(home):
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        states |= {each for each in variables if each.startswith(b"CLAUDE_CONFIG_DIR=")}
    return len(states)
