"""What takes an applied change set back, compared with what the project has by now. Reads nothing itself."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from curtainwall.model import ChangeKind, ChangeSet, FileChange, FileKind, FileState, PresentFile, path_order, record

Project = Mapping[str, PresentFile]
"""What a project has, by paths relative to it; nothing is where no entry is."""

_CHANGED = "it is no longer as this step left it"
_TAKEN = "something is there by now"
_MORE = "the directory holds more by now"
_NO_WAY = "the directory above it is gone, or something else is in its place"
_NEW_DIRECTORY = 0o755


@record
class Obstacle:
    """Why a change cannot simply be taken back; `is_forcible` if the present state could be overwritten once it was shown."""

    path: str
    why: str
    is_forcible: bool = True


@record
class Reversal:
    """What would be written to take a change set back, and what is in the way. Forced, the obstacles are part of the changes."""

    changes: ChangeSet
    obstacles: tuple[Obstacle, ...] = ()


def paths_of(*wanted: ChangeSet) -> tuple[str, ...]:
    """Return all paths on which taking these changes back depends, with the directories above them."""
    needed: dict[str, None] = {}
    for changes in wanted:
        for change in changes.changes:
            for path in change.paths:
                needed.update(dict.fromkeys((*_above(path), path)))
    return tuple(needed)


def reverse(wanted: ChangeSet, project: Project, *, force: bool) -> Reversal:
    """Compare what is to be written with what the project has. Unforced, the changes are exactly those that are wanted."""
    comparison = _Comparison(wanted, project)
    obstacles = tuple(obstacle for change in wanted.changes if (obstacle := comparison.obstacle(change)) is not None)
    if not force or not obstacles:
        return Reversal(wanted, obstacles)
    return comparison.forced(obstacles)


def after(project: Project, changes: ChangeSet) -> Project:
    """Return what the project has once changes are applied."""
    now = dict(project)
    for change in changes.changes:
        for path in change.paths:
            now.pop(path, None)
    for change in changes.changes:
        if change.after is not None:
            now[change.path] = PresentFile(state=change.after, is_binary=change.is_binary)
    names: dict[str, set[str]] = {path: {*file.names} for path, file in project.items() if file.state.kind is FileKind.DIRECTORY}
    for path in {path for change in changes.changes for path in change.paths}:
        above, _, name = path.rpartition("/")
        known = names.setdefault(above, set())
        known.add(name) if path in now else known.discard(name)
    return {
        path: file.model_copy(update={"names": tuple(sorted(names.get(path, ())))}) if file.state.kind is FileKind.DIRECTORY else file
        for path, file in now.items()
    }


@dataclass(slots=True)
class _Comparison:
    """One wanted change set and the project."""

    wanted: ChangeSet
    project: Project
    goes: set[str] = field(init=False)
    comes: set[str] = field(init=False)

    def __post_init__(self) -> None:
        gone = (path for change in self.wanted.changes for path in change.paths if change.after is None or path == change.source)
        self.goes = {*gone}
        self.comes = {change.path for change in self.wanted.changes if _is_directory(change.after)}

    def obstacle(self, change: FileChange) -> Obstacle | None:
        """Return why a change cannot be applied as it is; what is already as wanted is no obstacle."""
        for path in change.paths:
            file = self.project.get(path)
            if file is not None and (file.fault or file.state.kind is FileKind.OTHER):
                return Obstacle(path, f"it cannot be read: {file.fault}" if file.fault else "it is a device or a socket by now", False)
        present = self._state(change.path)
        if change.source:
            return self._obstacle_to_move(change, present)
        if present == change.after:
            return None
        if change.after is not None and not self._has_way(change.path):
            return Obstacle(change.path, _NO_WAY, self._can_have_way(change.path))
        if _is_directory(change.before) and _is_directory(present) and not _is_directory(change.after):
            return Obstacle(change.path, _MORE, False) if self._rest(change.path) else None
        if present != change.before:
            return Obstacle(change.path, _CHANGED if change.before is not None else _TAKEN, not self._rest(change.path))
        return None

    def forced(self, obstacles: tuple[Obstacle, ...]) -> Reversal:
        """Return changes that lead from what the project has to what is wanted, wherever that is possible."""
        blocked = {obstacle.path for obstacle in obstacles}
        hopeless = {obstacle.path for obstacle in obstacles if not obstacle.is_forcible}
        made: dict[str, FileChange] = {}
        for change in self.wanted.changes:
            if hopeless.intersection(change.paths):
                continue
            if not blocked.intersection(change.paths):
                made[change.path] = change
                continue
            for each in self._from_present(change):
                made.setdefault(each.path, each)
        changes = sorted(made.values(), key=lambda change: path_order(change.path))
        return Reversal(ChangeSet(project=self.wanted.project, changes=tuple(changes)), obstacles)

    def _obstacle_to_move(self, change: FileChange, present: FileState | None) -> Obstacle | None:
        source = self._state(change.source)
        if present == change.after and source is None:
            return None
        if not self._has_way(change.path):
            return Obstacle(change.path, _NO_WAY, self._can_have_way(change.path))
        if source != change.before:
            return Obstacle(change.source, _CHANGED, not self._rest(change.source))
        return None if present is None else Obstacle(change.path, _TAKEN, not self._rest(change.path))

    def _from_present(self, change: FileChange) -> Iterator[FileChange]:
        """Yield what leads from the present state to the wanted one."""
        for above in _above(change.path) if change.after is not None else ():
            if above not in self.comes and above not in self.project:
                yield FileChange(path=above, kind=ChangeKind.ADDED, after=FileState(kind=FileKind.DIRECTORY, mode=_NEW_DIRECTORY))
        targets = [(change.path, change.after)] + ([(change.source, None)] if change.source else [])
        for path, target in targets:
            file = self.project.get(path)
            present = None if file is None else file.state
            if present != target:
                yield FileChange(
                    path=path,
                    kind=_kind(present, target),
                    before=present,
                    after=target,
                    is_binary=change.is_binary or (file is not None and file.is_binary),
                    is_hard_linked=file is not None and file.is_hard_linked,
                    leads_out=change.leads_out and target is not None,
                )

    def _state(self, path: str) -> FileState | None:
        file = self.project.get(path)
        return None if file is None else file.state

    def _rest(self, path: str) -> bool:
        """Tell whether there is a directory that holds what this does not remove."""
        file = self.project.get(path)
        if file is None or file.state.kind is not FileKind.DIRECTORY:
            return False
        inner = [f"{path}/{name}" for name in file.names]
        return any(each not in self.goes or self._rest(each) for each in inner)

    def _has_way(self, path: str) -> bool:
        """Tell whether there is a directory above a path, or one will be."""
        above = path.rpartition("/")[0]
        return not above or above in self.comes or _is_directory(self._state(above))

    def _can_have_way(self, path: str) -> bool:
        """Tell whether the missing directories above a path could be made."""
        return all(above in self.comes or above not in self.project or _is_directory(self._state(above)) for above in _above(path))


def _above(path: str) -> list[str]:
    """Return the directories above a path, the outermost first."""
    names = path.split("/")[:-1]
    return ["/".join(names[: count + 1]) for count in range(len(names))]


def _is_directory(state: FileState | None) -> bool:
    return state is not None and state.kind is FileKind.DIRECTORY


def _kind(before: FileState | None, after: FileState | None) -> ChangeKind:
    if before is None:
        return ChangeKind.ADDED
    if after is None:
        return ChangeKind.DELETED
    if before.kind is not after.kind:
        return ChangeKind.REPLACED
    return ChangeKind.MODE if before.digest == after.digest else ChangeKind.MODIFIED
