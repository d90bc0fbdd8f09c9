"""What every blob store promises: the bytes come back under their digest, or it says why not."""

import hashlib

import pytest

from curtainwall.model import NotFound
from tests.support.stores import Disk, Store, run


@pytest.mark.parametrize("content", [b"", b"x", b"\0\xff" * 100_000], ids=["empty", "one byte", "big"])
def test_the_bytes_come_back_under_their_digest(store: Store, content: bytes) -> None:
    kept = run(store.blobs.put(content))
    assert (kept.digest, kept.size) == (hashlib.sha256(content).hexdigest(), len(content))
    assert store.blobs.get(kept.digest) == content


def test_the_same_bytes_are_one_blob(store: Store) -> None:
    assert run(store.blobs.put(b"same")) == run(store.blobs.put(b"same"))


def test_another_store_reads_them(disk: Disk) -> None:
    kept = run(disk.open().blobs.put(b"shared"))
    assert disk.open().blobs.get(kept.digest) == b"shared"


@pytest.mark.parametrize("digest", ["0" * 64, "", "../../keys/audit.key", "..", "A" * 64, "0" * 63, "é" * 64, "0" * 63 + "\n"])
def test_what_is_not_there_is_not_found(store: Store, digest: str) -> None:
    with pytest.raises(NotFound):
        store.blobs.get(digest)
