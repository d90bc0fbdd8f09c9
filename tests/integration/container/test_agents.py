"""The real CLI agents in real containers: a tool call through the gate, and a second turn that remembers the first."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from curtainwall.model import CallFinished, TurnStatus
from curtainwall.runtime import SystemClock
from curtainwall.store import MemoryStore
from tests.support.contained import contained, listening
from tests.support.covers import covers
from tests.support.docker_engine import DockerEngine
from tests.support.houses import until
from tests.support.talking import run

AGENTS = {
    "claude-code": "anthropic:claude-sonnet-4-5",
    # Its own models find tools by a search; one that it does not know is told all of them.
    "codex": "openai:gpt-5.1",
    "opencode": "anthropic:claude-sonnet-4-5",
    "gemini": "gemini:gemini-2.5-pro",
}


@covers("container.real-agents", "container.remembers")
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_uses_a_tool_through_the_gate_and_remembers_it_in_its_next_turn(
    agent: str, docker_engine: DockerEngine, real_part: Callable[[str], str], short_path: Path
) -> None:
    real_part(agent)

    async def story() -> None:
        async with contained(docker_engine, short_path) as rig:
            session = await rig.open(agent, AGENTS[agent])
            (rig.folders(session).workspace / "notes.txt").write_text("the moon is full")
            first = await rig.say(session, 'CALL read_file {"path": "notes.txt"} word=apple')
            assert first.is_done, first.end.failure
            assert "the moon is full" in first.text
            assert [event.ok for event in first.events if isinstance(event, CallFinished)] == [True]
            told = [json.dumps(request.body) for request in rig.provider.asked]
            assert any("You work in a sandbox that Curtainwall runs" in body for body in told), "the model knows where it is"
            second = await rig.say(session, "-- what did I say? word=pear")
            assert second.is_done, second.end.failure
            assert second.text == "HEARD: apple, pear"

    run(story(), 110)


@covers("container.inner-errors")
def test_an_error_inside_is_an_error_and_an_agent_without_its_tools_is_stopped(
    docker_engine: DockerEngine, real_part: Callable[[str], str], short_path: Path
) -> None:
    real_part("claude-code")

    async def story() -> None:
        async with contained(docker_engine, short_path) as rig:
            session = await rig.open("claude-code", AGENTS["claude-code"])
            failed = await rig.say(session, "FAIL")
            assert failed.end.status is TurnStatus.FAILED
            assert "the test wants this to fail" in failed.end.failure
            rig.ways.is_closed = True
            toolless = await rig.say(session, "hello")
            assert toolless.end.failure == "claude-code: it did not reach the session's tools (failed)"
            rig.ways.is_closed = False
            assert (await rig.say(session, "word=plum")).text.endswith("HEARD: plum")

    run(story(), 110)


@covers("container.lost-conversation", "container.taken-up")
def test_a_conversation_that_broke_off_is_taken_up_and_one_that_is_lost_is_told_again(
    docker_engine: DockerEngine, real_part: Callable[[str], str], short_path: Path
) -> None:
    real_part("claude-code")

    async def story() -> None:
        store = MemoryStore(SystemClock())
        async with contained(docker_engine, short_path, stores=store) as rig:
            session = await rig.open("claude-code", AGENTS["claude-code"])
            async with listening(rig, session) as heard:
                await rig.tell(session, "HANG word=apple")
                await until(lambda: any("moment" in live.text for live in heard()), 60)
        # Whoever comes after a crash of ours finds the turn open in the log.
        async with contained(docker_engine, short_path, stores=store) as rig:
            rig.turns.attend(session)
            resumed = await rig.ended(session, 0)
            assert resumed.is_done, resumed.end.failure
            assert resumed.text == "HEARD: apple"
            shutil.rmtree(rig.folders(session).state / ".claude")
            again = await rig.say(session, "word=pear")
            assert again.is_done, again.end.failure
            assert "claude-code has lost the conversation" in again.text
            assert again.text.endswith("HEARD: apple, pear")
            assert (await rig.say(session, "/clear word=fig")).text == "HEARD: apple, pear, fig"

    run(story(), 110)
