"""How long it takes to be back: a conversation folded from disk, and a very long log."""

import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from bench.histories import JsonHistory
from bench.measuring import Figure, Seconds, Side, Target, clock, interleave, repeat_plainly
from bench.sample import CLOCK, open_store, opened, shipped_rules, turn, working_turn, write_session, write_talk
from curtainwall.model import SessionId, session_stream
from curtainwall.runtime import SessionFolds, SessionRegistry
from curtainwall.runtime.sessions.folds import SNAPSHOT_EVERY
from curtainwall.session import FOLD_VERSION, fold, lift

_MESSAGES = {10_000: 40, 100_000: 60}
"""Messages of a conversation, and the milliseconds in which it has to be back."""
_TURNS_SINCE = (SNAPSHOT_EVERY - 1) // 4
"""Turns since the last snapshot: as many as there can be after a session was let go."""
_EVENTS = 200_000


async def resuming(home: Path) -> list[Figure]:
    """Conversations taken up again: lease, snapshot, and the entries after it; and the first one once more, without a snapshot."""
    figures: list[Figure] = []
    for messages, target in _MESSAGES.items():
        figures += await _resuming(home / str(messages), messages, Target(target), with_whole=not figures)
    return figures


async def _resuming(home: Path, messages: int, target: Target, *, with_whole: bool) -> list[Figure]:
    session, rules = SessionId("long"), shipped_rules(home)
    async with open_store(home) as store:
        history = JsonHistory(home / "long.json", messages)
        before = messages - _TURNS_SINCE * 2
        await write_talk(store, session, str(home / "workspace"), before)
        snapshots = SessionFolds(store.log, store.snapshots)

        async def resume(folds: SessionFolds, expected: int) -> Seconds:
            async with SessionRegistry(store, CLOCK, lambda: rules, folds=folds) as house:
                began = clock()
                async with house.hold(session) as actor:
                    took = clock() - began
                    assert actor.state.totals.messages == expected // 2
                    return took

        await resume(snapshots, before)
        assert store.snapshots is not None
        since = (event for number in range(_TURNS_SINCE) for event in turn(before // 2 + number))
        events = await write_session(store, session, since)

        async def ours(_: int) -> Sequence[Seconds]:
            return [await resume(snapshots, messages) for _ in range(3)]

        async def whole(_: int) -> Sequence[Seconds]:
            return [await resume(SessionFolds(store.log), messages)]

        async def peer(_: int) -> Sequence[Seconds]:
            return repeat_plainly(3, history.load)

        sides: dict[str, Side] = {"ours": ours, "peer": peer}
        took = await interleave({**sides, "whole": whole} if with_whole else sides, rounds=9)
        snapshot = store.snapshots.load(session_stream(session), FOLD_VERSION)
        assert snapshot is not None
        assert snapshot.end.seq == events - 4 * _TURNS_SINCE
    name, loaded, since_then = "json.loads of the history", took["peer"].p50 * 1e3, 4 * _TURNS_SINCE
    note = f"a house takes the session up: lease, snapshot, and {since_then} of {events:,} entries read, decoded, checked and folded"
    figures = [
        Figure(f"resume {messages:,} messages", took["ours"].p50 * 1e3, "ms", loaded, name, took["ours"].to(took["peer"]), target, note)
    ]
    if with_whole:
        note = "the same where snapshots are switched off: every entry is read, decoded and folded"
        ratio = took["whole"].to(took["peer"])
        figures.append(Figure(f"resume {messages:,} / no snapshot", took["whole"].p50 * 1e3, "ms", loaded, name, ratio, note=note))
    return figures


async def folding(home: Path) -> list[Figure]:
    """A log of 200,000 events, as a session that works makes them."""
    session = SessionId("huge")
    stream = session_stream(session)
    workspace = str(home / "workspace")
    async with open_store(home / "ours") as store:
        await write_session(store, session, iter(opened(session, workspace)))
        turns = (event for number in count() for event in working_turn(number, workspace))
        seq = await write_session(store, session, (event for event, _ in zip(turns, range(_EVENTS - 2), strict=False)))
        assert seq == _EVENTS
        lines = home / "events.jsonl"
        with lines.open("wb") as file:
            file.writelines(entry.payload + b"\n" for entry in store.log.read(stream))

        async def ours(_: int) -> Sequence[Seconds]:
            began = clock()
            state = fold(map(lift, store.log.read(stream)))
            took = clock() - began
            assert state.totals.events == _EVENTS
            return [took]

        async def peer(_: int) -> Sequence[Seconds]:
            began = clock()
            with lines.open("rb") as file:
                read = sum(1 for line in file if json.loads(line))
            took = clock() - began
            assert read == _EVENTS
            return [took]

        took = await interleave({"ours": ours, "peer": peer}, rounds=5, warm_up=1)
    return [
        Figure(
            "fold 200,000 events",
            took["ours"].p50,
            "s",
            took["peer"].p50,
            "json.loads of each line",
            took["ours"].to(took["peer"]),
            Target(2),
            "read from disk, decoded, checked and folded; turns with model requests, calls and streamed text",
        )
    ]
