"""The real Claude Code as a local process: it remembers, is resumed, obeys, and keeps its conversations where we look for them."""

import uuid
from pathlib import Path

import pytest

from curtainwall.agents.external.process import project_slug
from curtainwall.model import (
    AskCompaction,
    CallFinished,
    CompactionSkipped,
    HistoryCompacted,
    InterruptTurn,
    TextStreamed,
    TurnStatus,
    session_stream,
)
from curtainwall.runtime import SystemClock
from curtainwall.store import SqliteStore
from tests.support.covers import covers
from tests.support.houses import ANN, run, until
from tests.support.processed import processed
from tests.support.upstream import Fails

pytestmark = pytest.mark.usefixtures("claude")


@pytest.fixture
def claude(real_part: object) -> str:
    """Return the version of the Claude Code that is here."""
    return real_part("claude-code")  # type: ignore[operator] - the fixture is a function


@covers("process.remembers")
def test_each_session_remembers_its_own_conversation_and_still_does_after_a_restart_of_everything(short_path: Path) -> None:
    async def scenario() -> None:
        async with SqliteStore.open(short_path / "store", SystemClock()) as store:
            async with processed(short_path, stores=store) as rig:
                project = short_path / "backend"
                frontend, mobile = await rig.open(project), await rig.open(project)
                assert (await rig.say(frontend, "word=alpha")).text == "HEARD: alpha"
                assert (await rig.say(frontend, "word=beta")).text == "HEARD: alpha, beta"
                assert (await rig.say(mobile, "word=gamma")).text == "HEARD: gamma", "it sees nothing of the other"
            async with processed(short_path, stores=store) as rig:
                rig.turns.attend(frontend)
                assert (await rig.say(frontend, "word=delta")).text == "HEARD: alpha, beta, delta"
                assert len(rig.transcripts(frontend)) == 1

    run(scenario())


@covers("process.lost-conversations-are-said")
def test_a_conversation_whose_beginning_is_missing_is_not_gone_on_with_in_silence(short_path: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path) as rig:
            session = await rig.open()
            for word in ("alpha", "beta", "gamma"):
                await rig.say(session, f"word={word}")
            await rig.agent.sleep(session)
            (path,) = rig.transcripts(session)
            assert rig.standing(session).state == "kept"
            lines = path.read_text().splitlines(keepends=True)
            asked = [number for number, line in enumerate(lines) if '"type":"user"' in line]
            path.write_text("".join(lines[asked[1] :]))
            assert rig.standing(session).why == "a part of its file is missing"
            turned = await rig.say(session, "word=delta")
            assert turned.text.startswith("[the agent's conversation is lost (a part of its file is missing); ")
            assert turned.text.endswith("HEARD: alpha, beta, gamma, delta")
            assert (await rig.say(session, "word=omega")).text == "HEARD: alpha, beta, gamma, delta, omega"

    run(scenario())


@covers("process.slugs")
def test_conversations_are_where_the_rule_says_for_every_kind_of_path(short_path: Path) -> None:
    (short_path / "real").mkdir()
    (short_path / "linked").symlink_to(short_path / "real")
    names = ("a.b.c", "a_b", "a b", "grüße", "x😀y", "linked", "l" * 120 + "/" + "m" * 130)

    async def scenario() -> None:
        async with processed(short_path) as rig:
            for name in names:
                session = await rig.open(short_path / name)
                assert (await rig.say(session, "hello")).is_done
                await rig.agent.sleep(session)
                (written,) = rig.transcripts(session)
                assert written.parent.name == project_slug(str((short_path / name).resolve()))
                assert uuid.UUID(written.stem)

    run(scenario())


@covers("process.only-our-tools")
def test_its_tools_are_the_sessions_and_what_it_does_goes_through_the_gate(short_path: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path) as rig:
            session = await rig.open()
            turned = await rig.say(session, 'CALL write_file {"path": "made.txt", "content": "by the gate"}')
            assert turned.is_done
            assert (rig.folders(session).workspace / "made.txt").read_text() == "by the gate"
            assert [event for event in turned.events if isinstance(event, CallFinished)]
            offered = {tool["name"] for asked in rig.provider.asked for tool in asked.body.get("tools", ())}
            assert offered
            assert all(name.startswith("mcp__curtainwall__") for name in offered)

    run(scenario())


def test_a_word_that_is_a_command_to_the_agent_is_only_a_message(short_path: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path) as rig:
            session = await rig.open()
            await rig.say(session, "word=alpha")
            assert (await rig.say(session, "/clear word=beta")).text == "HEARD: alpha, beta"
            assert len(rig.transcripts(session)) == 1

    run(scenario())


@covers("process.interrupt", "process.compacts")
def test_an_interrupt_keeps_half_an_answer_and_compacting_is_the_agents_own(short_path: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path) as rig:
            session = await rig.open()
            await rig.say(session, "word=alpha")
            await rig.house.send(session, AskCompaction(by=ANN, instructions="keep\nthe words"))
            await until(lambda: any(isinstance(event, HistoryCompacted) for event in rig.events(session)))
            assert any("keep the words" in str(asked.body) for asked in rig.provider.asked)
            assert (await rig.say(session, "word=omega")).is_done
            before = rig.house.feed.head(session_stream(session))
            async with rig.journal.listen(session) as live:
                await rig.tell(session, "HANG")
                said = ""
                while "more" not in said:
                    said += (await anext(live)).text
            await rig.house.send(session, InterruptTurn(by=ANN))
            turned = await rig.ended(session, before)
            assert turned.end.status is TurnStatus.INTERRUPTED
            assert "".join(event.text for event in turned.events if isinstance(event, TextStreamed)) == "one moment, and then more "
            assert rig.agent.alive == 1

    run(scenario())


@covers("process.compacts")
def test_a_summary_that_could_not_be_made_is_told_with_the_agents_reason_and_the_conversation_goes_on(short_path: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path) as rig:
            session = await rig.open()
            await rig.say(session, "word=alpha")
            # It tries more than once.
            rig.provider.will(*[Fails(400, "no summary today", "invalid_request_error")] * 9)
            await rig.house.send(session, AskCompaction(by=ANN))
            await until(lambda: any(isinstance(event, CompactionSkipped) for event in rig.events(session)))
            (skipped,) = [event for event in rig.events(session) if isinstance(event, CompactionSkipped)]
            assert "no summary today" in skipped.why
            rig.provider.turns.clear()
            assert (await rig.say(session, "word=omega")).text == "HEARD: alpha, omega"

    run(scenario())


def test_a_key_that_is_not_taken_says_where_a_key_goes_and_an_error_of_the_provider_is_the_agents(short_path: Path) -> None:
    async def scenario() -> None:
        async with processed(short_path) as rig:
            session = await rig.open()
            rig.provider.will(Fails(400, "the test wants this", "invalid_request_error"))
            failed = await rig.say(session, "word=alpha")
            assert "the test wants this" in failed.end.failure
            assert (await rig.say(session, "word=beta")).is_done
            rig.ways.key = "sk-ant-of-nobody"
            refused = await rig.say(await rig.open(), "hello")
            assert refused.end.status is TurnStatus.FAILED
            assert "set `ANTHROPIC_API_KEY` or `CLAUDE_CODE_OAUTH_TOKEN`" in refused.end.failure

    run(scenario())
