"""What happens to a container while it rests, and nobody looks: it is told with the next message, and what is ours stays ours."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from curtainwall.agents.external.container import ContainerLimits, PlainAgent
from curtainwall.model import TurnStatus
from tests.support.contained import contained
from tests.support.covers import covers
from tests.support.docker_engine import DockerEngine
from tests.support.talking import run

SHELL = PlainAgent("shell", ("sh",))
GONE = "what still ran in it is gone, and the agent goes on in a new one"


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("kill", "the container was ended by somebody else while it rested (exit code 137)"),
        ("rm", "the container was removed by somebody else while it rested"),
    ],
)
@covers("container.ended-at-rest")
def test_a_container_that_somebody_ended_while_it_rested_is_told_of(
    docker_engine: DockerEngine, short_path: Path, word: str, told: str
) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path, SHELL) as rig:
            session = await rig.open("shell")
            assert (await rig.say(session, "echo one | tee /tmp/kept")).text == "one\n"
            docker_engine.docker(*(("rm", "-f") if word == "rm" else ("kill",)), await rig.container(session))
            assert await rig.agent.wake(session) == f"{told}; a new one starts with the next message"
            turn = await rig.say(session, "ls /tmp; echo two")
            assert turn.is_done
            assert turn.text == f"[{told}; {GONE}]\ntwo\n", "once, and then the agent goes on"
            assert (await rig.say(session, "echo three")).text == "three\n"

    run(story())


class Door:
    """A socket that leads to the engine while it is open."""

    def __init__(self, engine: DockerEngine, place: Path) -> None:
        self._engine, self._place = engine, place
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.refuses = False
        """It breaks off where a container is to be ended."""
        self.refused = asyncio.Event()

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, str(self._place))

    async def shut(self) -> None:
        assert self._server is not None
        self._server.close()
        self._place.unlink(missing_ok=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(str(self._engine.socket))
        for ways in ((reader, back), (there, writer)):
            self._tasks.add(asyncio.create_task(self._pump(*ways)))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                wish = data.splitlines()[0]
                if self.refuses and (wish.startswith(b"DELETE ") or b"/kill" in wish):
                    self.refused.set()
                    return
                writer.write(data)
                await writer.drain()
        finally:
            writer.transport.abort()


@asynccontextmanager
async def door_to(engine: DockerEngine, place: Path) -> AsyncGenerator[tuple[Door, DockerEngine]]:
    door = Door(engine, place)
    await door.open()
    try:
        yield door, DockerEngine(place)
    finally:
        await door.shut()


@covers("container.engine-gone-at-rest")
def test_an_engine_that_does_not_answer_while_a_container_rests_is_told_and_loses_nothing(
    docker_engine: DockerEngine, short_path: Path
) -> None:
    async def story() -> None:
        async with (
            door_to(docker_engine, short_path / "d") as (door, engine),
            contained(engine, short_path, SHELL, limits=ContainerLimits(pause_after=0.1, remove_after=600)) as rig,
        ):
            session = await rig.open("shell")
            assert (await rig.say(session, "echo one | tee /tmp/kept")).text == "one\n"
            await door.shut()
            assert "it cannot be told whether its container is there: the Docker engine does not answer" in await rig.agent.wake(session)
            turn = await rig.say(session, "echo two")
            assert turn.end.status is TurnStatus.FAILED
            assert "the Docker engine does not answer" in turn.end.failure
            await door.open()
            assert (await rig.say(session, "cat /tmp/kept")).text == "two\none\n", "the message was kept, and so was the container"

    run(story())


@covers("container.engine-gone-at-rest")
def test_a_container_that_could_not_be_removed_in_its_time_is_removed_when_the_engine_is_back(
    docker_engine: DockerEngine, short_path: Path
) -> None:
    async def story() -> None:
        async with (
            door_to(docker_engine, short_path / "d") as (door, engine),
            contained(engine, short_path, SHELL, limits=ContainerLimits(pause_after=0.1, remove_after=0.2)) as rig,
        ):
            session = await rig.open("shell")
            door.refuses = True
            assert (await rig.say(session, "echo one")).text == "one\n"
            await asyncio.wait_for(door.refused.wait(), 60)
            assert await rig.engine.list_containers(session)
            door.refuses = False
            await rig.becomes(session, "gone")

    run(story())
