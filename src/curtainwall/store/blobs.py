"""Stores big payloads as files named by their digest. A file is either complete or absent."""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Generator, Iterable
from pathlib import Path

from curtainwall.model import BlobRef, Broken, NotFound
from curtainwall.store.faults import explain_file
from curtainwall.store.home import private_directory, private_file, sync_directory, write_durably

_DIGEST = re.compile(r"[0-9a-f]{64}")
_IN_TEXT = re.compile(rb"[0-9a-f]{64}")
# A blob is stored before the event that names it, so a blob younger than this may not be in the log yet.
_GRACE_SECONDS = 24 * 3600


class FileBlobs:
    """The blobs below one directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def put(self, content: bytes) -> BlobRef:
        """Store the bytes durably and return a reference to them."""
        # Start-up time: a process that only looks something up has no loop.
        import asyncio

        return await asyncio.to_thread(self._put, content)

    def get(self, digest: str) -> bytes:
        """Return the bytes, checked against their digest; raise `NotFound` or `Broken`."""
        if not _DIGEST.fullmatch(digest):
            raise NotFound(f"`{digest[:80]}` is not the name of a blob")
        try:
            content = _content_of(self._path(digest))
        except FileNotFoundError:
            raise NotFound(f"blob `{digest}` is missing: put back the directory `{self._root}` from a backup") from None
        except OSError as error:
            raise explain_file(error, self._path(digest)) from error
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            raise Broken(f"blob `{digest}` was altered: put back `{self._path(digest)}` from a backup")
        return content

    def collect(self, payloads: Iterable[bytes]) -> int:
        """Delete the blobs that are named neither by a payload nor by a blob in use, and return how many were deleted."""
        paths = {path.name: path for path in self._root.glob("??/*")}
        named: set[str] = set()
        unread: list[str] = []

        def note(text: bytes) -> None:
            fresh = {match.decode() for match in _IN_TEXT.findall(text)} & paths.keys() - named
            named.update(fresh)
            unread.extend(fresh)

        for payload in payloads:
            note(payload)
        while unread:
            with contextlib.suppress(FileNotFoundError):
                note(_content_of(paths[unread.pop()]) or b"")
        deleted = 0
        oldest_kept = time.time() - _GRACE_SECONDS
        for name, path in paths.items():
            if name in named:
                continue
            # If someone stores the same bytes right now, they either renew the file's time first or write it again afterwards.
            with contextlib.suppress(FileNotFoundError), _locked(path.parent, fcntl.LOCK_EX):
                if path.stat().st_mtime < oldest_kept:
                    path.unlink()
                    deleted += 1
        return deleted

    def _put(self, content: bytes) -> BlobRef:
        digest = hashlib.sha256(content).hexdigest()
        path = self._path(digest)
        try:
            if not path.parent.exists():
                private_directory(path.parent)
                sync_directory(self._root)
            with _locked(path.parent, fcntl.LOCK_SH):
                if self._is_kept(path, digest):
                    os.utime(path)
                else:
                    self._write(path, content)
            sync_directory(path.parent)
        except OSError as error:
            raise explain_file(error, path) from error
        return BlobRef(digest=digest, size=len(content))

    def _is_kept(self, path: Path, digest: str) -> bool:
        """Tell whether the blob is stored and whole; a damaged one is written again."""
        try:
            content = _content_of(path)
            return content is not None and hashlib.sha256(content).hexdigest() == digest
        except FileNotFoundError:
            return False

    def _write(self, path: Path, content: bytes) -> None:
        draft = path.with_name(f".{secrets.token_hex(8)}")
        descriptor = private_file(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            write_durably(descriptor, content)
            draft.rename(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    def _path(self, digest: str) -> Path:
        return self._root / digest[:2] / digest


def _content_of(path: Path) -> bytes | None:
    """Return the content of a regular file, or None for anything else. Does not block if a pipe is in its place."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ELOOP):
            return None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with open(descriptor, "rb") as file:
        return file.read()


@contextlib.contextmanager
def _locked(directory: Path, how: int) -> Generator[None]:
    """Lock a directory, shared to store blobs or exclusive to delete them. The lock ends with the process."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)
