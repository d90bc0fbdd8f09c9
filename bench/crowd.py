"""Homes that have grown: ten thousand sessions of several channels, or one session with a hundred thousand events."""

import io
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from bench.measuring import Figure, Seconds, Target, interleave
from bench.sample import BORN, YOU, name_of, open_house, open_store, opened, turn, working_turn, write_session
from curtainwall.channels.web.live.session_hub import window_at
from curtainwall.compose.setup import load_setup
from curtainwall.model import (
    AnyEvent,
    ApprovalAsked,
    ApprovalId,
    Batch,
    CallRequested,
    Cover,
    Digest,
    SessionClosed,
    SessionId,
    SessionOpened,
    TurnEnded,
    TurnStatus,
    Write,
    session_stream,
)
from curtainwall.serve.logs import Logbook
from curtainwall.serve.service import serving

_MANY, _FEW, _EVENTS = 10_000, 10, 100_000
_PORT = 17_880
_AT_ONCE = 250
# Of twenty sessions, one has parked on an ask and ten are closed; the others are idle.
_OF, _CLOSED = 20, 10
_CHANNELS = ("web", "web", "web", "matrix", "local")


async def crowd(home: Path) -> list[Figure]:
    """How long `serve` takes to start with ten thousand sessions beside ten, and a page of a long session beside its whole log."""
    for name, sessions in (("many", _MANY), ("few", _FEW)):
        (home / name).mkdir(mode=0o700)
        (home / name / "config.toml").write_text(f"[web]\nport = {_PORT}\n", encoding="utf-8")
        await write_crowd(home / name, sessions)

    def start_at(name: str) -> Callable[[int], Awaitable[Sequence[Seconds]]]:
        async def start(_: int) -> Sequence[Seconds]:
            os.environ["CURTAINWALL_HOME"] = str(home / name)
            began = time.perf_counter()
            async with serving(load_setup(), Logbook(out=io.StringIO())):
                return [time.perf_counter() - began]

        return start

    starts = await interleave({"many": start_at("many"), "few": start_at("few")}, rounds=5, warm_up=1)
    session = await write_long(home / "long", _EVENTS)
    async with open_house(home / "long") as house:

        async def page(_: int) -> Sequence[Seconds]:
            began = time.perf_counter()
            conversation, recorded = window_at(house.feed, session)
            for it in recorded:
                conversation.take(it)
            return [time.perf_counter() - began]

        async def whole(_: int) -> Sequence[Seconds]:
            began = time.perf_counter()
            assert len(house.feed.read(session_stream(session))) == _EVENTS
            return [time.perf_counter() - began]

        pages = await interleave({"page": page, "whole": whole}, rounds=3, warm_up=1)
    many, few, window = starts["many"], starts["few"], pages["page"]
    return [
        Figure("serve with 10,000 sessions", many.p50, "s", few.p50, "with ten sessions", many.to(few), Target(2)),
        Figure(
            "page of 100,000 events",
            window.p50 * 1e3,
            "ms",
            pages["whole"].p50 * 1e3,
            "reading all of them",
            window.to(pages["whole"]),
            Target(250),
        ),
    ]


async def write_crowd(home: Path, sessions: int) -> None:
    """Write so many sessions, each with one turn."""
    async with open_store(home) as store:
        for first in range(0, sessions, _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, sessions))
            await store.log.append(Batch(tuple(Write(session_stream(SessionId(name_of(it))), 0, _events(it)) for it in numbers)))


async def write_long(home: Path, events: int) -> SessionId:
    """Write one idle session with so many events and return its name."""
    session = SessionId(name_of(0))
    begun, ready = opened(session, "/projects/long")
    assert isinstance(begun, SessionOpened)
    async with open_store(home) as store:
        first = iter((begun.model_copy(update={"channel": "web"}), ready))
        written = await write_session(store, session, first)
        turns = (event for number in range(events // 12 + 1) for event in working_turn(number, "/projects/long"))
        await write_session(store, session, _first(turns, events - written))
    return session


def _first(events: Iterator[AnyEvent], most: int) -> Iterator[AnyEvent]:
    return (event for _, event in zip(range(most), events, strict=False))


def _events(number: int) -> tuple[AnyEvent, ...]:
    session, at = SessionId(name_of(number)), BORN + number
    begun, ready = opened(session, f"/projects/{session}", at)
    assert isinstance(begun, SessionOpened)
    begun = begun.model_copy(update={"channel": _CHANNELS[number % len(_CHANNELS)]})
    match number % _OF:
        case 0:
            told, started, _, _, requested, *_, ended = working_turn(number, "/elsewhere")
            assert isinstance(requested, CallRequested)
            assert isinstance(ended, TurnEnded)
            asked = ApprovalAsked(
                at=at,
                approval=ApprovalId(name_of(number)),
                call=requested.call,
                digest=requested.subject.digest,
                covers=tuple(Cover(role=it.role, value=it.value, rules=()) for it in requested.subject.resources),
                shown=f"Read part-{number}.py",
                policy=Digest("0" * 64),
            )
            parked = ended.model_copy(update={"status": TurnStatus.WAITING, "waits_for": (requested.call,)})
            return begun, ready, told, started, requested, asked, parked
        case many if many <= _CLOSED:
            return begun, ready, *turn(number), SessionClosed(at=at, reason="done", by=YOU)
        case _:
            return begun, ready, *turn(number)
