"""A skill loaded, a plan approved and notes kept, the process killed at every commit: nothing is lost, and nothing happens twice."""

import ast
import json
import os
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from curtainwall.compose.store import open_store
from curtainwall.host.home import Home
from curtainwall.model import ApprovalAsked, ProgramFinished, SessionQuery, session_stream
from curtainwall.session import lift, replay
from curtainwall.tools.memory import Note, read_notes
from tests.support.covers import covers
from tests.support.forks import LIBRARY, forked

STEPS = ["skill", "plan", "one", "two", "three"]
NOTES = ["one", "two", "three"]
COMMITS = 40
"""More commits than the script takes; how many exactly depends on what happens to be written together."""
FEWEST = 30
# What comes before the first call is the other matrix's. A crash before a commit leaves what happened since the one before; one right
# after it leaves what was permitted and did not happen.
KILLS = [(nth, "before") for nth in range(7, COMMITS - 1)] + [(nth, "after") for nth in range(12, FEWEST + 1, 8)]


def play(place: Path, nth: int, when: str) -> CompletedProcess[str]:
    environ = {**os.environ, "CURTAINWALL_HOME": str(place / "home")}
    return forked("tests.support.knowledge_crash", place, nth, when, environ=environ, imported=LIBRARY)


def at_the_end(place: Path) -> tuple[list[str], int]:
    """Return what the program said of each step and how often somebody was asked, and see that the log keeps its promises."""
    with open_store(Home(place / "home")) as store:
        [row] = store.index.sessions(SessionQuery())
        events = [lift(entry) for entry in store.log.read(session_stream(row.session))]
        assert replay(events, lambda _blob: None) == ()
        [finished] = [event for event in events if isinstance(event, ProgramFinished)]
        asked = sum(isinstance(event, ApprovalAsked) for event in events)
        return ast.literal_eval(str(finished.shown.inline).strip()), asked


def kept(place: Path) -> list[str]:
    page = place / "home" / "memory" / "general.md"
    notes = list(read_notes(page.read_text())) if page.exists() else []
    assert all(isinstance(note, Note) for note in notes), "a note is torn"
    return [note.text for note in notes if isinstance(note, Note)]


@pytest.mark.parametrize(("nth", "when"), KILLS)
@covers("agents.skills-plans-and-notes-survive-a-crash-at-any-commit")
def test_killed_at_a_commit_it_goes_on_and_keeps_no_note_twice(tmp_path: Path, nth: int, when: str) -> None:
    assert play(tmp_path, nth, when).returncode == -9 or nth > FEWEST
    again = play(tmp_path, 0, when)
    assert (again.returncode, again.stdout) == (0, "That was it.\n"), again.stderr
    told, asked = at_the_end(tmp_path)
    notes = kept(tmp_path)
    assert len(notes) == len(set(notes)), "a note was kept twice"
    for step, word in zip(STEPS, told, strict=True):
        assert word in (step, f"{step} unknown")
        if step in NOTES and word == step:
            assert step in notes
    assert sum(word.endswith("unknown") for word in told) <= 1
    # Skill, plan and the third note. Only where it is not known that the plan was taken in, its answers may stand all the same.
    assert asked == 3 or "plan unknown" in told
    pins = tmp_path / "home" / "skills.json"
    if told[0] == "skill":
        assert len(json.loads(pins.read_text())) == 1


def test_left_alone_it_asks_three_times_and_takes_no_more_commits_than_are_tried(tmp_path: Path) -> None:
    assert play(tmp_path, COMMITS + 1, "before").returncode == 0
    assert at_the_end(tmp_path) == (STEPS, 3)
    assert kept(tmp_path) == NOTES
