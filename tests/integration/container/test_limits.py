"""What an agent in a container may use up: memory and disk, and that each is said when it is."""

import asyncio
import os
from pathlib import Path

import pytest

from curtainwall.agents.external.container import ContainerLimits, PlainAgent
from curtainwall.model import SessionId, TurnStatus, Workspace
from tests.support.contained import contained
from tests.support.covers import covers
from tests.support.docker_engine import DockerEngine
from tests.support.talking import run

SHELL = PlainAgent("shell", ("sh",))
MIB = 1024**2
GREEDY = "node -e 'const kept = []; for (;;) kept.push(Buffer.alloc(8e6, 1))'"
SMALL = "96 MB; `memory` in [containers]"


@covers("container.memory-is-said")
@pytest.mark.parametrize("script", [f"echo begun; exec {GREEDY}", f"echo begun; {GREEDY}; exit $?"], ids=["itself", "a child"])
def test_an_agent_whose_memory_ran_out_is_told_so_with_the_limit(docker_engine: DockerEngine, short_path: Path, script: str) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, SHELL, limits=ContainerLimits(memory=96 * MIB)) as rig:
            session = await rig.open("shell")
            turn = await rig.say(session, script)
            assert turn.end.status is TurnStatus.FAILED
            assert turn.end.failure == f"shell used up the memory of its container ({SMALL})"
            killed = await rig.say(session, "echo begun; kill -s KILL $$")
            assert killed.end.failure == "shell ended with exit code 137", "what somebody else killed is not said to be short of memory"
            assert (await rig.say(session, "echo again")).text == "again\n"

    run(story())


@covers("container.memory-is-said")
@pytest.mark.parametrize(("code", "failure"), [(0, ""), (1, "shell ended with exit code 1")], ids=["goes on", "fails"])
def test_an_agent_that_outlives_a_program_without_memory_leaves_a_note_with_the_limit(
    docker_engine: DockerEngine, short_path: Path, code: int, failure: str
) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, SHELL, limits=ContainerLimits(memory=96 * MIB)) as rig:
            session = await rig.open("shell")
            turn = await rig.say(session, f"{GREEDY} 2>/dev/null; echo went on; exit {code}")
            assert turn.end.failure == failure
            assert f"[a program in the container was killed because the container's memory was used up ({SMALL})]" in turn.text
            assert (await rig.say(session, "echo again")).text == "again\n", "it is said once"

    run(story())


@covers("container.memory-is-said")
def test_a_container_whose_memory_ran_out_while_it_rested_is_told_of_with_the_limit(docker_engine: DockerEngine, short_path: Path) -> None:
    # The kernel takes the biggest, and the container ends with its own process.
    own = "$(ps -C socat -o pid=,args= | grep -e ' -u ' | tr -s ' ' | sed 's/^ //' | cut -d' ' -f1)"
    script = f"({GREEDY}; kill -s KILL {own}) >/dev/null 2>&1 </dev/null & echo left"

    async def story() -> None:
        async with contained(docker_engine, short_path, SHELL, limits=ContainerLimits(memory=96 * MIB)) as rig:
            session = await rig.open("shell")
            assert (await rig.say(session, script)).text == "left\n"
            await rig.becomes(session, "exited")
            assert f"the container used up its memory ({SMALL}) while it rested" in await rig.agent.wake(session)
            assert "used up its memory" in (await rig.say(session, "echo again")).text

    run(story())


FILL = "echo begun; mkdir -p {0}/d; n=0; while :; do n=$((n + 1)); head -c 4000000 /dev/zero >{0}/d/$n; sleep 0.02; done"


@covers("container.disk-is-limited")
@pytest.mark.parametrize("place", ["/workspace", "/home/agent"])
def test_an_agent_that_keeps_too_much_on_disk_is_stopped_with_the_limit(docker_engine: DockerEngine, short_path: Path, place: str) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, SHELL, limits=ContainerLimits(disk=40 * MIB, turn=60)) as rig:
            session = await rig.open("shell")
            turn = await rig.say(session, FILL.format(place))
            assert turn.end.status is TurnStatus.FAILED
            assert "the disk space of the session is used up" in turn.end.failure
            assert "more than 40 MB" in turn.end.failure
            assert "raise `disk` in [containers]" in turn.end.failure
            assert str(rig.folders(session).workspace) in turn.end.failure
            assert await rig.engine.list_containers(session) == [], "nothing goes on in there"
            again = await rig.say(session, "echo begun; sleep 60")
            assert "the disk space of the session is used up" in again.end.failure, "until somebody makes room"
            folders = rig.folders(session)
            inner = {"/workspace": folders.workspace, "/home/agent": folders.state}[place] / "d"
            for path in inner.iterdir():
                path.unlink()
            assert (await rig.say(session, "echo again")).text == "again\n"

    run(story())


@covers("container.disk-is-limited")
def test_what_an_agent_left_running_is_ended_where_it_fills_the_disk_after_the_turn(docker_engine: DockerEngine, short_path: Path) -> None:
    async def story() -> None:
        limits = ContainerLimits(disk=40 * MIB, turn=60, pause_after=600)
        async with contained(docker_engine, short_path, SHELL, limits=limits) as rig:
            session = await rig.open("shell")
            filling = f"(sleep 1; {FILL.format('/workspace')}) >/dev/null 2>&1 </dev/null & echo left"
            assert (await rig.say(session, filling)).text == "left\n"
            async with asyncio.timeout(60):
                while await rig.engine.list_containers(session):  # noqa: ASYNC110 - the engine tells nobody
                    await asyncio.sleep(0.1)
            again = await rig.say(session, "echo begun; sleep 60")
            assert "the disk space of the session is used up" in again.end.failure

    run(story())


@covers("container.disk-is-limited")
@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("n=0; while [ $n -lt 5000 ]; do n=$((n + 1)); : >/workspace/$n; done; sleep 60", "more than 8 MB"),
        ("n=0; while [ $n -lt 140 ]; do n=$((n + 1)); mkdir d; cd d; done; sleep 60", "more than 128 directories lie in each other"),
    ],
    ids=["many empty files", "deep directories"],
)
def test_what_looks_small_or_lies_deep_counts_as_well(docker_engine: DockerEngine, short_path: Path, script: str, told: str) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, SHELL, limits=ContainerLimits(disk=8 * MIB, turn=60)) as rig:
            session = await rig.open("shell")
            assert told in (await rig.say(session, script)).end.failure

    run(story())


@covers("container.disk-is-limited")
def test_in_a_project_only_what_a_turn_adds_counts(docker_engine: DockerEngine, short_path: Path) -> None:
    project = short_path / "project"
    project.mkdir()
    (project / "big").write_bytes(b"x" * 60 * MIB)
    os.chown(project, 1000, 1000)

    async def story() -> None:
        async with contained(docker_engine, short_path / "home", SHELL, limits=ContainerLimits(disk=40 * MIB, turn=60)) as rig:
            session = SessionId(rig.house.mint())
            await rig.begin(session, "shell", Workspace(path=str(project), own=False), "")
            assert (await rig.say(session, "sleep 3; echo one")).text == "one\n"
            turn = await rig.say(session, f"sleep 2; {FILL.format('/workspace')}")
            assert "in this turn the agent added to the project and its home more than 40 MB" in turn.end.failure

    run(story())
