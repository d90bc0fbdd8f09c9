"""A second process on a home: it says what it does on stdout, one line each, and waits for lines on stdin."""

import asyncio
import inspect
import os
import resource
import sys
from pathlib import Path

from curtainwall.model import Conflict, Consumed, CurtainwallError, Outcome, Post, StreamId
from curtainwall.store import SqliteStore
from tests.support.stores import Batch, StillClock, Write, batch, everything_audited, is_writing, message, spoke, writers_of


def say(line: object) -> None:
    print(line, flush=True)


def hear() -> str:
    return sys.stdin.readline().strip()


def hold(home: Path, stream: StreamId) -> None:
    """Take a lease and keep it until told to let go, or killed."""
    store = SqliteStore.open(home, StillClock())
    lease = store.leases.take(stream)
    say("held" if lease else "refused")
    hear()
    if lease:
        lease.release()
    say("released")
    hear()


async def append(home: Path, stream: StreamId) -> None:
    """Append one event for each line that is heard."""
    async with SqliteStore.open(home, StillClock()) as store:
        say("ready")
        while text := await asyncio.to_thread(hear):
            end = store.log.head(stream)
            if text == "post":
                await store.inbox.post(Post(stream, f"key {end}", message()))
            else:
                await store.log.append(batch(stream, end, spoke(text)))
            say("done")


async def append_apart(home: Path, stream: StreamId) -> None:
    """Append without end, and say when a process of its own does the writing."""
    async with SqliteStore.open(home, StillClock()) as store:
        store.allow_writer_process(crowded=0)
        end = 0
        while not any(map(is_writing, writers_of(os.getpid()))):
            await store.log.append(batch(stream, end, spoke(f"{end}")))
            end += 1
        say("apart")
        while True:
            await store.log.append(batch(stream, end, spoke(f"{end}")))
            end += 1


async def append_until_alone(home: Path, stream: StreamId) -> None:
    """Say which code this is, wait for a word, and append until a process that should write was started and gave up."""
    async with SqliteStore.open(home, StillClock()) as store:
        store.allow_writer_process(crowded=0)
        say(inspect.getfile(SqliteStore))
        hear()
        end, started = 0, False
        while not started or writers_of(os.getpid()):
            await store.log.append(batch(stream, end, spoke(f"{end}")))
            end += 1
            started = started or bool(writers_of(os.getpid()))
    say("alone")


async def race(home: Path, stream: StreamId, count: str, name: str) -> None:
    """Append many events against whoever else does, and decide the same commands as they do; say how many of each were won."""
    won = 0
    async with SqliteStore.open(home, StillClock()) as store:
        say("ready")
        await asyncio.to_thread(hear)
        written = 0
        while written < int(count):
            end = store.log.head(stream)
            try:
                consumed = (Consumed(stream, f"command {end}", Outcome(end + 1)),)
                await store.log.append(Batch(writes=(Write(stream, end, (spoke(f"{name} {written}"),)),), consumed=consumed))
            except Conflict:
                continue
            written += 1
            won += 1
    say(won)


async def endless(home: Path, stream: StreamId) -> None:
    """Append without end and say after each commit how far the log is, until killed."""
    async with SqliteStore.open(home, StillClock()) as store:
        end = store.log.head(stream)
        while True:
            ends = await store.log.append(batch(stream, end, spoke(f"entry {end + 1}"), spoke("and its twin")))
            end = ends[stream]
            say(end)


async def audited(home: Path, stream: StreamId) -> None:
    """Append a session's script in one go and die at once, without closing anything."""
    store = SqliteStore.open(home, StillClock())
    await store.log.append(batch(stream, 0, *everything_audited()))
    say("committed")
    hear()


async def limited(home: Path, stream: StreamId, size: str) -> None:
    """Append until no file may grow any more; then lift the limit and go on."""
    async with SqliteStore.open(home, StillClock()) as store:
        await store.log.append(batch(stream, 0, spoke("before")))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), hard))
        acknowledged = await until_refused(store, stream)
        again = await refusal(store, stream, acknowledged)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        say(f"then {again}")
        await store.log.append(batch(stream, acknowledged, spoke("after")))
        say(f"went on: {store.log.head(stream) == acknowledged + 1}, chain: {store.verify()}")


async def full(home: Path, stream: StreamId, ballast: str) -> None:
    """Append until the disk is full; then make room and go on."""
    async with SqliteStore.open(home, StillClock()) as store:
        await store.log.append(batch(stream, 0, spoke("before")))
        await asyncio.to_thread(Path(ballast).write_bytes, bytes(400_000))
        acknowledged = await until_refused(store, stream)
        blob = "kept"
        try:
            await store.blobs.put(bytes(500_000))
        except CurtainwallError as error:
            blob = type(error).__name__
        say(f"blob {blob}")
        await asyncio.to_thread(Path(ballast).unlink)
        await store.log.append(batch(stream, acknowledged, spoke("after")))
        say(f"went on: {store.log.head(stream) == acknowledged + 1}, chain: {store.verify()}")


async def readonly(home: Path, stream: StreamId) -> None:
    """Open a home on a disk that takes nothing."""
    try:
        async with SqliteStore.open(home, StillClock()) as store:
            await store.log.append(batch(stream, store.log.head(stream), spoke("never")))
            say("written")
    except CurtainwallError as error:
        say(f"{type(error).__name__}: {error}")


async def until_refused(store: SqliteStore, stream: StreamId) -> int:
    """Append until refused; say why and return how much was acknowledged."""
    end = store.log.head(stream)
    while True:
        try:
            ends = await store.log.append(batch(stream, end, *(spoke("x" * 3000) for _ in range(5))))
        except CurtainwallError as error:
            say(f"{type(error).__name__}: {error}")
            assert store.log.head(stream) == end, "something was half written"
            return end
        end = ends[stream]


async def refusal(store: SqliteStore, stream: StreamId, end: int) -> str:
    """Return how a write is refused."""
    try:
        await store.log.append(batch(stream, end, *(spoke("x" * 3000) for _ in range(40))))
    except CurtainwallError as error:
        return type(error).__name__
    return "written"


def main() -> None:
    role, home, stream, *rest = sys.argv[1:]
    work = globals()[role](Path(home), StreamId(stream), *rest)
    if asyncio.iscoroutine(work):
        asyncio.run(work)


if __name__ == "__main__":
    main()
