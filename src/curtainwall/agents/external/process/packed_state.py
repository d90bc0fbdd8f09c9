"""A local agent's files while its conversation is archived: one compressed file in place of the directory."""

import lzma
import os
import shutil
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from curtainwall.agents.external.process.launch import ConversationTaken, ProcessFolders
from curtainwall.host import lock_file
from curtainwall.model import Broken

_LARGEST: Final = 4 * 1024**3
"""How many bytes are packed at most; holes in files count as well, because unpacking fills them."""


def packed_path(folders: ProcessFolders) -> Path:
    """Return where the packed files are, whether there are any or not."""
    return folders.state.with_name(f"{folders.state.name}.tar.xz")


def is_packed(folders: ProcessFolders) -> bool:
    """Tell whether the files are packed."""
    return packed_path(folders).is_file() and _is_empty(folders.state)


def pack_state(folders: ProcessFolders, conversation: str) -> int:
    """Pack an agent's files, and return how many bytes that freed; raise if a process is in the conversation, or they cannot be packed.

    Only files and directories are packed: nothing else that the agent may have put there is worth keeping, or safe to unpack.
    """
    try:
        return _packed(folders, conversation)
    except (OSError, tarfile.TarError, lzma.LZMAError, RecursionError) as error:
        # The agent chose how deep its directories are nested, and whom they let in.
        why = "too many directories lie in each other" if isinstance(error, RecursionError) else str(error)
        raise Broken(f"the files of the agent in `{folders.state}` cannot be packed: {why}") from None


def _packed(folders: ProcessFolders, conversation: str) -> int:
    if folders.state.is_symlink() or _is_empty(folders.state):
        return 0
    folders.locks.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = lock_file(folders.locks / f"{conversation or 'none'}.lock")
    if lock is None:
        raise ConversationTaken("another process is in the conversation; stop it first")
    try:
        before, target = _size(folders.state), packed_path(folders)
        if before > _LARGEST:
            raise Broken(f"the files of the agent in `{folders.state}` are too large to be packed; look what they are")
        temporary = target.with_name(f".{target.name}.new")
        with open(temporary, "wb", opener=_private) as file, tarfile.open(fileobj=file, mode="w:xz", preset=1) as packed:
            packed.add(folders.state, arcname=".", filter=_plain)
            packed.close()
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(target)
        # INVARIANT: the directory vanishes in one step, because where both are there and it is not empty, it counts.
        emptied = folders.state.with_name(f".{folders.state.name}.old")
        shutil.rmtree(emptied, ignore_errors=True)
        folders.state.rename(emptied)
        shutil.rmtree(emptied, ignore_errors=True)
        return max(0, before - target.stat().st_size)
    finally:
        lock.release()


def unpack_state(folders: ProcessFolders) -> None:
    """Unpack an agent's files if they are packed; raise `Broken` if that fails."""
    packed, temporary = packed_path(folders), folders.state.with_name(f".{folders.state.name}.new")
    if not packed.is_file():
        return
    if _is_empty(folders.state):
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir(mode=0o700)
            with tarfile.open(packed, "r:xz") as archive:
                archive.extractall(temporary, filter="data")
            # An empty directory in its place is replaced.
            temporary.rename(folders.state)
        except (OSError, tarfile.TarError, lzma.LZMAError) as error:
            raise Broken(f"the archived files of the agent cannot be unpacked: {error}; they are in `{packed}`") from None
    with suppress(FileNotFoundError):
        packed.unlink()


def _is_empty(directory: Path) -> bool:
    """Tell whether there are no files. Opening a session always creates its directories, even those of an archived one."""
    return not directory.is_dir() or not any(directory.iterdir())


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o700 if entry.isdir() else 0o600
    return entry if entry.isreg() or entry.isdir() else None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _size(directory: Path) -> int:
    return sum(entry.lstat().st_size for entry in directory.rglob("*") if not entry.is_dir())
