"""Deleting old sessions while others are served: an agent chose how many files there are."""

import asyncio
import sys
import threading
from collections import Counter

from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.host.user import local_user
from curtainwall.model import SessionQuery
from curtainwall.operations.open import SessionSpec, open_new
from curtainwall.serve.logs import Logbook
from curtainwall.serve.pruner import Pruner
from tests.support.covers import covers
from tests.support.in_process import Places

FILES = 200
_WATCHED: list[tuple[str, Counter[int]]] = []
"""Below which directory files are watched, and by which threads how many were deleted."""


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("os.remove", "os.rmdir", "os.scandir") and _WATCHED:
        place, threads = _WATCHED[-1]
        if str(arguments[0]).startswith(place):
            threads[threading.get_ident()] += 1


# It stays for as long as the process does, and does nothing while nothing is watched.
sys.addaudithook(_hook)


@covers("sessions.pruned-by-age")
def test_the_files_of_an_old_session_are_not_deleted_in_everybodys_way(places: Places) -> None:
    del places

    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            session = await open_new(wired.sessions, SessionSpec("demo"), local_user())
            place = wired.setup.home.session(session)
            for number in range(FILES):
                (place.workspace / f"{number}").mkdir()
                (place.workspace / f"{number}" / "file").touch()
            deleting: Counter[int] = Counter()
            _WATCHED.append((str(place.root), deleting))
            try:
                await Pruner(wired.sessions, -3_600_000, Logbook()).prune()
            finally:
                _WATCHED.clear()
            assert not wired.store.index.sessions(SessionQuery())
            assert not place.root.exists()
            assert sum(deleting.values()) > FILES
            assert threading.get_ident() not in deleting

    asyncio.run(story())
