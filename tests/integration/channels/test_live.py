"""What happens right now is heard in other processes: bounded, by our own user alone, and never by asking for nonsense."""

import asyncio
import os
import socket
import stat
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from curtainwall.channels.live import LiveEndpoint, RemoteListening
from curtainwall.model import Live, SessionId, StreamId
from curtainwall.runtime import SessionJournal, SystemClock
from curtainwall.session import lift
from curtainwall.store import SqliteStore
from tests.support.covers import covers
from tests.support.houses import house, open_session, run, until

SPEAKER = """
import asyncio, sys
from pathlib import Path
from curtainwall.channels.live import LiveEndpoint
from curtainwall.model import Live, SessionId
from curtainwall.runtime import SessionJournal, SystemClock
from curtainwall.session import lift
from curtainwall.store import SqliteStore
from tests.support.houses import house

async def speak(home, session):
    async with SqliteStore.open(home, SystemClock(), decode=lift) as store, house(store) as opened:
        journal = SessionJournal(opened)
        async with LiveEndpoint(journal, home / "run" / "watch").open(), opened.hold(session) as actor:
            print("ready", flush=True)
            number = 0
            while True:
                journal.publish(session, Live(kind=("text", "doing", "again")[number % 3], text=f"{number} " + "é" * 10_000))
                number += 1
                await asyncio.sleep(0.01)

asyncio.run(speak(Path(sys.argv[1]), SessionId(sys.argv[2])))
"""


@asynccontextmanager
async def speaker(home: Path, session: SessionId) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run another process that owns the session and never stops talking."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SPEAKER, str(home), session, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[3]
    )
    assert child.stdout is not None
    try:
        assert await asyncio.wait_for(child.stdout.readline(), 60) == b"ready\n"
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def take(live: AsyncIterator[Live], count: int) -> list[Live]:
    async with asyncio.timeout(60):
        return [await anext(live) for _ in range(count)]


@covers("live.across-processes")
def test_what_happens_in_a_session_of_another_process_is_heard_here_also_when_that_process_is_another_one_later(
    tmp_path: Path,
) -> None:
    async def check() -> None:
        async with SqliteStore.open(tmp_path, SystemClock(), decode=lift) as store:
            async with house(store) as opened:
                session = await open_session(opened, tmp_path)
            async with house(store) as opened:
                listening = RemoteListening(SessionJournal(opened), opened.feed, store.leases, tmp_path / "run" / "watch")
                async with listening.listen(session) as live:
                    for _ in range(2):
                        async with speaker(tmp_path, session):
                            # The log tells us to look at who owns it.
                            opened.wakes.wake(frozenset({StreamId(f"session:{session}")}))
                            # Each comes in two pieces, and the first one may have begun before.
                            heard = await take(live, 8)
                            assert {said.kind for said in heard} == {"text", "doing", "again"}
                            assert "é" * 1_000 in heard[1].text

    run(check())


class Loud:
    """Listening of somebody who speaks as fast as they can."""

    def __init__(self) -> None:
        self.came = self.left = 0

    @asynccontextmanager
    async def listen(self, session: SessionId) -> AsyncGenerator[AsyncIterator[Live]]:
        self.came += 1

        async def each() -> AsyncIterator[Live]:
            while True:
                await asyncio.sleep(0)
                yield Live(kind="text", text="x" * 50_000)

        try:
            yield each()
        finally:
            self.left += 1


@covers("live.bounded")
def test_a_reader_who_is_too_slow_is_dropped_and_nonsense_gets_no_answer(tmp_path: Path) -> None:
    async def check() -> None:
        loud = Loud()
        async with LiveEndpoint(loud, tmp_path).open():
            (place,) = sockets_in(tmp_path)
            assert stat.S_IMODE(place.stat().st_mode) == 0o600
            assert place.name.startswith(f"{os.getpid()}-")
            for nonsense in (b"../../etc/passwd\n", b"\xff\xfe\n", b"x" * 100_000, b"\n", b"GET / HTTP/1.1\r\n\r\n"):
                reader, writer = await asyncio.open_unix_connection(str(place))
                writer.write(nonsense)
                assert await asyncio.wait_for(_rest(reader), 90) == b""
                writer.close()
            slow = socket.socket(socket.AF_UNIX)
            slow.connect(str(place))
            slow.sendall(b"session1\n")
            await until(lambda: (loud.came, loud.left) == (1, 1), 60)
            slow.close()
        assert sockets_in(tmp_path) == []

    run(check())


def sockets_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(-1)
    except ConnectionResetError:
        return b""


def test_an_endpoint_far_down_opens_while_other_threads_open_files(tmp_path: Path) -> None:
    """Its address leads through a descriptor, which is another file's in the next moment."""
    directory = tmp_path / ("far" * 40) / "watch"
    directory.mkdir(parents=True)
    ended = threading.Event()

    def open_files() -> None:
        while not ended.is_set():
            with open(os.devnull, "rb"):
                pass

    async def check() -> None:
        for _ in range(300):
            async with LiveEndpoint(Loud(), directory).open():
                assert len(os.listdir(directory)) == 1
            assert os.listdir(directory) == []

    others = [threading.Thread(target=open_files) for _ in range(2)]
    for other in others:
        other.start()
    try:
        run(check())
    finally:
        ended.set()
        for other in others:
            other.join()
