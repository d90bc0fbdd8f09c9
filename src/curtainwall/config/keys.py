"""Keys of this house: made once, readable by us alone, the same for every process."""

import contextlib
import os
import secrets
from pathlib import Path

from curtainwall.model import Broken

_SIZE = 32


def house_key(path: Path) -> bytes:
    """Return the key in a file, making it where there is none; of two processes that do so at once, both get the same."""
    for _ in range(2):
        found = existing_key(path)
        if found is not None:
            return found
        draft = path.with_name(f".{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, secrets.token_bytes(_SIZE))
            os.fsync(descriptor)
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
        finally:
            os.close(descriptor)
            draft.unlink()
    raise Broken(f"the key `{path}` cannot be made")


def existing_key(path: Path) -> bytes | None:
    """Return the key in a file, or None where there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Broken(f"the key `{path}` cannot be read: {error.strerror}") from None
    try:
        key = os.read(descriptor, _SIZE + 1)
    finally:
        os.close(descriptor)
    if len(key) != _SIZE:
        raise Broken(f"the key `{path}` is damaged; put it back from a backup, or remove it and let a new one be made")
    return key
