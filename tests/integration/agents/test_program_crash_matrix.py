"""A program of the agent's, its process killed at every commit: nothing happens twice, and what is unknown is said."""

import ast
import os
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from curtainwall.compose.store import open_store
from curtainwall.host.home import Home
from curtainwall.model import ProgramFinished, SessionQuery, session_stream
from curtainwall.session import lift, replay
from tests.support.covers import covers
from tests.support.forks import LIBRARY, forked

EFFECTS = ["a", "ask", "left", "right", "b"]
COMMITS = 42
"""More commits than the script takes from its opening to its end; how many exactly depends on what happens to be written together."""
FEWEST = 25


def play(place: Path, nth: int, when: str) -> CompletedProcess[str]:
    environ = {**os.environ, "CURTAINWALL_HOME": str(place / "home")}
    return forked("tests.support.program_crash", place, nth, when, environ=environ, imported=LIBRARY)


def told_at_the_end(place: Path) -> list[str]:
    """Return what the program said became of each effect, and see that the log keeps its promises."""
    with open_store(Home(place / "home")) as store:
        [row] = store.index.sessions(SessionQuery())
        events = [lift(entry) for entry in store.log.read(session_stream(row.session))]
        assert replay(events, lambda _blob: None) == ()
        [finished] = [event for event in events if isinstance(event, ProgramFinished)]
        return ast.literal_eval(str(finished.shown.inline).strip())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, COMMITS + 1))
@covers("agents.programs-survive-a-crash-at-any-commit")
def test_killed_at_a_commit_it_goes_on_and_repeats_nothing(tmp_path: Path, nth: int, when: str) -> None:
    assert play(tmp_path, nth, when).returncode == -9 or nth > FEWEST
    again = play(tmp_path, 0, when)
    assert (again.returncode, again.stdout) == (0, "That was it.\n"), again.stderr
    told = told_at_the_end(tmp_path)
    happened = (tmp_path / "far").read_text().split()
    assert len(happened) == len(set(happened)), "an effect happened twice"
    for effect, word in zip(EFFECTS, told, strict=True):
        if word == effect:
            assert effect in happened
        else:
            assert word == f"{effect} unknown"
    assert sum(word.endswith("unknown") for word in told) <= 2


def test_left_alone_it_comes_to_its_end_and_takes_no_more_commits_than_are_tried(tmp_path: Path) -> None:
    assert play(tmp_path, COMMITS + 1, "before").returncode == 0
    assert told_at_the_end(tmp_path) == EFFECTS
    assert sorted((tmp_path / "far").read_text().split()) == sorted(EFFECTS)
