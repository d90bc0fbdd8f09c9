"""Contents under their digests: small and large, checked whenever they are used."""

import hashlib
import os
from pathlib import Path

import pytest

from curtainwall.host.views.sealed import ContentsLost, SealedContents
from tests.support.covers import covers

LARGE = bytes(range(256)) * 10_000


@pytest.mark.parametrize(
    "content", [b"", b"text\n", b"\0binary", LARGE, LARGE[: 1024 * 1024]], ids=["empty", "text", "zero", "large", "piece"]
)
def test_what_was_put_aside_comes_back(tmp_path: Path, content: bytes) -> None:
    sealed = SealedContents(tmp_path / "sealed")
    (tmp_path / "file").write_bytes(content)
    opened = os.open(tmp_path / "file", os.O_RDONLY)
    kept = sealed.keep(opened)
    os.close(opened)
    assert (kept.digest, kept.size, kept.is_binary) == (hashlib.sha256(content).hexdigest(), len(content), b"\0" in content)
    assert sealed.read(kept.digest) == content
    assert sealed.read(kept.digest, 3) == content[:3]
    made = os.open(tmp_path / "copy", os.O_RDWR | os.O_CREAT)
    sealed.copy_to(kept.digest, made)
    os.close(made)
    assert (tmp_path / "copy").read_bytes() == content
    assert os.listdir(tmp_path / "sealed") == [kept.digest]


@covers("views.what-was-shown-is-what-is-applied")
def test_damaged_and_missing_contents_are_lost(tmp_path: Path) -> None:
    sealed = SealedContents(tmp_path / "sealed")
    kept = sealed.keep_bytes(b"text")
    (tmp_path / "sealed" / kept.digest).write_bytes(b"TEXT")
    made = os.open(tmp_path / "copy", os.O_RDWR | os.O_CREAT)
    for digest in (kept.digest, "0" * 64):
        with pytest.raises(ContentsLost):
            sealed.read(digest)
        with pytest.raises(ContentsLost):
            sealed.copy_to(digest, made)
    os.close(made)


def test_only_what_is_still_needed_is_kept(tmp_path: Path) -> None:
    sealed = SealedContents(tmp_path / "sealed")
    one, other = sealed.keep_bytes(b"one"), sealed.keep_bytes(b"other")
    assert sealed.keep_only({one.digest}) == 1
    assert (sealed.has(one.digest), sealed.has(other.digest)) == (True, False)
