"""Contents put aside under their digests: what was shown is copied from here, so whatever still writes to a view changes nothing of it."""

import errno
import fcntl
import hashlib
import os
import secrets
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from curtainwall.host.files.beneath import sync_file_system

_CHUNK: Final = 1024 * 1024
_LOOKED_AT: Final = 8192
"""How many bytes decide whether a file is binary, as git does it."""
_CLONE: Final = 0x40049409
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class ContentsLost(Exception):
    """Contents that were put aside are missing or damaged."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """Contents that were put aside."""

    digest: str
    size: int
    is_binary: bool


class SealedContents:
    """A directory of ours with one file for each digest, which no agent can reach."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def keep(self, opened: int) -> Sealed:
        """Put aside what an open file holds; the digest is that of the bytes that were put aside."""
        first = _read(opened, _CHUNK)
        digest = hashlib.sha256(first)
        is_binary = b"\0" in first[:_LOOKED_AT]
        if len(first) < _CHUNK:
            self._write(digest.hexdigest(), first)
            return Sealed(digest.hexdigest(), len(first), is_binary)
        size = len(first)
        draft = self._directory / f".{secrets.token_hex(8)}"
        made = os.open(draft, _CREATE, 0o600)
        try:
            _write(made, first)
            while piece := os.read(opened, _CHUNK):
                digest.update(piece)
                size += len(piece)
                _write(made, piece)
            os.rename(draft, self._directory / digest.hexdigest())
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        finally:
            os.close(made)
        return Sealed(digest.hexdigest(), size, is_binary)

    def keep_bytes(self, content: bytes) -> Sealed:
        """Put aside some bytes."""
        digest = hashlib.sha256(content).hexdigest()
        self._write(digest, content)
        return Sealed(digest, len(content), b"\0" in content[:_LOOKED_AT])

    def read(self, digest: str, most: int | None = None) -> bytes:
        """Return contents, or their beginning; raise `ContentsLost`."""
        opened = self._open(digest)
        try:
            if most is not None:
                return _read(opened, most)
            content = b"".join(iter(lambda: os.read(opened, _CHUNK), b""))
        finally:
            os.close(opened)
        if hashlib.sha256(content).hexdigest() != digest:
            raise ContentsLost(digest)
        return content

    def copy_to(self, digest: str, made: int) -> None:
        """Write contents to an empty open file, and check every byte on the way; raise `ContentsLost`."""
        opened = self._open(digest)
        try:
            copied, _ = copy_bytes(opened, made)
        finally:
            os.close(opened)
        if copied != digest:
            raise ContentsLost(digest)

    def has(self, digest: str) -> bool:
        """Tell whether there are such contents."""
        return (self._directory / digest).exists()

    def is_whole(self, digest: str) -> bool:
        """Tell whether there are such contents, and undamaged."""
        try:
            with open(self._open(digest), "rb", buffering=0) as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == digest
        except (ContentsLost, OSError):
            return False

    def sync_unless_on(self, device: int | None = None) -> None:
        """Flush everything to disk, unless it is on a device that is flushed anyway."""
        opened = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if os.fstat(opened).st_dev != device:
                sync_file_system(opened)
        finally:
            os.close(opened)

    def keep_only(self, digests: Collection[str]) -> int:
        """Delete all other contents, and return how many there were."""
        wanted = {*digests}
        others = [path for path in self._directory.iterdir() if path.name not in wanted]
        for path in others:
            path.unlink(missing_ok=True)
        return len(others)

    def _open(self, digest: str) -> int:
        try:
            return os.open(self._directory / digest, _READ)
        except FileNotFoundError as fault:
            raise ContentsLost(digest) from fault

    def _write(self, digest: str, content: bytes) -> None:
        path = self._directory / digest
        with suppress(FileNotFoundError):
            # Of a damaged one, an earlier crash may have left the name and not the bytes.
            if path.stat().st_size == len(content):
                return
        draft = self._directory / f".{secrets.token_hex(8)}"
        made = os.open(draft, _CREATE, 0o600)
        try:
            _write(made, content)
            os.rename(draft, path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        finally:
            os.close(made)


def copy_bytes(opened: int, made: int) -> tuple[str, int]:
    """Copy an open file to an empty one, and return the digest and size of what arrived; the blocks are shared where that is possible."""
    digest, size = hashlib.sha256(), 0
    is_clone = _clone(opened, made)
    # INVARIANT: what is counted is what arrives: the clone itself, or each piece that is written.
    while piece := os.read(made if is_clone else opened, _CHUNK):
        digest.update(piece)
        size += len(piece)
        if not is_clone:
            _write(made, piece)
    return digest.hexdigest(), size


def _read(opened: int, size: int) -> bytes:
    """Return as many bytes, or all that there are."""
    content = os.read(opened, size)
    while len(content) < size and (piece := os.read(opened, size - len(content))):
        content += piece
    return content


def _write(made: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(made, rest) :]


def _clone(opened: int, made: int) -> bool:
    """Share the blocks of a file, where its file system can; tell whether it did."""
    try:
        fcntl.ioctl(made, _CLONE, opened)
    except OSError as fault:
        if fault.errno in {errno.ENOSPC, errno.EDQUOT, errno.EIO}:
            raise
        return False
    return True
