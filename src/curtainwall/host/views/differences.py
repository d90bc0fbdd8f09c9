"""Collects what differs between a view and its project into a change set: kinds, renames, conflicts, and what can never be applied."""

import stat
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from curtainwall.host.files.beneath import is_there
from curtainwall.host.views.bases import UNKNOWN_BASE, Bases, BaseState
from curtainwall.host.views.sealed import SealedContents
from curtainwall.host.views.states import DirectoryEntry, read_entry
from curtainwall.model import SYNCED_TOGETHER, ChangeKind, ChangeSet, FileChange, FileKind, FileState, ViewFailed, path_order

MOST_CHANGES: Final = 20_000
"""How many paths one change set may have; nobody could review more."""
MOST_BYTES: Final = 2 * 1024 * 1024 * 1024
STAGING: Final = ".curtainwall-"
"""How the name of the directory begins in which new contents wait while changes are applied."""
RESERVED: Final = "its name is one that is used while changes are applied"
_AS_OWNER: Final = stat.S_ISUID | stat.S_ISGID

Spot = tuple[int, str]
"""An open directory, and a name in it."""


def is_git(name: str) -> bool:
    """Tell whether a name is that of a git directory, also where upper and lower case are the same or names have short forms."""
    return name.casefold() in {".git", "git~1"}


@dataclass(slots=True)
class Differences:
    """What differs, path by path; contents are put aside as they are read."""

    project: str
    sealed: SealedContents
    bases: Bases
    git: list[str] = field(default_factory=list[str])
    _changes: list[FileChange] = field(default_factory=list[FileChange])
    _size: int = 0

    def compare(self, path: str, below: Spot | None, above: Spot | None) -> None:
        """Compare what the project has at a path with what the view has."""
        depth = path.count("/")
        now = None if below is None else read_entry(*below, self.sealed, depth)
        then = None if above is None else read_entry(*above, self.sealed, depth)
        base = self._base_of(path, now)
        present, after = _state(now), _state(then)
        if after == present or (base.is_known and after == base.state):
            return
        before = base.state if base.is_known else present
        self._add(
            FileChange(
                path=shown_path(path),
                kind=_kind(before, after),
                before=before,
                after=after,
                is_binary=any(entry is not None and entry.is_binary for entry in (now, then)),
                is_hard_linked=any(entry is not None and entry.is_hard_linked for entry in (now, then)),
                leads_out=then is not None and then.leads_out,
                refusal=_refusal(path, now, then) or _database_fault(below, above),
                conflict=_conflict(base, present),
                present=None if base.is_known and base.state == present else present,
            )
        )

    def refuse(self, path: str, why: str) -> None:
        """Add a path that cannot be read."""
        state = FileState(kind=FileKind.OTHER)
        self._add(FileChange(path=shown_path(path), kind=ChangeKind.MODIFIED, before=None, after=state, refusal=why))

    def change_set(self) -> ChangeSet:
        """Return everything as a change set."""
        changes = sorted(_renamed(self._changes), key=lambda change: path_order(change.path))
        return ChangeSet(project=self.project, changes=tuple(changes), git=tuple(sorted(map(shown_path, self.git))))

    def _add(self, change: FileChange) -> None:
        self._size += sum(state.size for state in (change.before, change.after) if state is not None)
        if len(self._changes) >= MOST_CHANGES or self._size > MOST_BYTES:
            raise ViewFailed(f"the view changes more than {MOST_CHANGES} files or {MOST_BYTES // 1024 // 1024} MiB")
        self._changes.append(change)

    def _base_of(self, path: str, now: DirectoryEntry | None) -> BaseState:
        noted = self.bases.find(path)
        if noted is not None:
            return noted
        if now is not None and self.bases.since is not None and now.changed >= self.bases.since:
            return UNKNOWN_BASE
        return BaseState(_state(now))


def shown_path(path: str) -> str:
    """Return a path as text; bytes that are not UTF-8 are spelled out."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _state(entry: DirectoryEntry | None) -> FileState | None:
    return None if entry is None else entry.state


def _kind(before: FileState | None, after: FileState | None) -> ChangeKind:
    if before is None:
        return ChangeKind.ADDED
    if after is None:
        return ChangeKind.DELETED
    if before.kind is not after.kind:
        return ChangeKind.REPLACED
    return ChangeKind.MODE if before.digest == after.digest else ChangeKind.MODIFIED


def _refusal(path: str, now: DirectoryEntry | None, then: DirectoryEntry | None) -> str:
    if not _is_text(path):
        return "its name is not UTF-8"
    if path.startswith(STAGING):
        return RESERVED
    for entry, where in ((then, "the view"), (now, "the project")):
        if entry is not None and entry.state.kind is FileKind.OTHER:
            return f"it is a device, a socket or a named pipe in {where}"
        if entry is not None and entry.fault:
            return f"it cannot be read in {where}: {entry.fault}"
    if then is not None and then.state.kind is FileKind.FILE and then.state.mode & _AS_OWNER:
        return "it would run with the rights of its owner or group (setuid or setgid)"
    return ""


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _database_fault(below: Spot | None, above: Spot | None) -> str:
    """Return why a file that belongs to a database in use cannot be applied."""
    for spot in (below, above):
        if spot is not None and (beside := database_part(*spot)):
            return f"it belongs to a database that is in use: `{shown_path(beside)}` is beside it"
    return ""


def database_part(directory: int, name: str) -> str:
    """Return the name of a file beside this one that makes both of them parts of a database in use, or nothing."""
    for suffix in SYNCED_TOGETHER:
        if is_there(directory, f"{name}{suffix}"):
            return f"{name}{suffix}"
        if name.endswith(suffix) and is_there(directory, name.removesuffix(suffix)):
            return name.removesuffix(suffix)
    return ""


def _conflict(base: BaseState, present: FileState | None) -> str:
    if not base.is_known:
        return "the project changed there while the agent worked, so nobody knows what the agent started from"
    return "" if base.state == present else "the project changed there after the agent had started from it"


def _renamed(changes: list[FileChange]) -> list[FileChange]:
    """Return the changes, with each file that was deleted in one place and is in another one now as one change."""
    by_path = sorted(changes, key=lambda change: change.path)
    gone: dict[tuple[str, int], list[FileChange]] = defaultdict(list)
    for change in by_path:
        if change.kind is ChangeKind.DELETED and (content := _content_of(change, change.before)) is not None:
            gone[content].append(change)
    sources: set[str] = set()
    merged: dict[str, FileChange] = {}
    for change in by_path:
        content = _content_of(change, change.after) if change.kind is ChangeKind.ADDED else None
        if content is None or (source := _nearest(gone[content], change.path)) is None:
            continue
        gone[content].remove(source)
        sources.add(source.path)
        merged[change.path] = change.model_copy(
            update={
                "kind": ChangeKind.RENAMED,
                "source": source.path,
                "before": source.before,
                "is_hard_linked": change.is_hard_linked or source.is_hard_linked,
            }
        )
    return [merged.get(change.path, change) for change in changes if change.path not in sources]


def _content_of(change: FileChange, state: FileState | None) -> tuple[str, int] | None:
    """Return what makes two files the same, or None if a change is no part of a rename."""
    if not change.is_applicable or state is None or state.kind is not FileKind.FILE or not state.size:
        return None
    return state.digest, state.mode


def _nearest(candidates: list[FileChange], path: str) -> FileChange | None:
    """Return the deleted file that most likely became this one: of the same name, or the first."""
    free = [each for each in candidates if not path.startswith(f"{each.path}/") and not each.path.startswith(f"{path}/")]
    name = path.rpartition("/")[2]
    return next((each for each in free if each.path.rpartition("/")[2] == name), free[0] if free else None)
