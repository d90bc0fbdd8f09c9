"""Describes a change set for people: a summary, each file in words, and the differences between texts, masked and within bounds."""

import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from curtainwall.facts import Masker
from curtainwall.model import (
    ChangeCard,
    ChangeKind,
    ChangeSet,
    FileChange,
    FileKind,
    FileState,
    ShownDifference,
    ShownFile,
    ViewFailed,
    record,
)
from curtainwall.tools.files.diff import unified_difference

ReadContent = Callable[[str], bytes]
"""Returns what a file held, by its digest; raises `ViewFailed`."""

_MOST_LINES_OF_FILE: Final = 200
_MOST_LINES: Final = 600
_LARGE_FILE: Final = 512 * 1024
_LARGEST_WHOLE: Final = 32 * 1024 * 1024
_MOST_READ: Final = 4 * 1024 * 1024
_MOST_NUMBERED: Final = 200_000
_LONGEST_TARGET: Final = 300
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_WORDS: Final[Mapping[ChangeKind, str]] = {
    ChangeKind.ADDED: "added",
    ChangeKind.MODIFIED: "modified",
    ChangeKind.DELETED: "deleted",
    ChangeKind.RENAMED: "renamed",
    ChangeKind.REPLACED: "replaced",
    ChangeKind.MODE: "given other permissions",
}


@record
class _Texts:
    """What a file held before and holds after, masked; `shows_none` says why there is no difference to show."""

    before: str = ""
    after: str = ""
    shows_none: str = ""
    hidden: Mapping[str, str] = field(default_factory=dict[str, str])
    is_utf_8: bool = True


@record
class DescribedChange:
    """One change in words, with all lines of its difference."""

    file: ShownFile
    lines: tuple[str, ...]


@dataclass(slots=True)
class ChangeDescription:
    """Describes one change set; `hidden` has the outline of each masked value that the differences show.

    The differences of the paths in `whole` are shown even if they are long.
    """

    changes: ChangeSet
    later: frozenset[str]
    masker: Masker
    content: ReadContent
    whole: frozenset[str] = frozenset()
    hidden: dict[str, str] = field(default_factory=dict[str, str])
    _masks: dict[str, str] = field(default_factory=dict[str, str])
    _read: int = 0
    _numbered: int = 0

    def card(self, notes: tuple[str, ...]) -> ChangeCard:
        """Return what people are shown, with the files that run later first."""
        files: list[ShownFile] = []
        differences: list[ShownDifference] = []
        room = _MOST_LINES
        for change in self.described():
            files.append(change.file)
            shown = change.lines[: min(_MOST_LINES_OF_FILE, room)]
            room -= len(shown)
            self._note_hidden(shown)
            if change.lines:
                left_out = len(change.lines) - len(shown)
                differences.append(ShownDifference(path=change.file.path, lines=shown, left_out=left_out))
        return ChangeCard(summary=self.summary, files=tuple(files), differences=tuple(differences), notes=notes)

    def described(self) -> Iterator[DescribedChange]:
        """Yield every change with its difference in full, those of files that run later first."""
        for change in sorted(self.changes.changes, key=lambda change: change.path not in self.later):
            words, lines = self._describe(change)
            file = ShownFile(path=change.path, words=words, source=change.source, runs_later=change.path in self.later)
            yield DescribedChange(file, tuple(lines))

    @property
    def summary(self) -> str:
        """Return the change set in a sentence."""
        files = [change for change in self.changes.changes if not _is_directory(change)]
        counts = Counter(_WORDS[change.kind] for change in files)
        parts = [f"{counts[word]} {word}" for word in _WORDS.values() if counts[word]]
        directories = len(self.changes.changes) - len(files)
        beside = [f"{directories} {'directory' if directories == 1 else 'directories'}"] if directories else []
        count = [f"{len(files)} {'file' if len(files) == 1 else 'files'} ({', '.join(parts)})"] if files else []
        return f"{' and '.join((*count, *beside))} in {self.changes.project}"

    def _describe(self, change: FileChange) -> tuple[str, list[str]]:
        """Return a change in words, and the lines of its difference."""
        remarks = [_WORDS[change.kind]]
        lines: list[str] = []
        match change.kind:
            case ChangeKind.ADDED | ChangeKind.DELETED | ChangeKind.MODIFIED:
                lines = self._compare(change, remarks)
            case ChangeKind.RENAMED:
                remarks.append("unchanged")
            case ChangeKind.REPLACED:
                remarks.append(f"{self._kind(change.before)} became {self._kind(change.after)}")
                if FileKind.FILE in {state.kind for state in (change.before, change.after) if state is not None}:
                    # What the file held, or holds now, counts as much as that of any other file.
                    lines = self._compare(change.model_copy(update={"before": _file(change.before), "after": _file(change.after)}), remarks)
            case ChangeKind.MODE:
                pass
        remarks += self._remarks(change)
        return ", ".join(filter(None, remarks)), lines

    def _compare(self, change: FileChange, remarks: list[str]) -> list[str]:
        """Return the lines of a difference, and add what is to be said about it."""
        texts = self._texts(change)
        if texts.shows_none:
            remarks.append(texts.shows_none)
            self.hidden |= texts.hidden
            return []
        lines = [*numbered(unified_difference(texts.before, texts.after, "", in_full=True))]
        if lines:
            remarks += [counts_of(lines), "" if texts.is_utf_8 else "not UTF-8, other bytes are spelled out"]
            self._masks |= texts.hidden
        else:
            self.hidden |= texts.hidden
        return lines

    def _remarks(self, change: FileChange) -> Iterator[str]:
        before, after = change.before, change.after
        if before is not None and after is not None and before.kind is after.kind:
            if before.mode != after.mode:
                yield f"mode {before.mode:o} is {after.mode:o} now"
        elif after is not None:
            if after.kind is FileKind.FILE and after.mode & 0o111:
                yield "executable"
            if after.mode & stat.S_IWOTH:
                yield f"writable by every user (mode {after.mode:o})"
        if change.leads_out:
            yield "the link leads out of the project"
        if change.is_hard_linked:
            yield "it had other names (hard links), which stay as they are"

    def _kind(self, state: FileState | None) -> str:
        if state is None:
            return "nothing"
        return f"a link to {self._target(state)}" if state.kind is FileKind.LINK else f"a {state.kind}"

    def _target(self, state: FileState) -> str:
        try:
            target = self.content(state.digest).decode(errors="backslashreplace")
        except ViewFailed:
            return "a place that is not known any more"
        shown = self.masker.mask_text(target)
        cut = len(shown) - _LONGEST_TARGET
        return f'"{shown}"' if cut <= 0 else f'"{shown[:_LONGEST_TARGET]}…[{cut} more characters]…"'

    def _texts(self, change: FileChange) -> _Texts:
        """Return the texts to compare, or why they are not compared."""
        states = [state for state in (change.before, change.after) if state is not None]
        other = next((state for state in states if state.kind is not FileKind.FILE), None)
        if other is not None:
            if other.kind is FileKind.LINK and change.before is not None and change.after is not None:
                return _Texts(shows_none=f"a link to {self._target(change.after)} instead of {self._target(change.before)}")
            return _Texts(shows_none=self._kind(other))
        sizes = f"{' instead of '.join(f'{state.size:,}' for state in reversed(states))} bytes"
        if change.is_binary:
            return _Texts(shows_none=f"binary, {sizes}")
        is_whole = change.path in self.whole
        if any(state.size > (_LARGEST_WHOLE if is_whole else _LARGE_FILE) for state in states):
            return _Texts(shows_none=f"large, {sizes}")
        # One that is too much must not keep those after it from being compared.
        size = 0 if is_whole else sum(state.size for state in states)
        if self._read + size > _MOST_READ:
            return _Texts(shows_none=f"not compared here, {sizes}")
        self._read += size
        try:
            contents = [None if state is None else self.content(state.digest) for state in (change.before, change.after)]
        except ViewFailed:
            return _Texts(shows_none=f"not readable any more, {sizes}")
        # One byte that is not UTF-8 must not hide all other lines.
        before, after = (None if content is None else content.decode(errors="backslashreplace") for content in contents)
        is_utf_8 = all(content is None or _is_utf_8(content) for content in contents)
        if before == after:
            return _Texts(shows_none=f"not UTF-8 text, {sizes}")
        count = 0 if is_whole else sum(text.count("\n") for text in (before or "", after or ""))
        if self._numbered + count > _MOST_NUMBERED:
            return _Texts(shows_none=f"not compared here, {sizes}")
        self._numbered += count
        hidden: dict[str, str] = {}
        masked: list[str] = []
        for text in (before or "", after or ""):
            shown = self.masker.mask_text(text)
            hidden |= self.masker.outlines(text, shown)
            masked.append(shown)
        if masked[0] == masked[1] and before != after and None not in (before, after):
            return _Texts(shows_none=f"only in what is masked, {sizes}", hidden=hidden)
        return _Texts(masked[0], masked[1], "empty" if not any(masked) else "", hidden, is_utf_8)

    def _note_hidden(self, lines: Iterable[str]) -> None:
        """Note the outlines of what is masked in lines that people are shown."""
        if self._masks:
            shown = "\n".join(lines)
            self.hidden |= {mask: outline for mask, outline in self._masks.items() if mask in shown}
            self._masks.clear()


def _is_utf_8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _file(state: FileState | None) -> FileState | None:
    return state if state is not None and state.kind is FileKind.FILE else None


def _is_directory(change: FileChange) -> bool:
    state = change.after or change.before
    return change.kind is not ChangeKind.REPLACED and state is not None and state.kind is FileKind.DIRECTORY


def numbered(difference: str) -> Iterator[str]:
    """Yield the lines of a unified difference, each with its number before and after, without the head."""
    old = new = 0
    is_begun = False
    for line in difference.split("\n")[2:-1]:
        if hunk := _HUNK.fullmatch(line):
            old, new = int(hunk[1]), int(hunk[2])
            if is_begun:
                yield f"{'':>5} {'':>5}   …"
            is_begun = True
            continue
        mark, text = line[:1], _spelt(line[1:])
        match mark:
            case "-":
                yield f"{old:>5} {'':>5} - {_with_end(text)}"
                old += 1
            case "+":
                yield f"{'':>5} {new:>5} + {_with_end(text)}"
                new += 1
            case " ":
                yield f"{old:>5} {new:>5}   {text}"
                old, new = old + 1, new + 1
            case _:
                # A remark of ours: no line feed at the end, or too much to compare.
                yield f"{'':>5} {'':>5} ! {line.removeprefix(_NO_END).strip()}"


_NO_END: Final = "\\ "
_NUMBERS: Final = 12


def counts_of(lines: Iterable[str]) -> str:
    """Return how many lines of a difference are new and gone."""
    marks = Counter(line[_NUMBERS : _NUMBERS + 1] for line in lines)
    return f"+{marks['+']} -{marks['-']}"


def _spelt(text: str) -> str:
    return text.replace("\t", "→   ")


def _with_end(text: str) -> str:
    """Return a changed line with blanks at its end made visible."""
    bare = text.rstrip(" ")
    return bare + "\\x20" * (len(text) - len(bare))
