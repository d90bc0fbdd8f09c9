"""What one more turn costs in a short and in a long conversation, beside rewriting the whole history as JSON."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path

from bench.bare import BareLog
from bench.disk import settled_size
from bench.histories import JsonHistory
from bench.measuring import Figure, Rounds, Seconds, Side, Target, clock, interleave
from bench.sample import CLOCK, YOU, answered, name_of, open_house, said, turn, write_talk
from curtainwall.model import (
    SYSTEM,
    AgentSpoke,
    AnyEvent,
    EndTurn,
    MessageId,
    RecordProgress,
    SendMessage,
    SessionId,
    StartTurn,
    TurnId,
    TurnStatus,
)
from curtainwall.runtime import Actor, SessionRegistry

_SHORT, _LONG = 100, 10_000
_ROUNDS, _WARM_UP, _EACH = 9, 2, 30

Commands = tuple[SendMessage, StartTurn, RecordProgress, EndTurn]
Persist = Callable[[SessionRegistry, Actor, SessionId, Commands], Awaitable[None]]


async def turning(home: Path) -> list[Figure]:
    """Turns at 100 and at 10,000 messages, and how the file grows."""
    ours = home / "ours"
    numbers = count(_LONG)
    async with open_house(ours) as house:
        workspace = str(home / "workspace")
        long = SessionId("long")
        await write_talk(house.stores, long, workspace, _LONG)
        # A round of turns would make a short conversation a long one, so each round has its own.
        shorts = [SessionId(f"short{number}") for number in range(_WARM_UP + _ROUNDS)]
        for session in shorts:
            await write_talk(house.stores, session, workspace, _SHORT)

        def side(persist: Persist, sessions: Sequence[SessionId]) -> Side:
            async def run(number: int) -> Sequence[Seconds]:
                session = sessions[number % len(sessions)]
                async with house.hold(session) as actor:
                    return [await _time(partial(persist, house, actor, session, _commands(next(numbers)))) for _ in range(_EACH)]

            return run

        bare = BareLog(home / "bare.db")
        history = JsonHistory(home / "long.json", _LONG)
        brief = JsonHistory(home / "short.json", _SHORT)

        def rewrite(peer: JsonHistory, times: int) -> Side:
            async def run(_: int) -> Sequence[Seconds]:
                return [await _time(partial(_rewrite, peer, next(numbers))) for _ in range(times)]

            return run

        async def commit_bare(_: int) -> Sequence[Seconds]:
            return [await _time(partial(_commit_two, bare, turn(next(numbers)))) for _ in range(_EACH)]

        took = await interleave(
            {
                "long": side(_at_once, [long]),
                "short": side(_at_once, shorts),
                "rewrite": rewrite(history, 3),
                "brief": rewrite(brief, 3),
                "two": side(_in_two, [long]),
                "four": side(_one_by_one, [long]),
                "bare": commit_bare,
            },
            rounds=_ROUNDS,
            warm_up=_WARM_UP,
        )
        bare.close()
        figures = _figures(took)
        figures.append(await _growth(house, ours / "curtainwall.db", long, numbers))
    return figures


def _figures(took: dict[str, Rounds]) -> list[Figure]:
    long, short, two = took["long"], took["short"], took["two"]
    rewrite = "whole-history JSON rewrite"
    return [
        Figure(
            "turn at 10,000 messages",
            long.p50 * 1e3,
            "ms",
            took["rewrite"].p50 * 1e3,
            rewrite,
            long.to(took["rewrite"]),
            Target(0.8),
            "message, start, text and end submitted together through house and actor: one durable write for the turn, as the peer has it",
        ),
        Figure("turn at 100 messages", short.p50 * 1e3, "ms", took["brief"].p50 * 1e3, rewrite, short.to(took["brief"]), Target(0.8)),
        Figure(
            "turn, 10,000 to 100",
            long.p50 * 1e3,
            "ms",
            short.p50 * 1e3,
            "ours at 100",
            long.to(short),
            Target(1.25, of="ratio"),
            "flat means that this ratio is 1 but for noise",
        ),
        Figure(
            "turn in two commits",
            two.p50 * 1e3,
            "ms",
            took["bare"].p50 * 1e3,
            "the same events, bare",
            two.to(took["bare"]),
            Target(0.8),
            "at 10,000: message and start before the model works, text and end after it, as a live turn has them; held to the same target",
        ),
        Figure(
            "turn in four commits", took["four"].p50 * 1e3, "ms", note="at 10,000: the same four commands, each awaited before the next"
        ),
    ]


async def _growth(house: SessionRegistry, database: Path, session: SessionId, numbers: "count[int]") -> Figure:
    """Return by how much the file grows for what was said, once the write-ahead log is folded in."""
    turns = 1_000
    payload = sum(len(said(number).encode()) + len(answered(number).encode()) for number in range(turns))
    before = settled_size(database)
    async with house.hold(session) as actor:
        for _ in range(turns):
            await _in_two(house, actor, session, _commands(next(numbers)))
    grown = settled_size(database) - before
    return Figure(
        "file growth",
        grown / turns,
        "B/turn",
        payload / turns,
        "what was said",
        grown / payload,
        Target(3, of="ratio"),
        "database after a checkpoint, 1,000 turns of 200 B said and 800 B answered; with hashes, inbox keys and lists",
    )


async def _time(work: Callable[[], Awaitable[None]]) -> Seconds:
    began = clock()
    await work()
    return clock() - began


async def _commit_two(bare: BareLog, events: Sequence[AnyEvent]) -> None:
    bare.commit(events[:2])
    bare.commit(events[2:])


async def _rewrite(history: JsonHistory, number: int) -> None:
    history.persist_turn(number)


async def _in_two(house: SessionRegistry, actor: Actor, session: SessionId, commands: Commands) -> None:
    """Persist a turn as it happens: what was said and that work begins, then what came of it."""
    message, start, text, end = commands
    await asyncio.gather(house.send(session, message), actor.submit(start))
    await asyncio.gather(actor.submit(text), actor.submit(end))


async def _at_once(house: SessionRegistry, actor: Actor, session: SessionId, commands: Commands) -> None:
    message, *rest = commands
    await asyncio.gather(house.send(session, message), *(actor.submit(command) for command in rest))


async def _one_by_one(house: SessionRegistry, actor: Actor, session: SessionId, commands: Commands) -> None:
    message, *rest = commands
    await house.send(session, message)
    for command in rest:
        await actor.submit(command)


def _commands(number: int) -> Commands:
    name = TurnId(name_of(number))
    spoke = AgentSpoke(at=CLOCK.now(), turn=name, text=answered(number))
    return (
        SendMessage(by=YOU, message=MessageId(name_of(number)), text=said(number)),
        StartTurn(by=SYSTEM, turn=name),
        RecordProgress(by=SYSTEM, events=(spoke,)),
        EndTurn(by=SYSTEM, turn=name, status=TurnStatus.DONE),
    )
