"""Someone with the log's files in hand: `audit verify` says so, whatever was changed and however it was hidden."""

import asyncio
import hmac
import json
import os
import shutil
import signal
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.model import Broken, FoldSnapshot, Mode, SessionId, StreamEnd, session_stream
from curtainwall.runtime import SessionFolds
from curtainwall.session import FOLD_VERSION, KeptFold, SessionState, encode_fold
from curtainwall.store.disk.watchers import _names_in
from tests.support.houses import read
from tests.support.in_process import Places, Said, opened, session_in

Run = Callable[..., Said]


def sql(places: Places, *statements: str) -> None:
    with closing(sqlite3.connect(places.home / "curtainwall.db", isolation_level=None)) as db, db:
        for statement in statements:
            db.execute(statement)


def damage(database: Path) -> None:
    """Damage an index, so that everything in the log can still be read."""
    with closing(sqlite3.connect(database)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'session_agent'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


def audit_of(places: Places, session: str) -> Path:
    return places.home / "sessions" / session / "audit.jsonl"


@pytest.fixture
def session(places: Places) -> str:
    found, _ = session_in(places.workspace, read("/etc/hosts"))
    session_in(places.workspace, read("/etc/passwd"))
    return found


def test_an_untouched_log_passes(session: str, run: Run) -> None:
    assert run("audit", "verify").code == 0


def test_a_forged_last_line_without_its_end_is_seen(places: Places, session: str, run: Run) -> None:
    with audit_of(places, session).open("a") as file:
        file.write('{"seq":99,"type":"ApprovalAnswered","granted":true}')
    said = run("audit", "verify")
    assert (said.code, "added" in said.out) == (1, True)


def test_a_torn_last_line_is_not_taken_for_a_forged_one(places: Places, session: str, run: Run) -> None:
    path = audit_of(places, session)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    sql(places, "UPDATE head SET audited = 0")
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:40])
    assert run("audit", "verify").code == 0


def test_other_line_ends_are_an_edit(places: Places, session: str, run: Run) -> None:
    path = audit_of(places, session)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert run("audit", "verify").code == 1


@pytest.fixture
def in_time() -> Iterator[None]:
    """Let a test end that would wait for ever."""

    def over(*_: object) -> None:
        raise TimeoutError("it waits for what never comes")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("what", ["pipe", "directory", "link", "link to nothing"])
def test_what_is_no_file_in_the_place_of_an_audit_file_is_seen_and_nobody_waits_for_it(
    places: Places, session: str, run: Run, tmp_path: Path, what: str
) -> None:
    path = audit_of(places, session)
    path.rename(tmp_path / "kept.jsonl")
    match what:
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case _:
            path.symlink_to(tmp_path / ("kept.jsonl" if what == "link" else "nothing"))
    said = run("audit", "verify")
    assert (said.code, "cut off" in said.out) == (1, True)
    assert run("audit", "rebuild").code == 0
    assert run("audit", "verify").code == 0
    assert path.read_bytes() == (tmp_path / "kept.jsonl").read_bytes()


def test_an_edited_line_with_a_hash_made_anew_is_seen(places: Places, session: str, run: Run) -> None:
    path = audit_of(places, session)
    lines = path.read_text().splitlines()
    told = json.loads(lines[-1])
    del told["hash"]
    told["type"] = "ApprovalAnswered"
    body = json.dumps(told, separators=(",", ":"), ensure_ascii=False)
    lines[-1] = f'{body[:-1]},"hash":"{sha256(body.encode()).hexdigest()}"}}'
    path.write_text("".join(f"{line}\n" for line in lines))
    assert run("audit", "verify").code == 1


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("how", ["altered", "taken away", "replaced by a pipe", "replaced by a directory", "replaced by a socket"])
def test_what_a_call_returned_is_held_to_the_log_also_where_it_is_kept_beside_it(
    places: Places, run: Run, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = places.workspace / "big.txt"
    big.write_text("nothing was sent\n" * 5_000)

    async def work() -> str:
        async with open_gate(load_setup()) as wired:
            session = await opened(wired, places.workspace)
            await wired.gate.request(session, read(big))
            return session

    session = asyncio.run(asyncio.wait_for(work(), 60))
    assert run("audit", "verify").code == 0
    (blob,) = (path for path in (places.home / "blobs").glob("*/*") if b"nothing was sent" in path.read_bytes())
    content = blob.read_bytes()
    blob.unlink()
    match how:
        case "altered":
            blob.write_bytes(content.replace(b"nothing", b"all of "))
        case "replaced by a pipe":
            os.mkfifo(blob)
        case "replaced by a directory":
            blob.mkdir()
        case "replaced by a socket":
            monkeypatch.chdir(blob.parent)  # a socket's name is short
            with closing(socket.socket(socket.AF_UNIX)) as listener:
                listener.bind(blob.name)
        case _:
            pass
    said = run("audit", "verify")
    assert (said.code, f"`session:{session}` entry " in said.out, blob.name in said.out) == (1, True, True)
    assert run("audit", "verify", "--session", session).code == 1
    replayed = run("sessions", "replay", session)
    assert (replayed.code, blob.name in replayed.out + replayed.err) == (1, True)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM approval",
        "UPDATE approval SET status = 'granted'",
        "UPDATE approval SET shown = 'read a harmless file'",
        "UPDATE session SET status = 'closed'",
        "INSERT INTO label VALUES ('x', 'sensitive')",
        "DELETE FROM session",
        "INSERT INTO route VALUES ('matrix', '!room', 'x')",
    ],
)
def test_a_list_that_does_not_show_what_the_log_says_is_seen_and_made_anew(places: Places, session: str, run: Run, statement: str) -> None:
    sql(places, statement)
    said = run("audit", "verify")
    assert (said.code, "list altered" in said.out, "audit rebuild" in said.out) == (1, True, True), session
    assert run("audit", "rebuild").code == 0
    assert run("audit", "verify").code == 0


def test_a_session_that_the_lists_lack_is_checked_all_the_same(places: Places, session: str, run: Run) -> None:
    sql(places, f"DELETE FROM session WHERE session = '{session}'")
    path = audit_of(places, session)
    path.write_text(path.read_text().replace("/etc/hosts", "/etc/other"))
    assert run("audit", "verify").code == 1


@pytest.mark.usefixtures("session")
def test_a_log_that_was_taken_away_is_not_begun_anew(places: Places, run: Run) -> None:
    for path in (*places.home.glob("curtainwall.db*"), places.home / "keys" / "last-commit"):
        path.unlink()
    with pytest.raises(Broken, match="the log is gone"):
        session_in(places.workspace, read("/etc/hosts"))
    said = run("audit", "verify")
    assert (said.code, "audit accept-loss" in said.out) == (1, True), "it says what to do"


def test_a_session_that_was_taken_out_of_the_log_is_seen_by_its_audit_file(places: Places, session: str, run: Run) -> None:
    other = places.home / "sessions" / "another"
    other.mkdir()
    (other / "audit.jsonl").write_bytes(audit_of(places, session).read_bytes())
    said = run("audit", "verify")
    assert (said.code, "stream missing" in said.out) == (1, True)
    assert f"move `{other}` out of the home" in said.err, "it says what to do"


def test_an_audit_file_that_tells_of_more_than_a_log_that_was_put_back_stays_the_evidence_of_it(
    places: Places, session: str, run: Run, tmp_path: Path
) -> None:
    older = tmp_path / "older"
    older.mkdir()
    for path in places.home.glob("curtainwall.db*"):
        shutil.copy2(path, older)
    [ask] = [row["id"] for row in run("approvals", "list", "--output", "json").json if row["session"] == session]
    assert run("approve", ask).code == 0
    told = audit_of(places, session).read_bytes()
    for path in places.home.glob("curtainwall.db*"):
        path.unlink()
    for path in older.iterdir():
        shutil.copy2(path, places.home)
    assert run("audit", "verify").code == 1
    said = run("audit", "rebuild")
    assert (said.code, "the log has lost entries" in said.err) == (1, True)
    assert audit_of(places, session).read_bytes() == told
    assert run("audit", "verify").code == 1


def test_a_session_that_was_deleted_on_purpose_is_not_missed(places: Places, run: Run) -> None:
    session, _ = session_in(places.workspace, read("nothing"))
    kept = audit_of(places, session).read_bytes()
    assert run("sessions", "delete", session, "--yes").code == 0
    audit_of(places, session).parent.mkdir()
    audit_of(places, session).write_bytes(kept)
    assert run("audit", "verify").code == 0


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TRIGGER t AFTER INSERT ON approval BEGIN INSERT INTO inbox (stream, key, kind, payload) VALUES ('a', 'b', 'c', x''); END"],
        ["ALTER TABLE entry RENAME TO entry0", "CREATE VIEW entry AS SELECT * FROM entry0"],
    ],
)  # fmt: skip
def test_triggers_and_views_in_the_database_are_seen(places: Places, session: str, run: Run, statements: list[str]) -> None:
    sql(places, *statements)
    said = run("audit", "verify")
    assert (said.code, "foreign schema" in said.out) == (1, True)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entry SET payload = CAST(replace(CAST(payload AS TEXT), '/etc/hosts', '/etc/other') AS BLOB)",
        "DELETE FROM entry WHERE place = (SELECT max(place) FROM entry)",
        "UPDATE entry SET kind = 'ApprovalAnswered' WHERE kind = 'ApprovalAsked'",
        "UPDATE head SET seq = seq - 1",
        "DELETE FROM head WHERE id = (SELECT max(id) FROM head)",
        "UPDATE head SET stream = CASE id WHEN 1 THEN (SELECT stream || 'x' FROM head WHERE id = 2) ELSE stream END",
        "UPDATE seal SET entries = 0",
        "DELETE FROM seal",
        "UPDATE head SET mac = zeroblob(32)",
    ],
)
def test_every_change_of_the_truth_in_the_database_is_seen(places: Places, session: str, run: Run, statement: str) -> None:
    sql(places, statement)
    assert run("audit", "verify").code == 1


def test_a_forged_stream_is_never_sealed_by_our_own_next_write(places: Places, session: str, run: Run) -> None:
    sql(places, "UPDATE head SET hash = zeroblob(32)")
    said = run("sessions", "rename", session, "other")
    assert (said.code, "forged" in said.err) == (1, True)


def test_a_session_that_was_set_back_is_not_made_good_by_a_rescue(places: Places, session: str, run: Run, tmp_path: Path) -> None:
    """Its old head carries our seal; only the seal over all heads tells, and a rescue makes a new one."""
    database = places.home / "curtainwall.db"
    kept = run("audit", "head").out
    with closing(sqlite3.connect(database)) as db:
        before = db.execute("SELECT seq, hash, mac FROM head WHERE stream = ?", (f"session:{session}",)).fetchone()
    assert run("sessions", "rename", session, "what nobody should see any more").code == 0
    after = run("audit", "head").out
    with closing(sqlite3.connect(database)) as db:
        (number,) = db.execute("SELECT id FROM head WHERE stream = ?", (f"session:{session}",)).fetchone()
        db.execute("UPDATE head SET seq = ?, hash = ?, mac = ? WHERE id = ?", (*before, number))
        db.execute("DELETE FROM entry WHERE place > ? AND place >> 32 = ? >> 32", ((number << 32) + before[0], number << 32))
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'session_agent'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
        db.commit()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert run("audit", "verify").code == 1
    with database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    assert "may be older" in run("audit", "rescue").out
    said = run("audit", "verify")
    assert (said.code, "seal did not fit" in said.out) == (1, True)
    heads = tmp_path / "heads"
    heads.write_text(after)
    assert "older copy" in run("audit", "verify", "--against", heads).out
    heads.write_text(kept)
    assert run("audit", "verify", "--against", heads).code == 0, "it is what it was then"


def test_a_second_rescue_that_lost_the_houses_log_does_not_make_good_what_the_first_one_could_not_tell(
    places: Places, session: str, run: Run
) -> None:
    """The note of the first rescue stands in the house's log; an enemy would have that be lost next."""
    database = places.home / "curtainwall.db"
    with closing(sqlite3.connect(database)) as db:
        before = db.execute("SELECT seq, hash, mac FROM head WHERE stream = ?", (f"session:{session}",)).fetchone()
    assert run("sessions", "rename", session, "what nobody should see any more").code == 0
    with closing(sqlite3.connect(database)) as db:
        (number,) = db.execute("SELECT id FROM head WHERE stream = ?", (f"session:{session}",)).fetchone()
        db.execute("UPDATE head SET seq = ?, hash = ?, mac = ? WHERE id = ?", (*before, number))
        db.execute("DELETE FROM entry WHERE place > ? AND place >> 32 = ? >> 32", ((number << 32) + before[0], number << 32))
        db.commit()
    damage(database)
    assert run("audit", "rescue").code == 0
    assert run("audit", "verify").code == 1
    sql(places, "UPDATE entry SET payload = x'00' WHERE place >> 32 = (SELECT id FROM head WHERE stream = 'house')")
    damage(database)
    assert run("audit", "rescue").code == 0
    said = run("audit", "verify")
    assert (said.code, "seal did not fit" in said.out) == (1, True)


def test_a_session_that_went_with_a_damaged_database_is_named_whenever_the_log_is_verified(places: Places, session: str, run: Run) -> None:
    """Whoever wants a session gone could spoil it, damage the database and take its files away; then nothing else tells of it."""
    sql(places, f"UPDATE entry SET payload = x'00' WHERE place >> 32 = (SELECT id FROM head WHERE stream = 'session:{session}')")
    damage(places.home / "curtainwall.db")
    assert run("audit", "rescue").code == 0
    shutil.rmtree(places.home / "sessions" / session)
    said = run("audit", "verify")
    assert (said.code, f"lost with it: session:{session}" in said.err) == (0, True)


def test_a_rescue_of_all_that_was_sealed_is_made_good(places: Places, session: str, run: Run) -> None:
    database = places.home / "curtainwall.db"
    with closing(sqlite3.connect(database)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'session_agent'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    assert run("audit", "rescue").code == 0
    assert run("audit", "verify").code == 0


def test_another_key_is_seen_and_a_missing_one_stops_everything(places: Places, session: str, run: Run) -> None:
    key = places.home / "keys" / "audit.key"
    own = key.read_bytes()
    key.write_bytes(bytes(32))
    assert run("audit", "verify").code == 1
    key.unlink()
    said = run("sessions", "rename", session, "other")
    assert (said.code, "missing" in said.err) == (1, True)
    key.write_bytes(own)
    assert run("audit", "verify").code == 0


@pytest.mark.parametrize("message", [b"", b"\xff", b"[" * 4096, b'{"a":1}', b"[1,2]", b"null", b'"x"'])
def test_a_forged_datagram_is_only_a_hint_to_look(message: bytes) -> None:
    assert _names_in(message) == []


async def _resumed(session: SessionId) -> SessionState:
    """Return the state of a session that a new process takes up."""
    async with open_gate(load_setup()) as wired, wired.registry.hold(session) as actor:
        return actor.state


async def _plant(places: Places, session: SessionId, *, of: SessionId, key: bytes | None) -> None:
    """Put a snapshot in the place of a session's, which says that nothing is open and all is allowed; sealed by us, or with a key."""
    async with open_gate(load_setup()) as wired:
        state = wired.registry.look_at(of).copy()
        state.mode, state.approvals, state.calls = Mode.BYPASS, {}, {}
        payload = encode_fold(KeptFold(state, 0))
        [*_, last] = wired.store.log.read(session_stream(of))
        assert payload is not None
        assert wired.store.snapshots is not None
        assert wired.store.snapshots.save(FoldSnapshot(session_stream(of), StreamEnd(last.seq, last.hash), FOLD_VERSION, payload))
    planted = places.home / "cache" / session
    (places.home / "cache" / of).rename(planted)
    if key is not None:
        lead, body = planted.read_bytes()[:16], planted.read_bytes()[48:]
        planted.write_bytes(lead + hmac.digest(key, lead + body, "sha256") + body)


@pytest.mark.parametrize("how", ["forged", "exchanged", "ours", "with our key"])
def test_a_forged_or_exchanged_snapshot_changes_nothing(places: Places, how: str, run: Run) -> None:
    session, [answer] = session_in(places.workspace, read("/etc/hosts"))
    other, _ = session_in(places.workspace, read("/etc/hosts"))
    assert answer.waiting
    ours = (places.home / "keys" / "audit.key").read_bytes()
    key = {"forged": b"x" * 32, "with our key": ours}.get(how)
    of = other if how == "exchanged" else session
    asyncio.run(_plant(places, session, of=of, key=key))
    state = asyncio.run(_resumed(session))
    # What is sealed with our key for this session is believed: the others fail by their seal, or by whose they are.
    assert (state.mode, len(state.approvals)) == ((Mode.DEFAULT, 1) if how in ("forged", "exchanged") else (Mode.BYPASS, 0))


def test_a_log_that_was_edited_before_a_snapshot_is_found_by_verify_and_replay(places: Places, run: Run) -> None:
    session, _ = session_in(places.workspace, read("/etc/hosts"))

    async def save() -> None:
        async with open_gate(load_setup()) as wired:
            folds = SessionFolds(wired.store.log, wired.store.snapshots)
            assert folds.save(session_stream(session), folds.fold(session_stream(session)))

    asyncio.run(save())
    before = asyncio.run(_resumed(session))
    sql(places, "UPDATE entry SET payload = CAST(replace(payload, '/etc/hosts', '/etc/other') AS BLOB) WHERE kind = 'CallRequested'")
    assert asyncio.run(_resumed(session)) == before
    said = run("audit", "verify")
    assert (said.code, "edited" in said.out) == (1, True)
    assert run("sessions", "replay", session).code == 1
