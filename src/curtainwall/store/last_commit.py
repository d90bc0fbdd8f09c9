"""How many entries were ever written, noted outside the database: by it a log notices that some of its entries are gone."""

import contextlib
import hmac
import os
from pathlib import Path
from typing import Final, NamedTuple, Self

from curtainwall.store.home import private_file

_SIZE: Final = 160
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class Noted(NamedTuple):
    """What the note says: how many entries were ever written, and in which boot of the machine that was."""

    written: int
    boot: str


class CommitNote:
    """The number of the last entry ever written, noted outside the database after each commit.

    It is not synced: it outlives any process, and after a power failure it is at most older than the log, never newer.
    """

    def __init__(self, path: Path, key: bytes) -> None:
        self._path = path
        self._key = key
        self._boot = _boot()
        self._descriptor: int | None = None

    def read(self) -> Noted | None:
        """Return what was noted, or None where nothing was, or it is not ours."""
        try:
            descriptor = private_file(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            text, _, mac = os.read(descriptor, _SIZE).decode("ascii", "replace").rstrip().rpartition(" ")
        except OSError:
            return None
        finally:
            os.close(descriptor)
        written, _, boot = text.partition(" ")
        is_ours = hmac.compare_digest(mac.encode(), self._mac(text).encode())
        return Noted(int(written), boot) if is_ours and written.isdecimal() else None

    def is_of_this_boot(self, noted: Noted) -> bool:
        """Tell whether the machine has run since: only then nothing that was written can have been lost by a power failure."""
        return noted.boot == self._boot != ""

    def write(self, written: int) -> None:
        """Note how many entries were ever written; where that cannot be done, the note stays older, which does no harm."""
        text = f"{written} {self._boot}"
        with contextlib.suppress(OSError):
            if self._descriptor is None:
                self._descriptor = private_file(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK)
            os.pwrite(self._descriptor, f"{text} {self._mac(text)}".ljust(_SIZE - 1).encode() + b"\n", 0)

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _mac(self, text: str) -> str:
        return hmac.digest(self._key, f"commit {text}".encode(), "sha256").hex()


def _boot() -> str:
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""
