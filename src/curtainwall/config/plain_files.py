"""Files of the configuration are plain files: a pipe, a device or a directory in their place is refused, and never waited for."""

import errno
import os
import stat
from pathlib import Path

_BIGGEST = 16 * 1024 * 1024


def read_plain(path: Path, most: int = _BIGGEST) -> bytes:
    """Return what a regular file holds; raise OSError for anything else, and for one that is bigger."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(most + 1)
    finally:
        os.close(descriptor)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is bigger than {most} bytes", str(path))
    return content
