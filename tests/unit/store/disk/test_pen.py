"""What is answered where a transaction fails: that nothing was written is said only of what certainly was not."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from curtainwall.model import Broken, StreamId, TryLater
from curtainwall.store.audit.chain import write_seal
from curtainwall.store.database import create
from curtainwall.store.disk.committer import Committer, Written
from curtainwall.store.disk.ledger import PreparedBatch, prepare
from curtainwall.store.home import StorePaths
from tests.support.stores import NOON, A, B, batch, opened, spoke

KEY = b"k" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a database that is still empty."""
    path = StorePaths(tmp_path).database
    StorePaths(tmp_path).prepare()
    create(path, lambda db: write_seal(db, KEY))
    return path


@pytest.fixture
def pen(path: Path) -> Iterator[Committer]:
    """Return a pen that does not wait for long."""
    pen = Committer(StorePaths(path.parent), KEY, 50, lambda _: None)
    yield pen
    pen.close()


@pytest.fixture
def other(path: Path) -> Iterator[sqlite3.Connection]:
    """Return a connection of somebody else."""
    db = sqlite3.connect(path, isolation_level=None)
    yield db
    db.close()


def entry(stream: StreamId) -> PreparedBatch:
    return prepare(batch(stream, 0, opened(stream.removeprefix("session:")), spoke("something")))


def doubted(batch: PreparedBatch) -> PreparedBatch:
    batch.is_doubtful = True
    return batch


def told(pen: Committer, *batches: PreparedBatch) -> list[Written]:
    return pen.commit(batches, {}, NOON)


def test_a_doubtful_batch_that_stands_is_told_as_written_also_while_nothing_can_be(pen: Committer, other: sqlite3.Connection) -> None:
    standing = entry(A)
    assert told(pen, standing) == [{A: 2}]
    other.execute("BEGIN IMMEDIATE")
    stands, fresh = told(pen, doubted(standing), entry(B))
    assert stands == {A: 2}
    assert isinstance(fresh, TryLater)
    assert str(fresh).startswith("nothing was written: ")
    other.execute("ROLLBACK")
    assert told(pen, standing, entry(B)) == [{A: 2}, {B: 2}], "nothing came twice"


def test_of_a_doubtful_batch_that_is_not_seen_nobody_says_that_it_was_not_written(pen: Committer, other: sqlite3.Connection) -> None:
    other.execute("BEGIN IMMEDIATE")
    (unsure,) = told(pen, doubted(batch := entry(A)))
    assert isinstance(unsure, TryLater)
    assert "not known whether this was written" in str(unsure)
    assert "locked by another process" in str(unsure)
    assert "nothing was written" not in str(unsure)
    other.execute("ROLLBACK")
    assert told(pen, batch) == [{A: 2}]


def test_a_doubtful_batch_in_a_damaged_database_is_broken_and_unknown(pen: Committer, path: Path) -> None:
    path.write_bytes(b"this is not a database, it is a letter " * 1000)
    (unsure,) = told(pen, doubted(entry(A)))
    assert isinstance(unsure, Broken)
    assert "not known whether this was written" in str(unsure)
    assert "nothing was written" not in str(unsure)
