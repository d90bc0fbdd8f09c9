"""A store makes its writer when something is first written, and refuses writes once it is closed."""

from pathlib import Path

import pytest

from curtainwall.model import Post, TryLater
from curtainwall.store import SqliteStore
from tests.support.stores import A, StillClock, batch, message, opened, run


def test_a_store_that_was_closed_before_anything_was_written_refuses_writes(tmp_path: Path) -> None:
    async def story() -> None:
        store = SqliteStore.open(tmp_path, StillClock())
        assert store.log.head(A) == 0
        store.close()
        with pytest.raises(TryLater, match="the store is closed"):
            await store.log.append(batch(A, 0, opened("a")))
        with pytest.raises(TryLater, match="the store is closed"):
            await store.inbox.post(Post(A, "key", message()))
        store.leases.tell(A)
        store.close()

    run(story())


def test_what_was_written_last_is_there_when_the_store_is_closed(tmp_path: Path) -> None:
    async def story() -> None:
        async with SqliteStore.open(tmp_path, StillClock()) as store:
            await store.log.append(batch(A, 0, opened("a")))
        with pytest.raises(TryLater, match="the store is closed"):
            await store.log.append(batch(A, 1, opened("a")))
        async with SqliteStore.open(tmp_path, StillClock()) as store:
            assert store.log.head(A) == 1

    run(story())
