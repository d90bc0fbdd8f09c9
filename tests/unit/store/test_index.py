"""Lists that are asked for often look at what they list, and not at everything that there is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from curtainwall.model import Batch, SessionId, SessionQuery, Write, project_stream, session_stream
from curtainwall.store import SqliteStore
from curtainwall.store.index import SqliteIndex
from curtainwall.store.reading import Reader
from curtainwall.store.schema import BUSY_MILLIS
from tests.support.covers import covers
from tests.support.stores import NOON, StillClock, granted, labelled, opened, run

ASKED_OFTEN: dict[str, Callable[[SqliteIndex], object]] = {
    "by what it touched": lambda index: index.sessions(SessionQuery(labels_beyond=frozenset({"sensitive"}), agent="claude", channel="web")),
    "by workspace": lambda index: index.sessions(SessionQuery(workspace="/work/s1", limit=1)),
    "grants of one project": lambda index: index.grants(of=project_stream("/work/s1")),
}


def steps(home: Path, sessions: int, ask: Callable[[SqliteIndex], object]) -> int:
    """Return how many steps the database takes for an answer where there are so many sessions."""

    async def fill() -> None:
        names = [SessionId(f"s{number}") for number in range(sessions)]
        async with SqliteStore.open(home, StillClock()) as store:
            own = [(opened(name, NOON, agent="claude", channel="web"), labelled("sensitive"), granted(f"g{name}")) for name in names]
            await store.log.append(Batch(tuple(Write(session_stream(name), 0, told) for name, told in zip(names, own, strict=True))))

    run(fill())
    reader = Reader(home / "curtainwall.db", BUSY_MILLIS)
    counted = 0

    def count() -> None:
        nonlocal counted
        counted += 1

    reader.run(lambda db: db.set_progress_handler(count, 1))
    ask(SqliteIndex(reader))
    reader.close()
    return counted


@covers("store.lists-asked-for-often-are-bounded")
@pytest.mark.parametrize("what", ASKED_OFTEN)
def test_what_is_asked_for_often_costs_the_same_however_many_sessions_there_are(tmp_path: Path, what: str) -> None:
    few, many = (steps(tmp_path / str(sessions), sessions, ASKED_OFTEN[what]) for sessions in (20, 1_000))
    assert many <= few + 100
