"""How long it takes to be back: a conversation folded from disk, and a very long log."""

import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from bench.histories import JsonHistory
from bench.measuring import Figure, Seconds, Target, clock, interleave, repeat_plainly
from bench.sample import CLOCK, open_store, opened, shipped_rules, working_turn, write_session, write_talk
from curtainwall.model import SessionId, session_stream
from curtainwall.runtime import SessionRegistry
from curtainwall.session import fold, lift

_MESSAGES = 10_000
_EVENTS = 200_000


async def resuming(home: Path) -> list[Figure]:
    """A conversation of 10,000 messages taken up again: lease, read, lift, fold."""
    session, rules = SessionId("long"), shipped_rules(home)
    history = JsonHistory(home / "long.json", _MESSAGES)
    async with open_store(home / "ours") as store:
        events = await write_talk(store, session, str(home / "workspace"), _MESSAGES)

        async def ours(_: int) -> Sequence[Seconds]:
            took: list[Seconds] = []
            for _ in range(3):
                async with SessionRegistry(store, CLOCK, lambda: rules) as house:
                    began = clock()
                    async with house.hold(session) as actor:
                        took.append(clock() - began)
                        assert actor.state.totals.messages == _MESSAGES // 2
            return took

        async def peer(_: int) -> Sequence[Seconds]:
            return repeat_plainly(3, history.load)

        took = await interleave({"ours": ours, "peer": peer}, rounds=9)
    return [
        Figure(
            "resume 10,000 messages",
            took["ours"].p50 * 1e3,
            "ms",
            took["peer"].p50 * 1e3,
            "json.loads of the history",
            took["ours"].to(took["peer"]),
            Target(60),
            f"a house takes the session up: lease, {events:,} entries read from disk, decoded, checked and folded (5,000 turns)",
        )
    ]


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
