"""`audit.jsonl` tells the session's verdicts, approvals and outcomes, and whoever changes it is found."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from curtainwall.model import SessionId
from curtainwall.store import SqliteStore
from curtainwall.store.audit.lines import START, AuditedEvent, line_of, parse_line
from tests.support.stores import NOON, A, OnDisk, batch, denied, everything_audited, requested, run, spoke
from tests.support.strategies import words
from tests.support.waiting import until

SESSION = SessionId("a")


def file_of(disk: OnDisk) -> Path:
    return disk.home / "sessions" / "a" / "audit.jsonl"


def lines_of(disk: OnDisk) -> list[str]:
    return file_of(disk).read_text().splitlines()


@pytest.fixture
def told(disk: OnDisk) -> OnDisk:
    """Return a home with one session whose audit is complete."""
    store = disk.open()
    run(store.log.append(batch(A, 0, *everything_audited())))
    store.close()
    return disk


def test_every_verdict_approval_and_outcome_has_its_line(told: OnDisk) -> None:
    rows = [json.loads(line) for line in lines_of(told)]
    assert [(row["seq"], row["type"]) for row in rows] == [
        (2, "CallRequested"),
        (3, "CallDenied"),
        (4, "CallRequested"),
        (5, "ApprovalAsked"),
        (7, "ApprovalAnswered"),
        (8, "GrantGiven"),
        (9, "CallPermitted"),
        (10, "CallFinished"),
        (11, "GrantRevoked"),
        (12, "CallRequested"),
        (13, "ApprovalAsked"),
        (14, "ApprovalExpired"),
    ]
    assert rows[0]["tool"] == "filesystem.read_file"
    assert rows[0]["resources"] == [{"role": "read-path", "value": "/etc/hosts"}]
    assert rows[0]["at"] == "2023-11-14T22:13:20.000Z"
    assert (rows[4]["granted"], rows[4]["by"]) == (True, "bob on matrix")
    assert [row["prev"] for row in rows] == ["0" * 64, *(row["hash"] for row in rows[:-1])]


@for_all(st.one_of(*map(words, AuditedEvent.__args__)))
def test_a_line_is_spelled_as_any_json_library_spells_it(event: AuditedEvent) -> None:
    line = line_of(1, event.model_copy(update={"at": NOON}), START)
    assert line is not None
    assert line.text == json.dumps(json.loads(line.text), separators=(",", ":"), ensure_ascii=False)
    assert parse_line(line.text) == line


def test_results_are_told_by_size_and_digest_only(told: OnDisk) -> None:
    text = file_of(told).read_text()
    assert "secret contents" not in text
    assert "not for the audit" not in text
    (finished,) = [json.loads(line) for line in lines_of(told) if '"CallFinished"' in line]
    assert finished["ok"] is True
    assert finished["result"]["size"] == len('"the secret contents"')


def test_it_is_live(disk: OnDisk) -> None:
    store = disk.open()
    for n in range(3):
        run(store.log.append(batch(A, n, requested(f"c{n}"))))
        until(lambda wanted=n + 1: file_of(disk).exists() and len(lines_of(disk)) == wanted)
    assert store.verify_audit(SESSION) is None


def test_it_is_live_while_the_house_never_rests(disk: OnDisk) -> None:
    store = disk.open()
    written = 0

    async def never_rest() -> None:
        nonlocal written
        while not (file_of(disk).exists() and lines_of(disk)):
            await store.log.append(batch(A, written, requested(f"c{written}")))
            written += 1

    run(asyncio.wait_for(never_rest(), 60))
    store.close()
    assert len(lines_of(disk)) == written
    assert disk.open().verify_audit(SESSION) is None


def test_an_untouched_file_passes(told: OnDisk) -> None:
    assert told.open().verify_audit(SESSION) is None


def test_a_session_with_nothing_to_tell_has_no_file_and_passes(disk: OnDisk) -> None:
    store = disk.open()
    run(store.log.append(batch(A, 0, spoke())))
    store.close()
    assert not file_of(disk).exists()
    assert disk.open().verify_audit(SESSION) is None


def rechained(lines: list[str]) -> list[str]:
    """Return lines whose hashes were all made to fit again, as someone would who knows how."""
    import hashlib

    out: list[str] = []
    prev = "0" * 64
    for line in lines:
        row = json.loads(line)
        row.pop("hash")
        row["prev"] = prev
        body = json.dumps(row, separators=(",", ":"), ensure_ascii=False)
        prev = hashlib.sha256(body.encode()).hexdigest()
        out.append(f'{body[:-1]},"hash":"{prev}"}}')
    return out


@pytest.mark.parametrize(
    ("change", "line", "seq", "what"),
    [
        (lambda it: [*it[:4], it[4].replace('"granted":true', '"granted":false'), *it[5:]], 5, 7, "edited"),
        (lambda it: rechained([*it[:4], it[4].replace('"granted":true', '"granted":false'), *it[5:]]), 5, 7, "edited"),
        (lambda it: [*it[:4], "{}", *it[5:]], 5, 7, "edited"),
        (lambda it: [*it[:4], *it[5:]], 5, 7, "removed"),
        (lambda it: rechained([*it[:4], *it[5:]]), 5, 7, "removed"),
        (lambda it: it[1:], 1, 2, "removed"),
        (lambda it: [*it[:4], it[5], it[4], *it[6:]], 5, 7, "reordered"),
        (lambda it: [*it[:1], it[9], *it[2:9], it[1], *it[10:]], 2, 3, "reordered"),
        (lambda it: it[:-1], 12, 14, "cut off"),
        (lambda it: [], 1, 2, "cut off"),
        (lambda it: [*it, it[-1]], 13, 14, "added"),
        (lambda it: [*it[:5], it[4], *it[5:]], 6, 8, "reordered"),
    ],
)
def test_a_changed_file_is_found_at_its_first_bad_line(
    told: OnDisk, change: Callable[[list[str]], list[str]], line: int, seq: int, what: str
) -> None:
    file_of(told).write_text("".join(f"{text}\n" for text in change(lines_of(told))))
    found = told.open().verify_audit(SESSION)
    assert found is not None
    assert (found.line, found.seq, found.what) == (line, seq, what), str(found)


def test_a_file_that_is_gone_is_found(told: OnDisk) -> None:
    file_of(told).unlink()
    found = told.open().verify_audit(SESSION)
    assert found is not None
    assert found.what == "cut off"


def test_what_was_cut_stays_to_be_seen_when_the_session_goes_on(told: OnDisk) -> None:
    file_of(told).write_text("".join(f"{text}\n" for text in lines_of(told)[:-2]))
    store = told.open()
    run(store.log.append(batch(A, 14, requested("c9"))))
    store.close()
    found = told.open().verify_audit(SESSION)
    assert found is not None
    assert (found.line, found.seq, found.what) == (11, 13, "removed")


@pytest.mark.parametrize("damage", [lambda lines: lines[:5], lambda lines: ["nonsense"], lambda lines: lines[::-1]])
def test_rebuilding_gives_the_same_file(told: OnDisk, damage: Callable[[list[str]], list[str]]) -> None:
    before = file_of(told).read_bytes()
    file_of(told).write_text("".join(f"{text}\n" for text in damage(lines_of(told))))
    store = told.open()
    assert store.rebuild_audit(SESSION) == 12
    assert file_of(told).read_bytes() == before
    assert store.verify_audit(SESSION) is None


def test_a_torn_last_line_is_repaired_with_the_next_write(told: OnDisk) -> None:
    whole = file_of(told).read_bytes()
    file_of(told).write_bytes(whole + b'{"seq":15,"at":"2023')
    store = told.open()
    found = store.verify_audit(SESSION)
    assert found is not None, "a piece of no line that the log has is not torn, it was added"
    assert (found.line, found.what) == (13, "added")
    run(store.log.append(batch(A, 14, requested("c9"), denied("c9"))))
    store.close()
    assert file_of(told).read_bytes().startswith(whole)
    assert len(lines_of(told)) == 14
    assert told.open().verify_audit(SESSION) is None


def test_an_altered_last_line_is_left_for_whoever_verifies(told: OnDisk) -> None:
    altered = file_of(told).read_text().replace('"ApprovalExpired"', '"ApprovalForgiven"')
    file_of(told).write_text(altered)
    store = told.open()
    run(store.log.append(batch(A, 14, requested("c9"))))
    store.close()
    assert file_of(told).read_text() == altered
    found = told.open().verify_audit(SESSION)
    assert found is not None
    assert (found.seq, found.what) == (14, "edited")


def test_an_id_that_is_no_name_for_a_directory_writes_nowhere(disk: OnDisk) -> None:
    store: SqliteStore = disk.open()
    stream = type(A)("session:../../evil")
    run(store.log.append(batch(stream, 0, requested())))
    store.close()
    assert not list(disk.home.parent.rglob("audit.jsonl"))
