"""What an agent in a container leaves running in a project, where the user wants that to go on after the turn."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from curtainwall.agents.external.container import ContainerExtras, ContainerLimits, PlainAgent
from curtainwall.model import Mode, SessionId, Workspace
from tests.integration.brokered.conftest import docker_engine, short_path
from tests.support.contained import contained
from tests.support.covers import covers
from tests.support.docker_engine import DockerEngine
from tests.support.houses import until
from tests.support.talking import run

__all__ = ["docker_engine", "short_path"]

# It plants the file again as soon as it is gone, and stops when it is told to.
PLANTS = """
setsid sh -c 'while [ ! -e stop ]; do [ -e .envrc ] || { echo "exec evil" >.envrc; echo x >>planted; }; done' >/dev/null 2>&1 &
until [ -e planted ]; do :; done; echo left
"""


@asynccontextmanager
async def without_freezer(engine: DockerEngine, place: Path) -> AsyncGenerator[DockerEngine]:
    """Lend the engine through a socket behind which it fails to freeze, as it does where the kernel has no freezer."""
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: asyncio.StreamWriter | None) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                if back is not None and b"/pause" in data.split(b"\r\n", 1)[0]:
                    words = b'{"message": "cannot pause container: freezer not supported"}'
                    back.write(b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n")
                    back.write(b"Content-Length: %d\r\n\r\n%b" % (len(words), words))
                    continue
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onward = await asyncio.open_unix_connection(str(engine.socket))
        tasks.add(asyncio.create_task(pump(reader, onward, writer)))
        tasks.add(asyncio.create_task(pump(there, writer, None)))

    server = await asyncio.start_unix_server(serve, str(place))
    try:
        yield DockerEngine(place)
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@covers("container.kept")
@pytest.mark.parametrize("freezes", [True, False])
def test_what_goes_on_after_a_turn_passes_nothing_off_as_the_users_when_the_next_begins(
    docker_engine: DockerEngine, short_path: Path, freezes: bool
) -> None:
    place = short_path / "project"
    place.mkdir()
    if os.getuid() == 0:
        os.chown(place, 1000, 1000)

    async def story() -> None:
        shell, extras = PlainAgent("shell", ("sh",)), ContainerExtras(keeps_running=True)
        limits = ContainerLimits(pause_after=0.1, remove_after=600)
        async with without_freezer(docker_engine, short_path / "d") as unable:
            engine = docker_engine if freezes else unable
            async with contained(engine, short_path / "h", shell, limits=limits, extras=extras) as rig:
                project = Workspace(path=str(place), own=False)
                session = await rig.begin(SessionId(rig.house.mint()), "shell", project, mode=Mode.ACCEPT_EDITS)
                assert "left\n" in (await rig.say(session, PLANTS)).text
                for _ in range(3):
                    assert "again\n" in (await rig.say(session, "echo again")).text
                (place / "stop").touch()
                await rig.say(session, "echo over")
                await rig.agent.sleep(session)
                record = rig.folders(session).orientation.with_name("watched.json")
                await until(lambda: not record.exists(), 30)
                assert not (place / ".envrc").exists(), "it runs as soon as somebody enters the directory"

    run(story())
