"""A view as a copy of the project, for projects that no overlay can lie on; it is brought up to date before each use."""

import json
import os
import stat
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from curtainwall.host.files.beneath import FileOwner, LinkInTheWay, give, open_beneath, open_directory_above
from curtainwall.host.views.bases import Bases, BaseState
from curtainwall.host.views.differences import Differences, Spot, is_git
from curtainwall.host.views.holder import Holder, Layers
from curtainwall.host.views.overlay import delete_tree, failing, project_owner
from curtainwall.host.views.sealed import SealedContents, copy_bytes
from curtainwall.host.views.states import LIST, is_in_state, kind_of, mode_of, read_alike, read_entry
from curtainwall.host.views.upper import MAX_DEPTH
from curtainwall.model import ChangeSet, Entrance, FileKind, FileState, ViewChoice, ViewFailed, ViewMechanism, is_beneath

MOST_FILES: Final = 20_000
MOST_BYTES: Final = 512 * 1024 * 1024
"""The most that is copied."""

_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_TRIES: Final = 3

_Identity = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Copied:
    """One copied path: what it was, and how to tell that the project or the copy has changed since."""

    state: FileState
    project: _Identity
    copy: _Identity


class CopyView:
    """A view that is a copy. Fills `ProjectView`."""

    def __init__(self, project: str, state: Path, reason: str = "", *, can_mount: bool = True) -> None:
        """Prepare a view of a project, by its real path; without `can_mount` only we see it, by a descriptor."""
        self.choice = ViewChoice(mechanism=ViewMechanism.COPY, reason=reason)
        self.sealed = SealedContents(state / "contents")
        self._project = project
        self._state = state
        self._copy = state / "copy"
        self._list = state / "copied.json"
        self._owner = project_owner(project)
        self._can_mount = can_mount
        self._copied = self._load()
        self._holder: Holder | None = None
        self._entrance: Entrance | None = None

    def enter(self) -> Entrance:
        """Bring the copy up to date where the agent has changed nothing, and return the way in; raise `ViewFailed`."""
        if self._entrance is not None:
            return self._entrance
        with failing("the project cannot be copied"):
            self._refresh()
            if not self._can_mount:
                self._entrance = Entrance(self._project, os.open(self._copy, LIST), directory=str(self._copy))
                return self._entrance
        if self._holder is not None and not self._holder.is_alive():
            self._holder.close()
            self._holder = None
        if self._holder is None:
            self._holder = Holder(self._project, self._owner, self._state / "lock")
        root = self._holder.mount(Layers(str(self._copy)))
        self._entrance = replace(self._holder.entrance(root, self._owner), directory=str(self._copy))
        return self._entrance

    def leave(self) -> None:
        """Unmount the copy once nothing works in it any more."""
        entrance, self._entrance = self._entrance, None
        if entrance is not None:
            os.close(entrance.root)
            if self._holder is not None:
                self._holder.unmount()
            with failing("the view cannot be read"):
                self._keep_bases()

    def changes(self, is_left_out: Callable[[str], bool] | None = None) -> ChangeSet:
        """Return what was changed, with the contents put aside; raise `ViewFailed`."""
        known = {path: BaseState(copied.state) for path, copied in self._copied.items()}
        differences = Differences(self._project, self.sealed, Bases(self._list, known=known, is_complete=True))
        seen: set[str] = set()
        closed: list[str] = []
        skip = _Skip(is_left_out, differences.git)
        with failing("the view cannot be read"), self._opened() as (copy, _):
            for path, above, status in _walk(copy, skip.is_skipped, closed):
                seen.add(path)
                copied = self._copied.get(path)
                if copied is None or copied.copy != _identity(status):
                    with self._below(path) as below:
                        differences.compare(path, below, above)
            for path in closed:
                differences.refuse(path, "its directory cannot be listed")
            # What is in a directory that is closed to us is not known to be deleted.
            seen.update(path for path in self._copied if any(is_beneath(path, each) for each in closed))
            for path in self._copied.keys() - seen:
                if not any(skip.is_skipped(each) for each in _lineage(path)):
                    with self._below(path) as below:
                        differences.compare(path, below, None)
        differences.git = sorted({*differences.git})
        return differences.change_set()

    def discard(self, paths: Collection[str] | None = None) -> None:
        """Forget the changes of these paths, or all of them, so that the view shows the project there again."""
        self.leave()
        with failing("the changes cannot be discarded"):
            if paths is None:
                delete_tree(self._copy)
                self._copied.clear()
            else:
                for path in sorted(paths, key=lambda path: path.count("/"), reverse=True):
                    self._forget(path)
            self._save()

    def close(self) -> None:
        """Leave the view and end the process that held its mount; its changes are kept, and it may be entered again."""
        try:
            self.leave()
        finally:
            if self._holder is not None:
                self._holder.close()
                self._holder = None

    def _keep_bases(self) -> None:
        """Put aside what the project has where the agent has changed something, before the user changes it too."""
        same: set[str] = set()
        recognized: dict[str, _Copied] = {}
        with self._opened() as (copy, _):
            for path, spot, status in _walk(copy, lambda _: False, []):
                copied = self._copied.get(path)
                if copied is not None and copied.copy == _identity(status):
                    same.add(path)
                elif copied is not None and (as_it_is := self._recognize(path, copied, spot, status)) is not None:
                    recognized[path] = as_it_is
        if recognized:
            # What the user changes there from now on reaches the copy.
            self._copied.update(recognized)
            self._save()
            same |= recognized.keys()
        for path in self._copied.keys() - same:
            with self._below(path) as below:
                status = None if below is None else _status(*below)
                if below is not None and status is not None and self._copied[path].project == _identity(status):
                    read_entry(*below, self.sealed)

    def _recognize(self, path: str, copied: _Copied, spot: Spot, status: os.stat_result) -> _Copied | None:
        """Return what is known of a file that is what was copied, or what the project has now: it was only touched, or changed back."""
        if is_in_state(spot, copied.state):
            return replace(copied, copy=_identity(status))
        with self._below(path) as below:
            present = None if below is None else _status(*below)
            if below is None or present is None or (state := read_alike(below, spot)) is None:
                return None
            return _Copied(state, _identity(present), _identity(status))

    def _refresh(self) -> None:
        with self._opened() as (copy, project):
            status = os.fstat(project)
            if os.geteuid() == 0:
                os.fchown(copy, status.st_uid, status.st_gid)
            os.fchmod(copy, stat.S_IMODE(status.st_mode))
            seen: set[str] = set()
            size = 0
            for path, spot, status in _walk(project, lambda _: False):
                seen.add(path)
                size += status.st_size if stat.S_ISREG(status.st_mode) else 0
                if len(seen) > MOST_FILES or size > MOST_BYTES:
                    raise ViewFailed(f"the project has more than {MOST_FILES} files or {MOST_BYTES // 1024 // 1024} MiB")
                copied = self._copied.get(path)
                if copied is None or copied.project != _identity(status):
                    self._bring(path, spot, copy, copied)
            for path in sorted(self._copied.keys() - seen, key=lambda path: path.count("/"), reverse=True):
                self._take_away(path, copy)
        self._save()

    def _bring(self, path: str, spot: Spot, copy: int, copied: _Copied | None) -> None:
        """Copy one entry of the project, unless the agent has changed it."""
        with _inside(copy, path) as place:
            if place is None:
                return
            parent, name = place
            present = _status(parent, name)
            if copied is not None and (present is None or copied.copy != _identity(present)):
                return
            if copied is None and present is not None:
                return
            made = _copy_entry(spot, parent, name, self._owner)
            if made is not None:
                self._copied[path] = made

    def _take_away(self, path: str, copy: int) -> None:
        """Delete what the project does not have any more, unless the agent has changed it."""
        with _inside(copy, path) as place:
            present = None if place is None else _status(*place)
            if place is None or present is None:
                self._copied.pop(path)
            elif self._copied[path].copy == _identity(present):
                with suppress(OSError):
                    _delete(*place)
                    self._copied.pop(path)

    def _forget(self, path: str) -> None:
        self._copied.pop(path, None)
        with self._opened() as (copy, _), _inside(copy, path) as place:
            if place is not None:
                # What else was changed in a directory stays.
                with suppress(OSError):
                    _delete(*place)

    @contextmanager
    def _below(self, path: str) -> Generator[Spot | None]:
        try:
            with open_directory_above(f"{self._project}/{path}") as spot:
                yield spot
        except (FileNotFoundError, NotADirectoryError, LinkInTheWay):
            yield None

    @contextmanager
    def _opened(self) -> Generator[tuple[int, int]]:
        self._copy.mkdir(mode=0o700, exist_ok=True)
        project = open_beneath(self._project, LIST)
        try:
            copy = os.open(self._copy, LIST)
            try:
                yield copy, project
            finally:
                os.close(copy)
        finally:
            os.close(project)

    def _load(self) -> dict[str, _Copied]:
        try:
            stored = json.loads(self._list.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return {
            path: _Copied(FileState.model_validate(state), tuple(project), tuple(copy)) for path, (state, project, copy) in stored.items()
        }

    def _save(self) -> None:
        draft = self._list.with_suffix(".new")
        stored = {path: (each.state.model_dump(mode="json"), each.project, each.copy) for path, each in self._copied.items()}
        with draft.open("w", encoding="utf-8") as file:
            json.dump(stored, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._list)


@dataclass(frozen=True, slots=True)
class _Skip:
    """Which paths a change set does not have."""

    is_left_out: Callable[[str], bool] | None
    git: list[str]

    def is_skipped(self, path: str) -> bool:
        """Tell whether a path is left out, and note changed git directories."""
        if is_git(path.rpartition("/")[2]):
            self.git.append(path)
            return True
        return self.is_left_out is not None and self.is_left_out(path)


def _walk(root: int, is_skipped: Callable[[str], bool], closed: list[str] | None = None) -> Iterator[tuple[str, Spot, os.stat_result]]:
    """Yield everything beneath an open directory on the same disk, parents first.

    With a list, directories that are closed to us are added to that instead.
    """
    device = os.fstat(root).st_dev

    def walk(directory: int, above: str, depth: int) -> Iterator[tuple[str, Spot, os.stat_result]]:
        if depth > MAX_DEPTH:
            raise ViewFailed(f"there are directories that are more than {MAX_DEPTH} levels deep")
        for name in sorted(os.listdir(directory)):
            path = f"{above}{name}"
            status = _status(directory, name)
            if status is None or is_skipped(path):
                continue
            if closed is not None and stat.S_ISDIR(status.st_mode) and not _may_look_into(directory, name):
                closed.append(path)
                continue
            yield path, (directory, name), status
            if stat.S_ISDIR(status.st_mode) and status.st_dev == device:
                try:
                    inner = os.open(name, LIST, dir_fd=directory)
                except OSError:
                    continue
                try:
                    yield from walk(inner, f"{path}/", depth + 1)
                finally:
                    os.close(inner)

    return walk(root, "", 0)


@contextmanager
def _inside(copy: int, path: str) -> Generator[Spot | None]:
    """Open the directory of the copy that holds a path, without following a link; None if there is none."""
    *above, name = path.split("/")
    here = os.dup(copy)
    try:
        for each in above:
            try:
                inner = os.open(each, LIST, dir_fd=here)
            except OSError:
                yield None
                return
            os.close(here)
            here = inner
        yield here, name
    finally:
        os.close(here)


def _copy_entry(spot: Spot, parent: int, name: str, owner: FileOwner) -> _Copied | None:
    """Copy a file, link or empty directory; None if it is neither, or cannot be read."""
    given = owner if os.geteuid() == 0 else None
    status = os.stat(spot[1], dir_fd=spot[0], follow_symlinks=False)
    kind = kind_of(status)
    present = _status(parent, name)
    if present is not None and (kind is not FileKind.DIRECTORY or not stat.S_ISDIR(present.st_mode)):
        try:
            _delete(parent, name)
        except OSError:
            return None
        present = None
    state = FileState(kind=kind, mode=mode_of(status))
    match kind:
        case FileKind.OTHER:
            return None
        case FileKind.LINK:
            os.symlink(os.readlink(spot[1], dir_fd=spot[0]), name, dir_fd=parent)
            if given is not None:
                os.chown(name, given.user, given.group, dir_fd=parent, follow_symlinks=False)
            entry = read_entry(parent, name)
            assert entry is not None
            state = entry.state
        case FileKind.DIRECTORY:
            if present is None:
                os.mkdir(name, 0o700, dir_fd=parent)
            made = os.open(name, LIST, dir_fd=parent)
            try:
                give(made, given)
                os.fchmod(made, status.st_mode & 0o777)
            finally:
                os.close(made)
        case FileKind.FILE:
            copied = _copy_file(spot, parent, name, given)
            if copied is None:
                return None
            status, state = copied
    return _Copied(state, _identity(status), _identity(os.stat(name, dir_fd=parent, follow_symlinks=False)))


def _copy_file(spot: Spot, parent: int, name: str, owner: FileOwner | None) -> tuple[os.stat_result, FileState] | None:
    """Copy a file, again if somebody writes to it meanwhile."""
    try:
        opened = os.open(spot[1], _READ, dir_fd=spot[0])
    except PermissionError:
        return None
    try:
        tries = 0
        while True:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=parent)
            status = os.fstat(opened)
            made = os.open(name, _CREATE, 0o600, dir_fd=parent)
            try:
                os.lseek(opened, 0, os.SEEK_SET)
                digest, size = copy_bytes(opened, made)
                give(made, owner)
                os.fchmod(made, status.st_mode & 0o7777)
                os.utime(made, ns=(status.st_atime_ns, status.st_mtime_ns))
            finally:
                os.close(made)
            tries += 1
            # What is still being written then is brought again at the next use: it will have changed.
            if tries == _TRIES or _identity(os.fstat(opened)) == _identity(status):
                return status, FileState(kind=FileKind.FILE, digest=digest, mode=mode_of(status), size=size)
    finally:
        os.close(opened)


def _delete(directory: int, name: str) -> None:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        os.rmdir(name, dir_fd=directory)
    else:
        os.unlink(name, dir_fd=directory)


def _identity(status: os.stat_result) -> _Identity:
    """Return what differs once something was changed; a directory changes with its entries, which are looked at themselves."""
    if stat.S_ISDIR(status.st_mode):
        return (stat.S_IFDIR, mode_of(status))
    return (status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _may_look_into(directory: int, name: str) -> bool:
    return os.access(name, os.R_OK | os.X_OK, dir_fd=directory, effective_ids=True, follow_symlinks=False)


def _status(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _lineage(path: str) -> Iterator[str]:
    """Yield the directories above a path, from the top, and the path."""
    names = path.split("/")
    for count in range(1, len(names) + 1):
        yield "/".join(names[:count])
