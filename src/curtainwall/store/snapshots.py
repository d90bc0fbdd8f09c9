"""Stores folds of sessions as sealed files beside the database. A file that is not ours or does not match the log counts as missing."""

import contextlib
import glob
import hmac
import json
import os
import stat
import threading
from pathlib import Path
from typing import Final, cast

from curtainwall.model import CurtainwallError, FoldSnapshot, StreamEnd, StreamId, session_of
from curtainwall.store.audit.chain import head_mac
from curtainwall.store.database import STREAM_SHIFT, Reader
from curtainwall.store.home import StorePaths, private_directory, private_file, write_all

_FORMAT: Final = b"fold snapshot 1\n"
_MAC_SIZE: Final = 32
_LARGEST: Final = 8 * 1024 * 1024

_AT = f"""
SELECT CAST(e.hash AS BLOB) FROM head h JOIN entry e ON e.place = (h.id << {STREAM_SHIFT}) + ? WHERE h.stream = ? AND h.seq >= ?
"""  # noqa: S608 - a number of ours


class FileSnapshots:
    """One file per session, in a directory that may be deleted at any time.

    INVARIANT: nothing in a file is parsed before its MAC is verified. The MAC covers the format, the fold's version, the stream, the number
    and hash of the entry at which the fold ends, and the fold itself.
    """

    def __init__(self, home: StorePaths, key: bytes, reader: Reader) -> None:
        self._home = home
        self._key = key
        self._reader = reader

    def load(self, stream: StreamId, fold: str) -> FoldSnapshot | None:
        """Return the stream's snapshot if this fold version made it, its MAC is ours, and the log has the entry at which it ends."""
        path = self._path(stream)
        content = None if path is None else _content_of(path)
        snapshot = None if content is None else self._unseal(content)
        if snapshot is None or (snapshot.stream, snapshot.fold) != (stream, fold):
            return None
        row = self._reader.one(_AT, (snapshot.end.seq, stream, snapshot.end.seq))
        return snapshot if row is not None and row[0] == snapshot.end.hash else None

    def save(self, snapshot: FoldSnapshot) -> bool:
        """Store a snapshot in place of an older one and return whether that worked.

        The file is not synced: if a power failure leaves it half written, its MAC does not match.
        """
        path = self._path(snapshot.stream)
        if path is None or len(snapshot.payload) > _LARGEST:
            return False
        draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_native_id()}")
        try:
            private_directory(path.parent)
            descriptor = private_file(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
            try:
                write_all(descriptor, self._seal(snapshot))
                draft.rename(path)
            finally:
                os.close(descriptor)
                draft.unlink(missing_ok=True)
            if self.end(snapshot.stream) is None:
                # The session was deleted meanwhile, and none of its data may remain.
                self.remove(snapshot.stream)
                return False
        except (OSError, CurtainwallError):
            return False
        return True

    def remove(self, stream: StreamId) -> None:
        """Remove the stream's snapshot, if any, and drafts left by processes that died."""
        path = self._path(stream)
        if path is not None:
            with contextlib.suppress(OSError):
                for each in (path, *path.parent.glob(f".{glob.escape(path.name)}.*")):
                    each.unlink(missing_ok=True)

    def end(self, stream: StreamId) -> StreamEnd | None:
        """Return the log's end according to its sealed head, or None if there is no stream or its head is not ours."""
        columns = "CAST(seq AS INTEGER), CAST(hash AS BLOB), CAST(mac AS BLOB)"
        row = self._reader.one(f"SELECT {columns} FROM head WHERE stream = ?", (stream,))  # noqa: S608 - the text above
        if row is None:
            return None
        seq, digest, mac = row
        is_ours = hmac.compare_digest(mac, head_mac(self._key, stream.encode(), seq, digest))
        return StreamEnd(seq, digest) if is_ours else None

    def _path(self, stream: StreamId) -> Path | None:
        session = session_of(stream)
        return None if session is None else self._home.snapshot(session)

    def _seal(self, snapshot: FoldSnapshot) -> bytes:
        header = [snapshot.stream, snapshot.end.seq, snapshot.end.hash.hex(), snapshot.fold]
        body = json.dumps(header).encode() + b"\n" + snapshot.payload
        return _FORMAT + self._mac(body) + body

    def _unseal(self, content: bytes) -> FoldSnapshot | None:
        """Return the snapshot in a file's content, or None if its MAC does not match."""
        start = len(_FORMAT) + _MAC_SIZE
        mac, body = content[len(_FORMAT) : start], content[start:]
        if not content.startswith(_FORMAT) or not hmac.compare_digest(mac, self._mac(body)):
            return None
        line, _, payload = body.partition(b"\n")
        stream, seq, digest, fold = cast("tuple[str, int, str, str]", json.loads(line))
        return FoldSnapshot(StreamId(stream), StreamEnd(seq, bytes.fromhex(digest)), fold, payload)

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self._key, _FORMAT + body, "sha256")


def _content_of(path: Path) -> bytes | None:
    """Return the content of a regular file, or None for anything else. Does not block if a pipe is in its place."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > 2 * _LARGEST:
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(2 * _LARGEST)
    except OSError:
        return None
    finally:
        os.close(descriptor)
