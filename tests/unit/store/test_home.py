"""Nobody else reads what is ours, whatever the umask was."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from curtainwall.model import Broken, Clock
from curtainwall.store import SqliteStore
from tests.support.stores import A, OnDisk, StillClock, batch, everything_audited, run, spoke
from tests.support.waiting import until


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o277], ids=oct)
def umask(request: pytest.FixtureRequest) -> object:
    """Set the umask for one test."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(root: Path) -> dict[str, str]:
    """Return every path below a directory whose mode is not 0700 or 0600."""
    wrong = {}
    for path in (root, *root.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode != (0o700 if path.is_dir() else 0o600):
            wrong[str(path.relative_to(root))] = oct(mode)
    return wrong


@pytest.mark.usefixtures("umask")
def test_directories_are_0700_and_files_0600(tmp_path: Path) -> None:
    async def use() -> tuple[dict[str, str], set[str]]:
        async with SqliteStore.open(tmp_path / "home", StillClock()) as store:
            await store.log.append(batch(A, 0, *everything_audited()))
            await store.blobs.put(b"content")
            store.leases.take(A)
            await asyncio.to_thread(until, (tmp_path / "home/sessions/a/audit.jsonl").exists)
            async with store.log.watch():
                found = {path.name for path in (tmp_path / "home").rglob("*")}
                return modes(tmp_path / "home"), found

    wrong, found = run(use())
    assert wrong == {}
    assert {"curtainwall.db", "curtainwall.db-wal", "curtainwall.db-shm", "audit.key", "leases", "audit.jsonl"} <= found


def test_modes_that_someone_loosened_are_tightened(disk: OnDisk) -> None:
    disk.open().close()
    disk.home.chmod(0o755)
    (disk.home / "curtainwall.db").chmod(0o644)
    (disk.home / "keys" / "audit.key").chmod(0o644)
    disk.open()
    assert modes(disk.home) == {}


def test_the_key_is_made_once_and_stays(disk: OnDisk) -> None:
    disk.open().close()
    key = (disk.home / "keys" / "audit.key").read_bytes()
    assert len(key) == 32
    disk.open()
    assert (disk.home / "keys" / "audit.key").read_bytes() == key
    assert [path.name for path in (disk.home / "keys").iterdir()] == ["audit.key"], "no draft is left behind"


@pytest.mark.parametrize("content", [None, b"", b"short", b"x" * 33])
def test_a_log_without_its_key_is_not_extended_with_a_new_one(disk: OnDisk, content: bytes | None) -> None:
    store = disk.open()
    run(store.log.append(batch(A, 0, spoke())))
    store.close()
    key = disk.home / "keys" / "audit.key"
    key.unlink() if content is None else key.write_bytes(content)
    with pytest.raises(Broken, match="audit key"):
        disk.open()


def test_a_home_is_made_with_its_parents(tmp_path: Path) -> None:
    clock: Clock = StillClock()
    SqliteStore.open(tmp_path / "a" / "b" / "home", clock).close()
    assert modes(tmp_path / "a" / "b" / "home") == {}
