"""Blobs that are put again while they are being collected: whoever was told that they are kept finds them."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from curtainwall.store.blobs import FileBlobs
from tests.support.covers import covers
from tests.support.stores import run

LONG_AGO = time.time() - 3 * 24 * 3600
A_MOMENT = 0.5

_watched: dict[str, Callable[[], None]] = {}


def _notice(event: str, _arguments: object) -> None:
    if act := _watched.pop(event, None):
        act()


@contextmanager
def just_before(event: str, act: Callable[[], None]) -> Iterator[list[BaseException]]:
    """Let something happen in another thread when a system call is about to be made here, which waits for it, but not for long."""
    faults: list[BaseException] = []

    def tried() -> None:
        try:
            act()
        except BaseException as fault:  # noqa: BLE001 - the test asks for it
            faults.append(fault)

    other = threading.Thread(target=tried)

    def meanwhile() -> None:
        other.start()
        other.join(A_MOMENT)

    _watched[event] = meanwhile
    yield faults
    assert event not in _watched, "it came to the moment that this test is about"
    other.join()


@pytest.fixture(scope="module", autouse=True)
def noticed() -> None:
    # A hook stays for as long as the process; without anything to watch for, it does nothing.
    sys.addaudithook(_notice)


@covers("store.a-blob-put-again-is-kept")
@pytest.mark.parametrize("damaged", [False, True])
def test_a_blob_put_again_as_it_is_being_collected_is_kept(tmp_path: Path, *, damaged: bool) -> None:
    blobs = FileBlobs(tmp_path)
    kept = run(blobs.put(b"same"))
    path = tmp_path / kept.digest[:2] / kept.digest
    if damaged:
        path.write_bytes(b"other")
    os.utime(path, (LONG_AGO, LONG_AGO))
    with just_before("os.remove", lambda: run(blobs.put(b"same")) and None) as faults:
        assert blobs.collect(()) == 1
    assert faults == []
    assert blobs.get(kept.digest) == b"same"


def test_a_blob_collected_as_it_is_being_put_again_is_kept(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    kept = run(blobs.put(b"same"))
    os.utime(tmp_path / kept.digest[:2] / kept.digest, (LONG_AGO, LONG_AGO))
    with just_before("os.utime", lambda: blobs.collect(()) and None) as faults:
        assert run(blobs.put(b"same")) == kept
    assert faults == []
    assert blobs.get(kept.digest) == b"same"
