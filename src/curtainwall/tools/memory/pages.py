"""One file of a memory: read within bounds and without following links, replaced whole."""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from curtainwall.host import replace_file
from curtainwall.tools.memory.entries import Damaged, Note, read_notes
from curtainwall.tools.runners import CannotDo

MOST_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Page:
    """One file of a memory as it is now; `skipped` says what in it could not be read."""

    name: str
    path: str
    notes: Sequence[Note] = ()
    skipped: Sequence[str] = ()


def page_at(name: str, path: Path) -> Page:
    """Return a page under a name for it; one that cannot be read has no notes, and says why."""
    try:
        content = content_of(path)
    except CannotDo as fault:
        return Page(name, str(path), skipped=(str(fault),))
    notes: list[Note] = []
    skipped: list[str] = []
    for each in read_notes((content or b"").decode("utf-8", "replace")):
        if isinstance(each, Damaged):
            skipped.append(f"the note at line {each.line} of `{path}` is passed over: {each.why}")
        else:
            notes.append(each)
    return Page(name, str(path), tuple(notes), tuple(skipped))


def content_of(path: Path) -> bytes | None:
    """Return a page's content, or None where there is none yet; raise `CannotDo` for what is no page of ours."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise CannotDo(f"`{path}` cannot be read ({(fault.strerror or '').lower()}); nothing in it is recalled") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CannotDo(f"`{path}` is no file; nothing in it is recalled")
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise CannotDo(f"`{path}` is bigger than {MOST_BYTES // 1024} KiB; nothing in it is recalled until somebody shortens it")
    return content


def write_page(path: Path, content: bytes) -> None:
    """Put content in the place of a page's; raise `CannotDo` where it is too much, and then nothing is changed."""
    if len(content) > MOST_BYTES:
        raise CannotDo(f"this memory is full ({MOST_BYTES // 1024} KiB): the person can shorten `{path}`")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if not path.exists():
        path.touch(mode=0o600)
    replace_file(str(path), content)
