"""The feed of a stream that this process writes: what is read never goes beyond its head."""

from curtainwall.runtime import SystemClock
from curtainwall.runtime.sessions.feed import LogFeed, StreamWaiters, Tail
from curtainwall.store import MemoryStore
from tests.support.stores import A, batch, run, spoke

MANY = 100
"""More entries than a tail remembers, so that they are read from the log."""


def test_an_entry_that_is_durable_but_not_taken_in_yet_is_read_once_and_later() -> None:
    said = [spoke(str(number)) for number in range(MANY)]
    log = MemoryStore(SystemClock()).log
    run(log.append(batch(A, 0, *said)))
    tail = Tail(A, MANY - 1)
    feed = LogFeed(log, StreamWaiters(), lambda _stream: tail)
    assert len(feed.read(A)) == feed.head(A) == MANY - 1
    tail.extend(said[-1:])
    assert len(feed.read(A)) == feed.head(A) == MANY
    assert [recorded.seq for recorded in feed.read(A, MANY - 1)] == [MANY]
