"""Forgetting: a person takes notes out of the pages; until they are gone for good, each can be put back as it was."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, cast

from curtainwall.host import locked
from curtainwall.model import Millis, NotFound
from curtainwall.tools.memory.entries import put_back, taken_out
from curtainwall.tools.memory.pages import MOST_BYTES, Page, content_of, write_page
from curtainwall.tools.runners import CannotDo

_KEPT: Final = "forgotten.jsonl"


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A note that nobody can recall: the file and the line where it stood, since when it is gone, and its part of that file."""

    name: str
    file: str
    line: int
    at: Millis
    text: str


class Forgetting:
    """What was taken out of the memory of one home, oldest first; so much of it is kept as a page can hold."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def forgotten(self) -> Sequence[Forgotten]:
        """Return what can be put back."""
        lines = (content_of(self._root / _KEPT) or b"").decode("utf-8", "replace").splitlines()
        return tuple(read for line in lines if (read := _read(line)) is not None)

    def forget(self, name: str, pages: Sequence[Page], at: Millis, *, for_good: bool) -> None:
        """Take a note out of the pages that have it, and where that is for good, out of what can be put back."""
        with locked(self._root / ".lock"):
            kept = list(self.forgotten())
            found = [(path, *taken_out(_text(path), name)) for path in (Path(page.path) for page in pages)]
            taken = [Forgotten(name, str(path.relative_to(self._root)), line, at, note) for path, _, note, line in found if note]
            # Kept before it is taken out: whatever becomes of us, the note is in one of the two places.
            self._keep([it for it in kept if it.name != name] if for_good else [*kept, *taken])
            for path, rest, note, _ in found:
                if note:
                    write_page(path, rest.encode())

    def undo(self, name: str | None = None) -> Forgotten:
        """Put back the note of that name, or the last one that was forgotten, and return it."""
        with locked(self._root / ".lock"):
            kept = list(self.forgotten())
            last = next((it for it in reversed(kept) if name in (None, it.name)), None)
            if last is None:
                raise NotFound(f"no note `{name}` was forgotten" if name else "nothing was forgotten that could be put back")
            path = self._root / last.file
            before = _text(path)
            if not taken_out(before, last.name)[1]:
                write_page(path, put_back(before, last.text, last.line).encode())
            kept.remove(last)
            self._keep(kept)
        return last

    def _keep(self, kept: Sequence[Forgotten]) -> None:
        lines = [json.dumps(asdict(it)).encode() + b"\n" for it in kept]
        while sum(map(len, lines)) > MOST_BYTES:
            del lines[0]
        if lines or (self._root / _KEPT).exists():
            write_page(self._root / _KEPT, b"".join(lines))


def _text(path: Path) -> str:
    try:
        return (content_of(path) or b"").decode()
    except UnicodeDecodeError:
        raise CannotDo(f"`{path}` is not written in UTF-8, so what is not meant would be changed along; edit it by hand") from None


def _read(kept: str) -> Forgotten | None:
    try:
        read: object = json.loads(kept)
    except (ValueError, RecursionError):
        return None
    told = cast("dict[str, object]", read) if isinstance(read, dict) else {}
    name, file, line, at, text = (told.get(key) for key in ("name", "file", "line", "at", "text"))
    if not (isinstance(name, str) and isinstance(file, str) and type(line) is int and type(at) is int and isinstance(text, str)):
        return None
    # It leads to a page of this memory, and nowhere else.
    return None if file.startswith("/") or ".." in Path(file).parts else Forgotten(name, file, line, at, text)
