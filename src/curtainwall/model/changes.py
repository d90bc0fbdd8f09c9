"""Change sets: what an agent changed in its view of a project, file by file, and the digest that an approval is bound to."""

import hashlib
from collections.abc import Collection
from enum import StrEnum
from typing import Final

from curtainwall.model.frozen import Frozen
from curtainwall.model.subjects import Digest, canonical_json

SYNCED_TOGETHER: Final = ("-wal", "-journal")
"""What a database keeps in files beside it; the database alone would be torn."""


class FileKind(StrEnum):
    """What a path is; `OTHER` is a device, a socket or a named pipe."""

    FILE = "file"
    LINK = "link"
    DIRECTORY = "directory"
    OTHER = "other"


class FileState(Frozen):
    """What is at a path: the digest covers a file's bytes or a link's target, and the mode counts for files and directories."""

    kind: FileKind
    digest: str = ""
    mode: int = 0
    size: int = 0


class ChangeKind(StrEnum):
    """How a path changed; `REPLACED` means that it is of another kind now, such as a link in place of a file."""

    ADDED = "added"
    MODIFIED = "modified"
    MODE = "mode"
    RENAMED = "renamed"
    REPLACED = "replaced"
    DELETED = "deleted"


class FileChange(Frozen):
    """One changed path, relative to the project.

    `before` is what the agent's work started from. A `conflict` says that the project has something else there by now, `present`; a
    `refusal` says why the change can never be applied. A renamed file has the same content, kind and mode as `source` had. A link that
    `leads_out` could lead out of the project.
    """

    path: str
    kind: ChangeKind
    before: FileState | None = None
    after: FileState | None = None
    source: str = ""
    is_binary: bool = False
    is_hard_linked: bool = False
    leads_out: bool = False
    refusal: str = ""
    conflict: str = ""
    present: FileState | None = None

    @property
    def is_applicable(self) -> bool:
        """Tell whether this can be applied if the project stays as it is."""
        return not self.refusal and not self.conflict

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths that it writes or deletes."""
        return (self.source, self.path) if self.source else (self.path,)


class ChangeSet(Frozen):
    """Everything that a view changes in a project, in the order of the paths, parents first. `git` are changed git directories."""

    project: str
    changes: tuple[FileChange, ...] = ()
    git: tuple[str, ...] = ()
    left_out: int = 0
    """How many changed files and directories the user's ignore rules leave out; the digest does not depend on it."""

    @property
    def digest(self) -> Digest:
        """Return the digest of every file before and after."""
        return Digest(hashlib.sha256(canonical_json(self.model_dump(mode="json", exclude={"left_out"}))).hexdigest())

    @property
    def contents(self) -> frozenset[str]:
        """Return the digests of all contents that it refers to, before and after."""
        states = [state for change in self.changes for state in (change.before, change.after, change.present) if state is not None]
        return frozenset(state.digest for state in states if state.kind is FileKind.FILE and state.digest)

    def only(self, paths: Collection[str]) -> "ChangeSet":
        """Return the changes of these paths, with the directories that they need above them."""
        chosen = {*paths}
        by_path = {change.path: change for change in self.changes}
        for path in paths:
            if path in by_path and by_path[path].after is not None:
                above = path
                while above := above.rpartition("/")[0]:
                    if above in by_path and by_path[above].kind in {ChangeKind.ADDED, ChangeKind.REPLACED}:
                        chosen.add(above)
        return ChangeSet(project=self.project, changes=tuple(change for change in self.changes if change.path in chosen))

    def inverse(self, paths: Collection[str] | None = None) -> "ChangeSet":
        """Return what takes these changes back, or those of some paths: each path becomes again what it was before."""
        taken = [_inverse_of(change) for change in self.changes if paths is None or change.path in paths]
        return ChangeSet(project=self.project, changes=tuple(sorted(taken, key=lambda change: path_order(change.path))))


_INVERSE: Final = {
    ChangeKind.ADDED: ChangeKind.DELETED,
    ChangeKind.DELETED: ChangeKind.ADDED,
}


def _inverse_of(change: FileChange) -> FileChange:
    path, source = (change.source, change.path) if change.source else (change.path, "")
    return FileChange(
        path=path,
        source=source,
        kind=_INVERSE.get(change.kind, change.kind),
        before=change.after,
        after=change.before,
        is_binary=change.is_binary,
    )


def path_order(path: str) -> tuple[str, ...]:
    """Return what sorts paths so that a directory comes directly before everything in it."""
    return tuple(path.split("/"))


class PresentFile(Frozen):
    """What a project has at a path; `names` are those in a directory, and `fault` says why it cannot be read."""

    state: FileState
    names: tuple[str, ...] = ()
    is_binary: bool = False
    is_hard_linked: bool = False
    fault: str = ""


class ApplyStatus(StrEnum):
    """How applying a change ended for one path."""

    APPLIED = "applied"
    CONFLICT = "conflict"
    REFUSED = "refused"


class AppliedFile(Frozen):
    """How one change ended; at a conflict, `present` is what the project has there and `shown` what was shown as `before`."""

    path: str
    status: ApplyStatus
    reason: str = ""
    shown: FileState | None = None
    present: FileState | None = None


class AppliedChanges(Frozen):
    """How applying a change set ended, for each of its changes."""

    digest: Digest
    files: tuple[AppliedFile, ...] = ()

    @property
    def applied(self) -> tuple[str, ...]:
        """Return the paths that are now as they were shown."""
        return tuple(file.path for file in self.files if file.status is ApplyStatus.APPLIED)

    @property
    def conflicts(self) -> tuple[AppliedFile, ...]:
        """Return the changes that were left alone because the project has something else there."""
        return tuple(file for file in self.files if file.status is ApplyStatus.CONFLICT)


class ViewMechanism(StrEnum):
    """How a view of a project is made; with `NONE` an agent works in the project."""

    OVERLAY = "overlay"
    COPY = "copy"
    NONE = "none"


class ViewChoice(Frozen):
    """The mechanism of a view, and in plain words why it was chosen."""

    mechanism: ViewMechanism
    reason: str
