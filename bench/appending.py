"""How long a durable append takes, alone and among twenty, beside bare commits of the same bytes to the same disk."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from bench.bare import BareLog
from bench.measuring import Figure, Seconds, Target, clock, interleave
from bench.sample import BORN, YOU, answered, name_of, open_store
from curtainwall.model import AnyEvent, Batch, MessageAccepted, MessageId, SessionId, StreamId, Write, session_stream
from curtainwall.store import SqliteStore

_WRITERS = 20
_EACH = 100


async def appending(home: Path) -> list[Figure]:
    """One writer, one event an append."""
    stream = session_stream(SessionId("alone"))
    bare = BareLog(home / "bare.db")
    async with open_store(home / "ours") as store:

        async def ours(number: int) -> Sequence[Seconds]:
            first, took = number * _EACH, list[Seconds]()
            for seq, event in enumerate(_events(first), start=first):
                began = clock()
                await store.log.append(Batch((Write(stream, seq, (event,)),)))
                took.append(clock() - began)
            return took

        async def peer(number: int) -> Sequence[Seconds]:
            took = list[Seconds]()
            for event in _events(number * _EACH):
                began = clock()
                bare.commit([event])
                took.append(clock() - began)
            return took

        took = await interleave({"ours": ours, "peer": peer}, rounds=15)
    bare.close()
    return [
        Figure(
            "durable append",
            took["ours"].p50 * 1e3,
            "ms",
            took["peer"].p50 * 1e3,
            "bare FULL commit",
            took["ours"].to(took["peer"]),
            Target(2.5, of="ratio"),
            "one event of 0.9 kB: encoded, hashed, sealed and committed, awaited on the loop; the peer encodes and commits the same bytes",
        )
    ]


async def many_writers(home: Path) -> list[Figure]:
    """Twenty writers at once, each on a stream of its own, one event an append."""
    bare = BareLog(home / "bare.db")
    async with open_store(home / "ours") as store:

        async def ours(number: int) -> Sequence[Seconds]:
            streams = [session_stream(SessionId(f"r{number}w{writer}")) for writer in range(_WRITERS)]
            events = [_events(writer * _EACH) for writer in range(_WRITERS)]
            began = clock()
            await asyncio.gather(*(_write(store, stream, those) for stream, those in zip(streams, events, strict=True)))
            return [(clock() - began) / (_WRITERS * _EACH)]

        async def peer(_: int) -> Sequence[Seconds]:
            events = [_events(writer * _EACH) for writer in range(_WRITERS)]
            began = clock()
            for together in zip(*events, strict=True):
                bare.commit(together)
            return [(clock() - began) / (_WRITERS * _EACH)]

        took = await interleave({"ours": ours, "peer": peer}, rounds=9)
    bare.close()
    ours_rate, peer_rate = 1 / took["ours"].p50, 1 / took["peer"].p50
    return [
        Figure(
            "20 writers",
            ours_rate,
            "events/s",
            peer_rate,
            "bare, 20 a commit",
            1 / took["ours"].to(took["peer"]),
            Target(20_000, way="at least"),
            f"{_WRITERS} tasks on {_WRITERS} streams, each awaits every append of one 0.9 kB event before the next; {_EACH} each a round",
        )
    ]


async def _write(store: SqliteStore, stream: StreamId, events: Sequence[AnyEvent]) -> None:
    for seq, event in enumerate(events):
        await store.log.append(Batch((Write(stream, seq, (event,)),)))


def _events(first: int) -> list[AnyEvent]:
    """Return the events of one writer's round; they are made before the clock runs."""
    return [
        MessageAccepted(at=BORN + number, message=MessageId(name_of(number)), text=answered(number), by=YOU)
        for number in range(first, first + _EACH)
    ]
