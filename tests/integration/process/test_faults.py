"""A local agent that misbehaves: each fault has its own name, in bounded time, and the next message works."""

import time
from pathlib import Path

import pytest

from curtainwall.agents.external import SaidTooMuch
from curtainwall.agents.external.process import (
    AgentCrashed,
    AgentErred,
    AgentGarbled,
    AgentSilent,
    NoAnswer,
    ProcessLimits,
    WrongVersion,
)
from curtainwall.model import ExtensionNoted, InterruptTurn, TextStreamed, TurnStatus
from tests.support import fake_claude
from tests.support.covers import covers
from tests.support.foreign import Turned
from tests.support.houses import ANN, run, until
from tests.support.processed import processed

QUICK = ProcessLimits(silence=3.0, grace=1.0)
"""Quick to give up, and still long enough for a program that starts on a busy machine."""


def fault_in(turned: Turned) -> object:
    """Return the name of what went wrong, as the log has it."""
    noted = [event.data for event in turned.events if isinstance(event, ExtensionNoted) and "fault" in event.data]
    return noted[-1]["fault"] if noted else None


@pytest.mark.parametrize(
    ("words", "fault", "told"),
    [
        (fake_claude.HANGS, AgentSilent, "no sign of life for 3 seconds"),
        (fake_claude.GARBAGE, AgentGarbled, "Segmentation fault 0"),
        (fake_claude.BREAKS, AgentGarbled, 'a line of broken JSON and was ended: {"type":"result"'),
        (fake_claude.LEAVES, NoAnswer, "ended without an answer"),
        (fake_claude.CRASHES, AgentCrashed, "exit code 139"),
        (fake_claude.ERRS, AgentErred, "it was too much"),
        (fake_claude.ENDLESSLY, SaidTooMuch, "more than 4,000,000 letters"),
        (fake_claude.LOUDLY, AgentErred, "it was too much!!"),
    ],
)
@covers("process.faults-are-typed", "process.works-again")
def test_a_fault_has_its_name_in_bounded_time_and_the_next_message_works(
    short_path: Path, fake: Path, words: str, fault: type, told: str
) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake, limits=QUICK) as rig:
            session = await rig.open()
            assert (await rig.say(session, "first")).text == "message 1: first"
            began = time.monotonic()
            failed = await rig.say(session, words)
            assert time.monotonic() - began < 60
            assert failed.end.status is TurnStatus.FAILED
            assert told in failed.end.failure
            assert len(failed.end.failure) < 3_000
            assert fault_in(failed) == fault.__name__
            after = await rig.say(session, "third")
            assert after.text == "message 3: third", "the conversation goes on, with what was said before"
            assert len(rig.transcripts(session)) == 1

    run(scenario())


def test_a_failure_quotes_no_secret(short_path: Path, fake: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake) as rig:
            failed = await rig.say(await rig.open(), fake_claude.ERRS)
            assert "ghp_" not in failed.end.failure
            assert "and it had read [masked:" in failed.end.failure
            assert failed.end.fault == AgentErred.__name__

    run(scenario())


def test_a_thought_before_the_answer_is_no_answer(short_path: Path, fake: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake) as rig:
            session = await rig.open()
            turned = await rig.say(session, fake_claude.THINKS)
            assert turned.is_done
            assert turned.text == f"message 1: {fake_claude.THINKS}"

    run(scenario())


def test_what_was_shown_of_half_an_answer_is_kept(short_path: Path, fake: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake) as rig:
            session = await rig.open()
            turned = await rig.say(session, fake_claude.CRASHES)
            assert "half an " in [event.text for event in turned.events if isinstance(event, TextStreamed)]

    run(scenario())


@covers("process.says-what-to-do")
def test_a_program_that_is_not_there_is_said_within_a_second_and_how_to_get_it(short_path: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=short_path / "nothing") as rig:
            session = await rig.open()
            seconds: list[float] = []
            for _ in range(3):
                began = time.monotonic()
                turned = await rig.say(session, "hello")
                seconds.append(time.monotonic() - began)
            # Others may be at work on this machine; how quick it can be is what counts.
            assert min(seconds) < 1
            assert turned.end.status is TurnStatus.FAILED
            assert "install it (`npm install" in turned.end.failure
            assert rig.agent.alive == 0

    run(scenario())


def test_an_option_that_the_program_does_not_know_names_the_version_that_does(short_path: Path) -> None:
    program = short_path / "old"
    program.write_text("#!/bin/sh\necho \"error: unknown option '--tools'\" >&2\nexit 1\n")
    program.chmod(0o755)

    async def scenario() -> None:
        async with processed(short_path, program=program) as rig:
            turned = await rig.say(await rig.open(), "hello")
            assert fault_in(turned) == WrongVersion.__name__
            assert "--tools" in turned.end.failure
            assert "install Claude Code 2.1" in turned.end.failure

    run(scenario())


def test_without_a_key_nothing_is_started_and_the_message_says_where_one_goes(short_path: Path, fake: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake) as rig:
            rig.ways.key = ""
            session = await rig.open()
            turned = await rig.say(session, "hello")
            assert "ANTHROPIC_API_KEY" in turned.end.failure
            assert not list(rig.folders(session).state.glob("started-*"))
            rig.ways.key = "there now"
            assert (await rig.say(session, "again")).text.endswith("hello\n\nagain"), "what was not delivered is delivered then"

    run(scenario())


@covers("process.interrupt")
@pytest.mark.parametrize(("words", "grace", "starts"), [(fake_claude.HANGS, 60.0, 1), (fake_claude.DEAF, 1.0, 2)])
def test_an_interrupt_keeps_what_was_shown_and_only_a_process_that_does_not_listen_is_ended(
    short_path: Path, fake: Path, words: str, grace: float, starts: int
) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake, limits=ProcessLimits(grace=grace)) as rig:
            session = await rig.open()
            before = len(rig.events(session))
            async with rig.journal.listen(session) as live:
                await rig.tell(session, words)
                assert (await anext(live)).text == "half an "
            await rig.house.send(session, InterruptTurn(by=ANN))
            turned = await rig.ended(session, before)
            assert turned.end.status is TurnStatus.INTERRUPTED
            assert [event.text for event in turned.events if isinstance(event, TextStreamed)] == ["half an "]
            assert (await rig.say(session, "next")).text == "message 2: next"
            assert len(list(rig.folders(session).state.glob("started-*"))) == starts

    run(scenario())


@covers("process.answers-its-message")
def test_the_late_answer_to_an_interrupted_message_is_not_taken_for_the_answer_to_the_next(short_path: Path, fake: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake, limits=ProcessLimits(grace=60.0)) as rig:
            session = await rig.open()
            before = len(rig.events(session))
            async with rig.journal.listen(session) as live:
                await rig.tell(session, fake_claude.LATE)
                assert (await anext(live)).text == "half an "
            await rig.house.send(session, InterruptTurn(by=ANN))
            assert (await rig.ended(session, before)).end.status is TurnStatus.INTERRUPTED
            assert (await rig.say(session, "next")).text == "message 2: next"
            assert (await rig.say(session, "last")).text == "message 3: last"
            assert len(list(rig.folders(session).state.glob("started-*"))) == 1, "it was the same process all the time"

    run(scenario())


def test_a_turn_that_works_for_too_long_is_stopped_and_keeps_what_was_shown(short_path: Path, fake: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake, limits=ProcessLimits(turn=6.0)) as rig:
            session = await rig.open()
            turned = await rig.say(session, fake_claude.HANGS)
            assert turned.end.status is TurnStatus.FAILED
            assert "stopped after 6 seconds of work" in turned.end.failure
            assert [event.text for event in turned.events if isinstance(event, TextStreamed)] == ["half an "]
            assert (await rig.say(session, "next")).text == "message 2: next"
            assert len(list(rig.folders(session).state.glob("started-*"))) == 1

    run(scenario())


def test_a_process_that_dies_while_nobody_needs_it_is_not_missed(short_path: Path, fake: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake) as rig:
            session = await rig.open()
            await rig.say(session, "first")
            running = rig.agent._pool._seats[session].running
            assert running is not None
            running.process.kill()
            await until(lambda: not running.is_alive)
            assert (await rig.say(session, "second")).text == "message 2: second"

    run(scenario())


@covers("process.another-name")
@pytest.mark.parametrize("words", [fake_claude.RENAMES, fake_claude.MOVES])
@pytest.mark.parametrize("before", [(), ("first",)])
def test_an_agent_that_calls_the_conversation_by_another_name_loses_nothing(
    short_path: Path, fake: Path, words: str, before: tuple[str, ...]
) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake) as rig:
            session = await rig.open()
            for text in before:
                await rig.say(session, text)
                # What follows is said to a process that resumes the conversation.
                await rig.agent.sleep(session)
            assert (await rig.say(session, words)).text == f"message {len(before) + 1}: {words}"
            assert (await rig.say(session, "second")).text == f"message {len(before) + 2}: second"
            await rig.agent.sleep(session)
            assert (await rig.say(session, "third")).text == f"message {len(before) + 3}: third"
            assert rig.standing(session).state == "kept"
            assert (rig.standing(session).conversation == fake_claude.OTHER_NAME) == (words == fake_claude.MOVES)

    run(scenario())


@covers("process.another-name")
def test_an_agent_that_begins_another_conversation_is_told_what_was_said(short_path: Path, fake: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path, program=fake) as rig:
            session = await rig.open()
            await rig.say(session, "first")
            await rig.agent.sleep(session)
            forgotten = await rig.say(session, fake_claude.FORGETS)
            assert "the agent's conversation is lost" in forgotten.text
            assert "message 1: first" in forgotten.text, "it is told again"

    run(scenario())
