"""A program that holds what looks like a secret, its process killed at every commit: it runs as written, or says that it does not."""

import os
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from curtainwall.compose.store import open_store
from curtainwall.host.home import Home
from curtainwall.model import ProgramFinished, SessionQuery, session_stream
from curtainwall.session import lift
from tests.support.covers import covers
from tests.support.forks import LIBRARY, forked
from tests.support.written_crash import PASSWORD

WRITTEN = f'password = "{PASSWORD}"'
COMMITS = 24
FEWEST = 10


def play(place: Path, nth: int, when: str) -> CompletedProcess[str]:
    environ = {**os.environ, "CURTAINWALL_HOME": str(place / "home")}
    return forked("tests.support.written_crash", place, nth, when, environ=environ, imported=LIBRARY)


def told_at_the_end(place: Path) -> str:
    with open_store(Home(place / "home")) as store:
        [row] = store.index.sessions(SessionQuery())
        events = [lift(entry) for entry in store.log.read(session_stream(row.session))]
        [finished] = [event for event in events if isinstance(event, ProgramFinished)]
        return str(finished.shown.inline)


@pytest.mark.parametrize("nth", range(1, COMMITS + 1))
@covers("agents.programs-run-as-they-were-written")
def test_killed_at_a_commit_no_mask_is_written_in_place_of_a_value(tmp_path: Path, nth: int) -> None:
    (tmp_path / "outside").mkdir()
    assert play(tmp_path, nth, "after").returncode == -9 or nth > FEWEST
    again = play(tmp_path, 0, "after")
    assert (again.returncode, again.stdout) == (0, "That was it.\n"), again.stderr
    told = told_at_the_end(tmp_path)
    files = {path.name: path.read_text() for path in (*tmp_path.rglob("own.py"), *tmp_path.rglob("asked.py"))}
    assert set(files.values()) <= {WRITTEN}
    if "Write the program again" in told:
        assert files == {}
    else:
        for name in ("own", "asked"):
            assert f"{name}.py" in files or f"{name} unknown" in told
    for path in (path for path in (tmp_path / "home").rglob("*") if path.is_file() and "workspace" not in path.parts):
        assert PASSWORD.encode() not in path.read_bytes(), path


def test_left_alone_it_comes_to_its_end_and_takes_no_more_commits_than_are_tried(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    done = play(tmp_path, COMMITS + 1, "before")
    assert done.returncode == 0, done.stderr
    assert told_at_the_end(tmp_path) == "['own', 'asked']"
