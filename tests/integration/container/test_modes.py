"""A stricter mode while a container runs that was made for a freer one: what it could do ends with it, at work and at rest."""

import asyncio
import json
import os
import shlex
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from curtainwall.agents.external.container import ContainerExtras, ContainerLimits, PlainAgent
from curtainwall.model import (
    AnswerApproval,
    ApprovalAsked,
    ChangeMode,
    CloseSession,
    Mode,
    ModeChanged,
    SessionId,
    TurnEnded,
    TurnStarted,
    TurnStatus,
    Workspace,
    held_files,
    session_stream,
)
from tests.support.contained import Contained, contained
from tests.support.covers import covers
from tests.support.docker_engine import DockerEngine
from tests.support.engine_relay import relayed
from tests.support.houses import ANN, until
from tests.support.talking import of, run

STUBBORN = """
trap '' TERM
if [ -w /workspace ] && [ ! -e /home/agent/again ]; then
  touch /home/agent/again
  setsid sh -c 'while :; do date +%s%N >>/workspace/child; done' &
  echo begun
  while :; do date +%s%N >>/workspace/own; done
fi
"""
AFTERWARDS = "touch /workspace/more 2>/dev/null && echo 'it writes' || echo 'it only reads'"
LEAVES_ONE = "setsid sh -c 'while :; do date +%s%N >>/workspace/child; done' >/dev/null 2>&1 & echo left"


def worker(script: str) -> PlainAgent:
    """Return an agent that does the same whatever it is told."""
    return PlainAgent("worker", ("sh", "-c", script))


async def grows(path: Path) -> None:
    """Return when a file is there and becomes longer: somebody writes to it right now."""
    await until(path.exists, 60)
    size = size_of(path)
    await until(lambda: size_of(path) > size, 60)


def size_of(path: Path) -> int:
    return path.stat().st_size


def last_written(path: Path) -> float:
    """Return when the last whole line was written, in milliseconds."""
    return int(path.read_text().rpartition("\n")[0].rpartition("\n")[2]) / 1e6


def late_by(rig: Contained, session: SessionId, path: Path) -> float:
    """Return how many milliseconds after the change of the mode something was still written."""
    return last_written(path) - of(ModeChanged, rig.events(session))[-1].at


def project_in(root: Path) -> Workspace:
    """Make a project that is the agent's user's."""
    root.mkdir(parents=True)
    if os.getuid() == 0:
        os.chown(root, 1000, 1000)
    return Workspace(path=str(root), own=False)


@covers("container.stricter-at-work")
def test_plan_mode_takes_the_workspace_from_an_agent_at_work_and_its_turn_goes_on(docker_engine: DockerEngine, short_path: Path) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, worker(STUBBORN + AFTERWARDS), limits=ContainerLimits(grace=20)) as rig:
            session = await rig.open("worker", mode=Mode.ACCEPT_EDITS)
            place = rig.folders(session).workspace
            before = rig.house.feed.head(session_stream(session))
            await rig.tell(session, "work")
            await grows(place / "child")
            await grows(place / "own")
            first = await rig.container(session)
            await rig.house.send(session, ChangeMode(by=ANN, mode=Mode.PLAN))
            turn = await rig.ended(session, before)
            assert turn.is_done, turn.end.failure
            assert "it only reads" in turn.text
            assert "the mode is `plan` now" in turn.text, "the person is told what became of what ran"
            assert [len(of(kind, rig.events(session))) for kind in (TurnStarted, TurnEnded)] == [1, 1], "it is one turn"
            assert await rig.container(session) != first
            assert not (place / "more").exists()
            # A process that ignores every wish to end had 20 seconds before, and it wrote all the time.
            for file in (place / "child", place / "own"):
                assert late_by(rig, session, file) < 10_000

    run(story())


@covers("container.stricter-at-rest")
def test_plan_mode_ends_what_an_agent_left_running_in_a_container_at_rest(docker_engine: DockerEngine, short_path: Path) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, worker(LEAVES_ONE)) as rig:
            session = await rig.open("worker")
            child = rig.folders(session).workspace / "child"
            assert (await rig.say(session, "work")).is_done
            await grows(child)
            await rig.house.send(session, ChangeMode(by=ANN, mode=Mode.ACCEPT_EDITS))
            await grows(child)
            await rig.house.send(session, ChangeMode(by=ANN, mode=Mode.PLAN))
            await rig.becomes(session, "gone")
            size = child.stat().st_size
            assert late_by(rig, session, child) < 10_000
            assert (await rig.say(session, "work")).is_done
            assert child.stat().st_size == size, "the next container can only read"

    run(story())


@covers("container.stricter-at-rest")
def test_what_an_agent_left_running_ends_with_the_session(docker_engine: DockerEngine, short_path: Path) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, worker(LEAVES_ONE)) as rig:
            session = await rig.open("worker")
            assert (await rig.say(session, "work")).is_done
            await grows(rig.folders(session).workspace / "child")
            await rig.house.send(session, CloseSession(by=ANN, reason="done"))
            await rig.becomes(session, "gone")

    run(story())


@covers("container.stricter-at-rest")
def test_plan_mode_ends_what_is_frozen_in_a_container_at_rest(docker_engine: DockerEngine, short_path: Path) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, worker(LEAVES_ONE), limits=ContainerLimits(pause_after=0.5)) as rig:
            session = await rig.open("worker")
            child = rig.folders(session).workspace / "child"
            assert (await rig.say(session, "work")).is_done
            await rig.becomes(session, "paused")
            size = size_of(child)
            assert size, "nothing was left running"
            await rig.house.send(session, ChangeMode(by=ANN, mode=Mode.PLAN))
            await rig.becomes(session, "gone")
            # What is killed with the first process may see the light once more, for a moment, and no longer.
            assert size_of(child) == size or late_by(rig, session, child) < 10_000
            size = size_of(child)
            assert (await rig.say(session, "work")).is_done
            assert size_of(child) == size

    run(story())


@covers("container.stricter-at-work")
def test_leaving_bypass_has_what_runs_later_watched_from_then_on(docker_engine: DockerEngine, short_path: Path) -> None:
    script = f"{STUBBORN}\necho 'touch /tmp/ran' >/workspace/.envrc\necho planted"

    async def story() -> None:
        async with contained(docker_engine, short_path / "home", worker(script)) as rig:
            project = short_path / "project"
            session = await rig.begin(SessionId(rig.house.mint()), "worker", project_in(project), mode=Mode.BYPASS)
            before = rig.house.feed.head(session_stream(session))
            await rig.tell(session, "work")
            await grows(project / "child")
            await rig.house.send(session, ChangeMode(by=ANN, mode=Mode.ACCEPT_EDITS))
            turn = await rig.ended(session, before)
            assert turn.is_done, turn.end.failure
            assert "planted" in turn.text
            assert not (project / ".envrc").exists()
            assert await rig.engine.list_containers(session) == [], "in a project the container ends with the turn again"

    run(story())


@covers("container.stricter-at-work")
def test_a_container_that_is_made_while_the_mode_becomes_stricter_is_not_used(docker_engine: DockerEngine, short_path: Path) -> None:
    script = "if [ -e /home/agent/stays ]; then while :; do sleep 0.05; done; fi\n" + AFTERWARDS

    async def story() -> None:
        async with contained(docker_engine, short_path, worker(script), limits=ContainerLimits(containers=1)) as rig:
            busy, session = await rig.open("worker"), await rig.open("worker")
            stays = rig.folders(busy).state / "stays"
            stays.parent.mkdir(parents=True)
            stays.touch()
            await rig.tell(busy, "work")
            await rig.becomes(busy, "running")
            before = rig.house.feed.head(session_stream(session))
            await rig.tell(session, "work")
            await rig.becomes(session, "created")
            await rig.house.send(session, ChangeMode(by=ANN, mode=Mode.PLAN))
            # The other one is at work until its own person makes room.
            await rig.house.send(busy, ChangeMode(by=ANN, mode=Mode.PLAN))
            stays.unlink()
            turn = await rig.ended(session, before)
            assert turn.is_done, turn.end.failure
            assert "it only reads" in turn.text
            assert not (rig.folders(session).workspace / "more").exists()

    run(asyncio.wait_for(story(), 120))


@asynccontextmanager
async def unwilling(engine: DockerEngine, place: Path) -> AsyncGenerator[tuple[DockerEngine, asyncio.Event]]:
    """Lend the engine through a socket that ends no container while it is told so."""
    refuses = asyncio.Event()

    async def lets_pass(wish: bytes) -> bool:
        return not (refuses.is_set() and (wish.startswith(b"DELETE") or b"/kill" in wish))

    async with relayed(engine, place, lets_pass) as relay:
        yield relay, refuses


@covers("container.stricter-at-work")
def test_a_container_that_cannot_be_ended_is_told_of_and_nothing_goes_on_beside_it(docker_engine: DockerEngine, short_path: Path) -> None:
    async def story() -> None:
        async with (
            unwilling(docker_engine, short_path / "s") as (engine, refuses),
            contained(engine, short_path, worker(STUBBORN + AFTERWARDS), limits=ContainerLimits(grace=0.1)) as rig,
        ):
            session = await rig.open("worker")
            place = rig.folders(session).workspace
            before = rig.house.feed.head(session_stream(session))
            await rig.tell(session, "work")
            await grows(place / "child")
            refuses.set()
            await rig.house.send(session, ChangeMode(by=ANN, mode=Mode.PLAN))
            turn = await rig.ended(session, before)
            assert turn.end.status is TurnStatus.FAILED
            assert "what runs in it keeps the rights that it had" in turn.text
            refuses.clear()
            again = await rig.say(session, "work")
            assert again.is_done, again.end.failure
            assert "it only reads" in again.text
            size = size_of(place / "child")
            assert (await rig.say(session, "work")).is_done
            assert size_of(place / "child") == size

    run(story())


@covers("container.stricter-at-work")
def test_an_agent_that_waits_for_a_person_waits_on_without_its_container(docker_engine: DockerEngine, short_path: Path) -> None:
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "sh", "version": "1"}}
    wish = {"name": "filesystem__write_file", "arguments": {"path": f"{short_path}/outside.txt", "content": "hello"}}
    frames = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": wish},
    ]
    call = f"printf '%s\\n' {shlex.join(map(json.dumps, frames))} | socat -t 600 - UNIX-CONNECT:/run/curtainwall/mcp.sock"

    async def story() -> None:
        async with contained(docker_engine, short_path / "home", worker(f"{LEAVES_ONE}\n{call}")) as rig:
            session = await rig.open("worker")
            before = rig.house.feed.head(session_stream(session))
            await rig.tell(session, "work")
            asked = await until(lambda: of(ApprovalAsked, rig.events(session)), 60)
            child = rig.folders(session).workspace / "child"
            await grows(child)
            await rig.house.send(session, ChangeMode(by=ANN, mode=Mode.PLAN))
            waits = await until(lambda: of(TurnEnded, rig.events(session)), 60)
            assert [end.status for end in waits] == [TurnStatus.WAITING]
            assert await rig.engine.list_containers(session) == []
            assert late_by(rig, session, child) < 10_000
            await rig.house.send(session, AnswerApproval(by=ANN, approval=asked[0].approval, granted=True))
            turn = await rig.ended(session, before)
            assert turn.is_done, turn.end.failure
            assert not (short_path / "outside.txt").exists(), "what was asked before is judged by the mode that holds now"

    run(story())


@covers("container.stricter-at-work")
def test_claude_code_goes_on_with_its_conversation_where_plan_mode_took_its_container(
    docker_engine: DockerEngine, real_part: Callable[[str], str], short_path: Path
) -> None:
    real_part("claude-code")
    command = json.dumps({"command": "while date +%s%N >>/workspace/child; do :; done", "description": "write"})

    async def story() -> None:
        async with contained(docker_engine, short_path) as rig:
            session = await rig.open("claude-code", "anthropic:claude-sonnet-4-5", Mode.ACCEPT_EDITS)
            child = rig.folders(session).workspace / "child"
            before = rig.house.feed.head(session_stream(session))
            await rig.tell(session, f"word=apple CALL Bash {command}")
            await grows(child)
            await rig.house.send(session, ChangeMode(by=ANN, mode=Mode.PLAN))
            turn = await rig.ended(session, before)
            assert turn.is_done, turn.end.failure
            assert "Read-only file system" in turn.text, "it made the same call again"
            assert late_by(rig, session, child) < 10_000
            assert [len(of(kind, rig.events(session))) for kind in (TurnStarted, TurnEnded)] == [1, 1], "it is one turn"
            size = child.stat().st_size
            assert (await rig.say(session, "word=pear")).text.endswith("HEARD: apple, pear"), "it is the same conversation"
            assert child.stat().st_size == size

    run(story())


SERVER_LIKE = """
setsid sh -c 'while :; do [ -e plant ] && [ ! -e planted ] && echo "exec evil" >.envrc && touch planted
date +%s%N >>beat; sleep 0.05; done' >/dev/null 2>&1 &
echo left
"""


@covers("container.kept")
def test_what_an_agent_leaves_running_goes_on_if_the_user_wants_that_and_plants_nothing_that_runs_later(
    docker_engine: DockerEngine, short_path: Path
) -> None:
    async def story() -> None:
        shell, extras = PlainAgent("shell", ("sh",)), ContainerExtras(keeps_running=True)
        limits = ContainerLimits(pause_after=0.1, remove_after=600)
        async with contained(docker_engine, short_path / "h", shell, limits=limits, extras=extras) as rig:
            project = project_in(short_path / "project")
            place = Path(project.path)
            session = await rig.begin(SessionId(rig.house.mint()), "shell", project, mode=Mode.ACCEPT_EDITS)
            assert (await rig.say(session, SERVER_LIKE)).text == "left\n"
            first = await rig.container(session)
            await grows(place / "beat")
            (place / "plant").touch()
            await until((place / "planted").exists, 30)
            await until(lambda: not (place / ".envrc").exists(), 30)
            held = await until(lambda: [file for event in rig.events(session) for file in held_files(event, unreported=True)], 30)
            assert [Path(file.path).name for file in held] == [".envrc"]
            # The next turn takes up the same container, with what runs in it.
            assert (await rig.say(session, "echo again")).text == "again\n"
            assert await rig.container(session) == first
            await grows(place / "beat")
            record = rig.folders(session).orientation.with_name("watched.json")
            assert record.exists(), "it is watched as long as something may run"
            await rig.agent.sleep(session)
            await until(lambda: not record.exists(), 30)

    run(story())
