"""Lists that are asked for often look at what they list, and not at everything that there is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from curtainwall.model import ApprovalQuery, Batch, SessionId, SessionQuery, SessionReady, Write, project_stream, session_stream
from curtainwall.store import SqliteStore
from curtainwall.store.database import BUSY_MILLIS, Reader
from curtainwall.store.disk.index import SqliteIndex
from tests.support.covers import covers
from tests.support.stores import NOON, StillClock, answered, asked, granted, labelled, opened, requested, run

Look = Callable[[SqliteIndex], object]

ASKED_OFTEN: dict[str, Look] = {
    "by what it touched": lambda index: index.sessions(SessionQuery(labels_beyond=frozenset({"sensitive"}), agent="claude", channel="web")),
    "by workspace": lambda index: index.sessions(SessionQuery(workspace="/work/s1", limit=1)),
    "the newest": lambda index: index.sessions(SessionQuery(limit=5)),
    "asks of one session": lambda index: index.approvals(ApprovalQuery(session=SessionId("s1"))),
    "grants of one project": lambda index: index.grants(of=project_stream("/work/s1")),
}


def fill(home: Path, sessions: int, settled: int = 0) -> Path:
    """Make a home with so many sessions, each with an open ask and so many that were settled."""

    async def filled() -> None:
        async with SqliteStore.open(home, StillClock()) as store:
            names = [SessionId(f"s{number}") for number in range(sessions)]
            told = [(opened(name, NOON, agent="claude", channel="web"), labelled("sensitive"), granted(f"g{name}")) for name in names]
            old = [event for number in range(settled) for event in (asked(f"old{number}", "c1"), answered(f"old{number}"))]
            asks = (SessionReady(at=NOON), requested("c1"), asked("ap1", "c1"), *old)
            await store.log.append(Batch(tuple(Write(session_stream(it[0].session), 0, (*it, *asks)) for it in told)))

    run(filled())
    return home / "curtainwall.db"


def steps(database: Path, look: Look) -> int:
    """Return how many steps the database takes for an answer."""
    reader, counted = Reader(database, BUSY_MILLIS), 0

    def count() -> None:
        nonlocal counted
        counted += 1

    reader.run(lambda db: db.set_progress_handler(count, 1))
    look(SqliteIndex(reader))
    reader.close()
    return counted


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a database with few sessions, and one with many."""
    home = tmp_path_factory.mktemp("homes")
    return fill(home / "few", 20), fill(home / "many", 150)


@covers("store.lists-asked-for-often-are-bounded")
@pytest.mark.parametrize("what", ASKED_OFTEN)
def test_what_is_asked_for_often_costs_the_same_however_many_sessions_there_are(databases: tuple[Path, Path], what: str) -> None:
    few, many = (steps(database, ASKED_OFTEN[what]) for database in databases)
    assert many <= few + 100


@covers("store.lists-asked-for-often-are-bounded")
def test_open_asks_cost_the_same_however_many_were_settled(tmp_path: Path) -> None:
    few, many = (steps(fill(tmp_path / str(settled), 5, settled), lambda index: index.approvals(ApprovalQuery())) for settled in (1, 100))
    assert many <= few + 100
