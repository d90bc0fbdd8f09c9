"""A log that lost entries: nothing goes on by itself, and a human decides."""

import sqlite3
from contextlib import closing

import pytest

from tests.support.covers import covers
from tests.support.program import Program, Running
from tests.support.serving import script_of
from tests.support.waiting import until

_EFFECTS = 12
_PROGRAM = f"""
for number in range({_EFFECTS}):
    await filesystem.write_file(path=f"done-{{number}}", content="once")
    await filesystem.move_file(source=f"done-{{number}}", destination=f"kept-{{number}}")
print(await filesystem.read_file(path="/etc/hostname"))
"""


_ASKS_FIRST = f'print(await filesystem.read_file(path="/etc/hosts"))\n{_PROGRAM}'


@pytest.fixture
def killed(program: Program) -> str:
    """Return a session that was killed while it waited for an answer, after its program had done something."""
    model = script_of(program.scratch / "model.jsonl", [{"code": _PROGRAM}, {"text": "ready"}])
    running = program.begin("start", "--model", model, "--on-ask", "wait", "go")
    running.says("approve")
    _kill(program, running)
    with closing(sqlite3.connect(f"file:{program.home / 'curtainwall.db'}?mode=ro", uri=True)) as db:
        ((session,),) = db.execute("SELECT session FROM session").fetchall()
    return session


def _kill(program: Program, running: Running) -> None:
    """Kill the program when its audit files are complete, which they are a moment after the log."""
    until(lambda: any("/etc/hostname" in audit.read_text() for audit in (program.home / "sessions").glob("*/audit.jsonl")))
    running.kill_everything()


def _lose_wal(program: Program) -> None:
    wal = program.home / "curtainwall.db-wal"
    assert wal.stat().st_size > 0, "what came last was only there"
    wal.unlink()
    (program.home / "curtainwall.db-shm").unlink(missing_ok=True)


def _done(program: Program, session: str) -> set[str]:
    return {path.name for path in (program.home / "sessions" / session / "workspace").iterdir()}


@covers("store.a-lost-log-is-noticed")
@pytest.mark.parametrize("is_noted", [True, False], ids=["by the note of the last commit", "by the audit files alone"])
def test_a_session_whose_wal_is_gone_is_not_resumed_until_the_loss_is_accepted(program: Program, killed: str, *, is_noted: bool) -> None:
    done = _done(program, killed)
    assert len(done) == _EFFECTS
    _lose_wal(program)
    if not is_noted:
        (program.home / "keys" / "last-commit").unlink()
    for words in (("start", "--resume", killed), ("start", "--model", "demo", "list ."), ("approvals", "list"), ("sessions", "list")):
        refused = program(*words, fails=True)
        assert (refused.returncode, "audit accept-loss" in refused.stderr) == (1, True), (words, refused)
    wrong = program("audit", "verify", fails=True)
    assert (wrong.returncode, "audit accept-loss" in wrong.stdout) == (1, is_noted)
    assert not is_noted or wrong.stderr == "", "nothing else is advised: this comes first"
    assert program("audit", "accept-loss", fails=True).returncode == 2, "nobody can be asked here"
    told = program("audit", "accept-loss", "--yes")
    assert "what is left" in told.stdout
    assert program("audit", "verify").returncode == 0
    kept = list((program.home / "sessions" / killed).glob("audit.jsonl.lost-*"))
    assert len(kept) == 1, "what the audit file told is kept"
    if killed in {row["id"] for row in program.sessions()}:
        program("start", "--resume", killed, fails=True)
    assert _done(program, killed) == done, "nothing was done a second time"
    assert "nothing was changed" in program("audit", "accept-loss", "--yes").stdout


@covers("store.a-lost-log-is-noticed")
def test_the_turn_of_a_session_that_was_set_back_is_not_gone_on_with_once_the_loss_is_accepted(program: Program) -> None:
    model = script_of(program.scratch / "model.jsonl", [{"code": _ASKS_FIRST}, {"text": "ready"}])
    program("start", "--model", model, "--on-ask", "park", "go", fails=True)
    # What is answered lies in the database itself, and what comes of it in the WAL alone.
    program("approve", program.open_approval())
    (row,) = program.sessions()
    running = program.begin("start", "--resume", row["id"], "--on-ask", "wait")
    running.says("approve")
    _kill(program, running)
    done = _done(program, row["id"])
    assert len(done) == _EFFECTS
    _lose_wal(program)
    assert f"{row['id']}: its turn was ended" in program("audit", "accept-loss", "--yes").stderr
    program("start", "--resume", row["id"])
    assert _done(program, row["id"]) == done, "nothing was done a second time"
    assert program.json("sessions", "show", row["id"])["labels"] == ["sensitive", "untrusted-content"]
    assert program("audit", "verify").returncode == 0


@pytest.mark.parametrize("how", ["emptied", "gone"])
def test_no_log_begins_anew_beside_the_sessions_of_one_that_is_gone(program: Program, killed: str, how: str) -> None:
    database = program.home / "curtainwall.db"
    for path in program.home.glob("curtainwall.db*"):
        path.unlink()
    if how == "emptied":
        database.touch()
    for words in (("start", "--model", "demo", "list ."), ("sessions", "list"), ("approvals", "list")):
        refused = program(*words, fails=True)
        assert (refused.returncode, "the log is gone" in refused.stderr) == (1, True), (words, refused)
    assert not database.exists() or database.stat().st_size == 0
    wrong = program("audit", "verify", fails=True)
    assert ("the log is gone" in wrong.stdout, wrong.stderr) == (True, "")
    assert f"{killed}: nothing of it is left in the log" in program("audit", "accept-loss", "--yes").stderr
    assert "accepted" in program("audit", "verify").stderr
    assert program.sessions() == []
    program("start", "--model", "demo", "list .")
