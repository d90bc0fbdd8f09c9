"""How long a list of sessions takes where there are many."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from bench.measuring import Figure, Seconds, Target, interleave, repeat_plainly
from bench.sample import BORN, name_of, open_store, opened, turn
from curtainwall.model import Batch, SessionId, SessionQuery, Write, session_stream

_SESSIONS = 10_000
_SHOWN = 50
_EACH = 50
_AT_ONCE = 500


async def listing(home: Path) -> list[Figure]:
    """50 of 10,000 sessions, newest first."""
    async with open_store(home / "ours") as store:
        for first in range(0, _SESSIONS, _AT_ONCE):
            names = [SessionId(name_of(number)) for number in range(first, first + _AT_ONCE)]
            writes = (
                Write(session_stream(name), 0, (*opened(name, f"/projects/{name}", BORN + number), *turn(number)))
                for number, name in enumerate(names, start=first)
            )
            await store.log.append(Batch(tuple(writes)))
        bare = _bare(home / "bare.db")

        def ask() -> None:
            assert len(store.index.sessions(SessionQuery(limit=_SHOWN))) == _SHOWN

        def ask_bare() -> None:
            assert len(bare.execute("SELECT * FROM session ORDER BY created DESC LIMIT ?", (_SHOWN,)).fetchall()) == _SHOWN

        async def ours(_: int) -> Sequence[Seconds]:
            return repeat_plainly(_EACH, ask)

        async def peer(_: int) -> Sequence[Seconds]:
            return repeat_plainly(_EACH, ask_bare)

        took = await interleave({"ours": ours, "peer": peer})
        bare.close()
    return [
        Figure(
            "list 50 of 10,000",
            took["ours"].p50 * 1e3,
            "ms",
            took["peer"].p50 * 1e3,
            "bare SELECT by an index",
            took["ours"].to(took["peer"]),
            Target(2),
            "newest first, each row with its open approvals and labels",
        )
    ]


def _bare(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("CREATE TABLE session (session TEXT PRIMARY KEY, name TEXT, agent TEXT, status TEXT, created INTEGER)")
    db.execute("CREATE INDEX session_created ON session (created)")
    db.execute("BEGIN")
    rows = ((name_of(number), f"session {number}", "builtin", "ready", BORN + number) for number in range(_SESSIONS))
    db.executemany("INSERT INTO session VALUES (?, ?, ?, ?, ?)", rows)
    db.execute("COMMIT")
    return db
