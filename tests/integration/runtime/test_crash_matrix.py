"""Kill a real process at every commit of a session's script: nothing is lost, nothing runs twice, asks stay open."""

from collections import Counter
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from curtainwall.model import ApprovalQuery, session_stream
from curtainwall.runtime import SystemClock
from curtainwall.session import fold, lift, replay
from curtainwall.store import SqliteStore
from tests.support.covers import covers
from tests.support.crash_script import SESSION
from tests.support.forks import forked

COMMITS = 17
"""How many commits the script makes at the most; a test of its own sees that none is left out."""
FEWEST = 16
"""Where the outcome of its one look is written together with what comes after."""


def play(home: Path, nth: int, when: str, snapshots: str) -> CompletedProcess[str]:
    return forked("tests.support.crash_script", home, nth, when, snapshots)


@pytest.mark.parametrize("snapshots", ["on", "off"])
def test_the_matrix_has_every_commit_of_the_script(snapshots: str, tmp_path: Path) -> None:
    assert play(tmp_path / "home", COMMITS + 1, "before", snapshots).returncode == 0


@covers("runtime.crash-anywhere")
@pytest.mark.parametrize("snapshots", ["on", "off"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, COMMITS + 1))
def test_a_process_killed_at_any_commit_loses_nothing_and_repeats_nothing(nth: int, when: str, snapshots: str, tmp_path: Path) -> None:
    home, far = tmp_path / "home", tmp_path / "far"
    killed = play(home, nth, when, snapshots)
    assert killed.returncode == -9 or (nth > FEWEST and killed.returncode == 0), killed.stderr

    with_store = SqliteStore.open(home, SystemClock())
    kept = [bytes(entry.payload) for entry in with_store.log.read(session_stream(SESSION))]
    open_before = {row.approval for row in with_store.index.approvals(ApprovalQuery())}
    asked_before = set(fold(map(lift, with_store.log.read(session_stream(SESSION)))).approvals)
    with_store.close()
    assert open_before == asked_before

    again = play(home, 0, when, snapshots)
    assert again.returncode == 0, again.stderr
    _, saved, seq = again.stdout.splitlines()[0].split()
    assert int(seq) == len(kept)
    assert (0 < int(saved) <= len(kept)) == (snapshots == "on" and nth > 1)

    store = SqliteStore.open(home, SystemClock())
    try:
        entries = store.log.read(session_stream(SESSION))
        assert [bytes(entry.payload) for entry in entries[: len(kept)]] == kept, "an event was lost"
        assert store.verify() is None
        assert store.verify_audit(SESSION) is None
        events = [lift(entry) for entry in entries]
        assert replay(events, lambda _: None) == ()
        state = fold(events)
        assert state.name == "survived"
        assert not state.approvals
        told = Counter(type(event).__name__ for event in events)
        ran = Counter(far.read_text().splitlines()) if far.exists() else Counter[str]()
        assert all(count == 1 for count in ran.values()), f"an effect ran twice: {ran}"
        assert sum(ran.values()) <= told["CallPermitted"] == told["CallFinished"] + told["CallLost"]
        assert sum(ran.values()) >= told["CallFinished"]
    finally:
        store.close()
