"""A home with many sessions: what `serve` opens and loads when it starts, and what it goes on with."""

import os
from collections.abc import Sequence
from pathlib import Path

from curtainwall.model import (
    AnyEvent,
    Batch,
    MessageAccepted,
    MessageId,
    Post,
    SendMessage,
    SessionClosed,
    SessionId,
    SessionQuery,
    SessionReady,
    SessionRow,
    TurnStatus,
    Workspace,
    Write,
    session_stream,
)
from curtainwall.runtime import Stores, SystemClock
from curtainwall.store import SqliteStore
from tests.support.covers import covers
from tests.support.stores import ANN, NOON, asked, opened, requested, run, turn_ended, turn_started
from tests.support.webs import web_at

MANY = 400


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def said(session: str) -> MessageAccepted:
    return MessageAccepted(at=NOON, message=MessageId(f"m of {session}"), text="hello", by=ANN)


def rows_of(store: Stores, prefix: str) -> Sequence[SessionRow]:
    return store.index.sessions(SessionQuery(prefix=prefix))


def write(home: Path, sessions: dict[str, Sequence[AnyEvent]], *posts: Post) -> None:
    async def fill() -> None:
        async with SqliteStore.open(home, SystemClock()) as store:
            begun = {
                name: (opened(name, channel="web", workspace=Workspace(path=str(home.parent), own=False)), SessionReady(at=NOON), *rest)
                for name, rest in sessions.items()
            }
            await store.log.append(Batch(tuple(Write(session_stream(SessionId(name)), 0, events) for name, events in begun.items())))
            for post in posts:
                await store.inbox.post(post)

    run(fill())


@covers("serve.idle-sessions-are-not-loaded")
def test_serve_loads_only_the_sessions_in_which_there_is_something_to_do(tmp_path: Path) -> None:
    home = tmp_path / "cw"
    home.mkdir(mode=0o700)
    parked = (requested(), asked(), turn_ended(TurnStatus.WAITING).model_copy(update={"waits_for": ("c1",)}))
    idle: dict[str, Sequence[AnyEvent]] = {f"idle{number:03}": (said("x"), turn_started(), turn_ended()) for number in range(MANY)}
    idle |= {f"parked{number:03}": (said("x"), turn_started(), *parked) for number in range(MANY)}
    idle |= {f"closed{number:03}": (SessionClosed(at=NOON, reason="done", by=ANN),) for number in range(MANY)}
    busy: dict[str, Sequence[AnyEvent]] = {
        "queued": (said("queued"),),
        "behind": (turn_started(), said("behind"), turn_ended()),
        "working": (said("x"), turn_started()),
        "posted": (),
        # Whoever closed what a crash had left died before it could go on.
        "cutoff": (said("x"), turn_started(), turn_ended(TurnStatus.WAITING)),
    }
    post = Post(session_stream(SessionId("posted")), "k", SendMessage(by=ANN, message=MessageId("mp"), text="hello"))
    write(home, {**idle, **busy}, post)
    before = descriptors()
    with web_at(tmp_path) as web:
        turns = web.served.work.turns
        web.until(lambda: set(busy) <= set(turns.attended))
        web.until(lambda: all(row.status == "ready" for name in busy for row in rows_of(web.served.wired.store, name)))
        assert set(turns.attended) == set(busy), "whoever is at rest is not loaded"
        assert descriptors() - before < 100
        # News of a session that was at rest are enough to have it looked after.
        web.do(web.served.wired.registry.send(SessionId("idle007"), SendMessage(by=ANN, message=MessageId("m7"), text="hello")))
        web.until(lambda: "idle007" in turns.attended and rows_of(web.served.wired.store, "idle007")[0].turns == 2)
