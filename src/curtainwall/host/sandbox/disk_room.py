"""What a confined family leaves of the disks that it writes to: others have to write there as well, our log among them."""

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

_FEW_NAMES: Final = 10_000
# A disk that is nearly full already is nobody's fault as long as hardly anything is added.
_HARDLY: Final = 16 * 1024 * 1024
_HARDLY_ANY: Final = 1_000


class Room:
    """The disks of some directories, as they were when it began."""

    def __init__(self, directories: Iterable[str], spare: int) -> None:
        self._spare = spare
        self._before: dict[int, tuple[str, int, int]] = {}
        for path in directories:
            with suppress(OSError):
                self._before.setdefault(os.stat(path).st_dev, (path, *_free(path)))

    def missing(self) -> str | None:
        """Return in words which disk is nearly full by now, and was less so before; None where there is room."""
        for path, free, names in self._before.values():
            with suppress(OSError):
                free_now, names_now = _free(path)
                if free_now < self._spare and free_now < free - _HARDLY:
                    return f"the disk with `{path}` has less than {self._spare // (1024 * 1024)} MiB left"
                if names_now < _FEW_NAMES and names_now < names - _HARDLY_ANY:
                    return f"the disk with `{path}` has hardly any room left for names of files"
        return None


def _free(path: str) -> tuple[int, int]:
    """Return the bytes and names that fit; a disk that does not count names has room for all."""
    told = os.statvfs(path)
    return told.f_bavail * told.f_frsize, told.f_favail if told.f_files else 1 << 62
