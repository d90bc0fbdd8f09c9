"""A batch that somebody was given who died: it is written if it does not stand already, and never twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from curtainwall.model import Batch, Conflict, Consumed, Outcome, Post, StreamId, Write
from curtainwall.store.audit.chain import write_seal
from curtainwall.store.database import connect, create
from curtainwall.store.disk.ledger import Ledger, prepare
from tests.support.stores import NOON, A, B, message, opened, spoke

KEY = b"k" * 32

BATCHES = {
    "events": Batch((Write(A, 1, (spoke("one"), spoke("two"))),)),
    "events of two streams, a decision and a post": Batch(
        (Write(A, 1, (spoke("one"),)), Write(B, 0, (opened("b"),))),
        (Consumed(A, "k1", Outcome(seq=2)),),
        (Post(B, "k2", message()),),
    ),
    "a decision alone": Batch((), (Consumed(A, "k1", Outcome(code="refused", message="no")),)),
    "a post alone": Batch((Write(A, 1, ()),), (), (Post(B, "k2", message()),)),
}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """Return the ledger of a log with one entry."""
    path = tmp_path / "log.db"
    create(path, lambda db: write_seal(db, KEY))
    db = connect(path)
    ledger = Ledger(db, KEY)
    written(ledger, Batch((Write(A, 0, (opened("a"),)),)))
    yield ledger
    db.close()


def written(ledger: Ledger, batch: Batch, *, is_doubtful: bool = False) -> dict[StreamId, int]:
    """Write a batch in a transaction of its own."""
    prepared = prepare(batch)
    prepared.is_doubtful = is_doubtful
    ledger.begin()
    try:
        ends = ledger.write(prepared, NOON)
        ledger.commit(NOON)
    finally:
        ledger.abandon()
    return dict(ends)


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_a_doubtful_batch_that_stands_is_left_as_it_is(ledger: Ledger, batch: Batch) -> None:
    ends = written(ledger, batch)
    before = ledger.data_version()
    assert written(ledger, batch, is_doubtful=True) == ends
    assert written(ledger, Batch((Write(A, ends.get(A, 1), (spoke("three"),)),)))[A] == ends.get(A, 1) + 1, "nothing came twice"
    assert ledger.data_version() == before


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_a_doubtful_batch_that_does_not_stand_is_written(ledger: Ledger, batch: Batch) -> None:
    ends = written(ledger, batch, is_doubtful=True)
    assert written(ledger, batch, is_doubtful=True) == ends


def test_a_doubtful_batch_whose_place_is_taken_by_another_is_refused(ledger: Ledger) -> None:
    written(ledger, Batch((Write(A, 1, (spoke("somebody else"),)),)))
    with pytest.raises(Conflict, match="someone else wrote first"):
        written(ledger, Batch((Write(A, 1, (spoke("one"),)),)), is_doubtful=True)


def test_a_doubtful_decision_that_another_made_is_refused(ledger: Ledger) -> None:
    written(ledger, Batch((), (Consumed(A, "k1", Outcome(seq=1)),)))
    with pytest.raises(Conflict, match="decided by someone else"):
        written(ledger, BATCHES["a decision alone"], is_doubtful=True)
