"""Applies a change set to its project: every file exactly as it was shown, or not at all, also after a crash at any point.

A new content is put into place by exchanging it with what is there. What comes out is compared with the shown "before"; if it is anything
else, somebody saved meanwhile: it goes back, and the change is reported as a conflict. What is being exchanged lies in a staging directory
in the project, under a name that depends on the change set alone, so another process can finish what a dead one began.
"""

import errno
import fcntl
import os
import signal
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from curtainwall.host.files.beneath import (
    FileOwner,
    LinkInTheWay,
    exchange_entries,
    open_beneath,
    open_directory_above,
    owner_of,
    rename_if_free,
    sync_file_system,
)
from curtainwall.host.views.differences import RESERVED, STAGING, database_part, is_git
from curtainwall.host.views.sealed import ContentsLost, SealedContents
from curtainwall.host.views.states import LIST, digest_of, kind_of, mode_of, read_entry
from curtainwall.model import (
    AppliedChanges,
    AppliedFile,
    ApplyStatus,
    ChangeKind,
    ChangeSet,
    FileChange,
    FileKind,
    FileState,
    TryLater,
    ViewFailed,
    path_order,
)

_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_AS_OWNER: Final = stat.S_ISUID | stat.S_ISGID
_LONGEST_NAME: Final = 255
_ROUNDS: Final = 16

_CHANGED: Final = "the project has something else there than what was shown"
_TAKEN: Final = "something is there by now"
_OPEN: Final = "another program has it open for writing"
_NOT_EMPTY: Final = "the directory is not empty"
_NO_WAY: Final = "the directory above it is gone, or a link or another disk is in its place"


def apply_changes(changes: ChangeSet, sealed: SealedContents) -> AppliedChanges:
    """Apply every change that can be applied, durably, and return how each of them ended.

    What is already as it was shown counts as applied, so this may be repeated after a crash until it returns. Raise `TryLater` if the disk
    is full or fails, and `ViewFailed` if the project cannot be written at all.
    """
    steps = apply_in_steps(changes, sealed)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: AppliedChanges = end.value
            return result


def apply_in_steps(changes: ChangeSet, sealed: SealedContents) -> Generator[str, None, AppliedChanges]:
    """Apply changes, and yield after each step on disk the path that it was for."""
    try:
        with _Application.open(changes, sealed) as application:
            yield from application.run()
            return AppliedChanges(digest=changes.digest, files=tuple(application.results[each.path] for each in changes.changes))
    except OSError as fault:
        if fault.errno in _PASSING:
            raise TryLater(f"the changes are not applied yet: {(fault.strerror or 'unknown').lower()}") from fault
        raise ViewFailed(f"the project cannot be written: {(fault.strerror or 'unknown').lower()}") from fault


_Work = Callable[[FileChange, str], Iterator[None]]


class _Conflict(Exception):
    """The project has something else than what was shown."""

    def __init__(self, reason: str, present: FileState | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.present = present


@dataclass(slots=True)
class _Application:
    """One change set on its way into a project."""

    changes: ChangeSet
    sealed: SealedContents
    root: int
    staging: int
    device: int
    owner: FileOwner | None
    results: dict[str, AppliedFile] = field(default_factory=dict[str, AppliedFile])

    @classmethod
    @contextmanager
    def open(cls, changes: ChangeSet, sealed: SealedContents) -> Generator["_Application"]:
        """Open the project and the staging directory; remove that again once everything is settled."""
        with ExitStack() as stack:
            root = _opened(stack, open_beneath(changes.project, LIST))
            name = f"{STAGING}{changes.digest[:32]}"
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=root)
            staging = _opened(stack, os.open(name, LIST, dir_fd=root))
            owner = owner_of(root)
            if owner is not None:
                os.fchown(staging, owner.user, owner.group)
            try:
                yield cls(changes, sealed, root, staging, os.fstat(root).st_dev, owner)
            finally:
                # It stays where something in it still has to be settled.
                with suppress(OSError):
                    os.rmdir(name, dir_fd=root)
            sync_file_system(root)

    def run(self) -> Iterator[str]:
        """Settle every change."""
        numbered = {change.path: str(number) for number, change in enumerate(self.changes.changes)}
        waiting: list[FileChange] = []
        for change in self.changes.changes:
            refusal = change.refusal or _refusal(change)
            if refusal:
                self._end(change, ApplyStatus.REFUSED, refusal)
            elif change.conflict:
                self._end(change, ApplyStatus.CONFLICT, change.conflict, change.present)
            else:
                waiting.append(change)
        # INVARIANT: first everything that a dead process left behind, then all new contents, and only then the first change. So a full disk
        # is noticed while the project is still untouched, and after a power cut no file has a name without its content.
        yield from self._each(waiting, numbered, self._recover)
        try:
            yield from self._each(waiting, numbered, self._stage)
            self.sealed.sync_unless_on(self.device)
            sync_file_system(self.root)
        except OSError:
            for change in waiting:
                self._clear(change, numbered[change.path])
            raise
        # A directory can go once everything in it was moved or deleted.
        for stage in _stages(waiting):
            yield from self._each(stage, numbered, self._put)

    def _each(self, changes: list[FileChange], numbered: dict[str, str], work: _Work) -> Iterator[str]:
        for change in changes:
            if change.path in self.results:
                continue
            try:
                for _ in work(change, numbered[change.path]):
                    yield change.path
            except _Conflict as conflict:
                self._clear(change, numbered[change.path])
                self._end(change, ApplyStatus.CONFLICT, conflict.reason, conflict.present)
                yield change.path
            except ContentsLost:
                self._clear(change, numbered[change.path])
                self._end(change, ApplyStatus.REFUSED, "its contents were kept, and are lost or damaged")
            except OSError as fault:
                if fault.errno in _PASSING:
                    raise
                self._clear(change, numbered[change.path])
                no_way = isinstance(fault, FileNotFoundError | NotADirectoryError | LinkInTheWay)
                reason = _NO_WAY if no_way else f"it cannot be written: {(fault.strerror or 'unknown').lower()}"
                self._end(change, ApplyStatus.CONFLICT, reason)

    # ── after a crash ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _recover(self, change: FileChange, number: str) -> Iterator[None]:
        """Finish or take back what a dead process had begun with this change."""
        with suppress(FileNotFoundError):
            _unlink(self.staging, f"{number}.part")
        if self._state(f"{number}.source") is not None:
            yield from self._recover_source(change, number)
        left = self._state(number)
        if left is None:
            return
        if change.kind is ChangeKind.DELETED:
            # It had been moved here, and maybe not yet been looked at.
            if left != change.before:
                self._put_back(change.path, number)
                raise _Conflict(_CHANGED, left)
            _unlink(self.staging, number)
            self._end(change, ApplyStatus.APPLIED)
            yield
            return
        if left == change.after or change.before is None or change.source:
            # Our own, not yet in place.
            _unlink(self.staging, number)
            yield
            return
        with self._above(change.path) as (parent, name):
            present = _entry_state(parent, name)
            if present != change.after:
                # Somebody saved again over what we had put there. Theirs stays; what came out before is kept under its digest.
                self._set_aside(number)
                raise _Conflict(_CHANGED, present)
            with suppress(OSError):
                if left == change.before:
                    _unlink(self.staging, number)
                    self._end(change, ApplyStatus.APPLIED)
                    yield
                    return
            self._exchange_back(parent, name, number, _identity(parent, name))
            raise _Conflict(_CHANGED, left)

    def _recover_source(self, change: FileChange, number: str) -> Iterator[None]:
        left = self._state(f"{number}.source")
        if left == change.before and self._present(change.path) == change.after:
            _unlink(self.staging, f"{number}.source")
            self._end(change, ApplyStatus.APPLIED)
            yield
            return
        self._put_back(change.source, f"{number}.source")
        if left != change.before:
            raise _Conflict(_CHANGED, left)
        yield

    # ── new contents ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _stage(self, change: FileChange, number: str) -> Iterator[None]:
        """Look at the project, and put the new content, link or directory into the staging directory."""
        if change.kind is ChangeKind.DELETED or _is_directory_mode(change):
            self._require_before(change)
            return
        if self._require_before(change) is ApplyStatus.APPLIED:
            return
        after = change.after
        assert after is not None
        # The directory above may be one that this set makes: then it is made by us, as we are.
        with ExitStack() as stack:
            parent = name = None
            with suppress(FileNotFoundError, NotADirectoryError, LinkInTheWay):
                parent, name = stack.enter_context(self._above(change.path))
            match after.kind:
                case FileKind.LINK:
                    os.symlink(os.fsdecode(self.sealed.read(after.digest)), number, dir_fd=self.staging)
                    self._give_link(number)
                case FileKind.DIRECTORY:
                    os.mkdir(f"{number}.part", 0o700, dir_fd=self.staging)
                    made = os.open(f"{number}.part", LIST, dir_fd=self.staging)
                    try:
                        self._dress(made, after.mode, parent, None)
                    finally:
                        os.close(made)
                    os.rename(f"{number}.part", number, src_dir_fd=self.staging, dst_dir_fd=self.staging)
                case FileKind.FILE:
                    made = os.open(f"{number}.part", _CREATE, 0o600, dir_fd=self.staging)
                    try:
                        self.sealed.copy_to(after.digest, made)
                        self._dress(made, after.mode, parent, name if change.before is not None else None)
                    finally:
                        os.close(made)
                    os.rename(f"{number}.part", number, src_dir_fd=self.staging, dst_dir_fd=self.staging)
                case FileKind.OTHER:
                    raise AssertionError("refused before")
        yield

    def _require_before(self, change: FileChange) -> ApplyStatus | None:
        """Require the project to have what was shown; end the change if it has what is wanted already."""
        with ExitStack() as stack:
            try:
                parent, name = stack.enter_context(self._above(change.path))
            except (FileNotFoundError, NotADirectoryError, LinkInTheWay) as fault:
                if change.kind is ChangeKind.DELETED and (not isinstance(fault, LinkInTheWay) or self._is_replaced_above(change.path)):
                    self._end(change, ApplyStatus.APPLIED)
                    return ApplyStatus.APPLIED
                if change.before is not None and not change.source:
                    raise
                return None
            if beside := database_part(parent, name):
                self._end(change, ApplyStatus.REFUSED, f"it belongs to a database that is in use: `{beside}` is beside it")
                return ApplyStatus.REFUSED
            present = _entry_state(parent, name)
        if change.source:
            source = self._present(change.source)
            if present == change.after and source is None:
                self._end(change, ApplyStatus.APPLIED)
                return ApplyStatus.APPLIED
            if source != change.before:
                raise _Conflict(_CHANGED, source)
            if present is not None:
                raise _Conflict(_TAKEN, present)
            return None
        if present == change.after:
            self._end(change, ApplyStatus.APPLIED)
            return ApplyStatus.APPLIED
        # The mode of a directory that goes is of no interest.
        goes = change.kind in {ChangeKind.DELETED, ChangeKind.REPLACED} and _is_directory(present) and _is_directory(change.before)
        if present != change.before and not goes:
            raise _Conflict(_CHANGED if change.before is not None else _TAKEN, present)
        return None

    # ── into place ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _put(self, change: FileChange, number: str) -> Iterator[None]:
        """Put one change into place."""
        with self._above(change.path) as (parent, name):
            if change.kind is ChangeKind.DELETED:
                yield from self._delete(change, number, parent, name)
            elif _is_directory_mode(change):
                self._change_mode(change, parent, name)
                yield
            elif change.source:
                yield from self._move(change, number, parent, name)
            elif change.before is None:
                self._add(change, number, parent, name)
                yield
            else:
                yield from self._replace(change, number, parent, name)
        self._end(change, ApplyStatus.APPLIED)

    def _delete(self, change: FileChange, number: str, parent: int, name: str) -> Iterator[None]:
        if _is_directory(change.before):
            _remove_directory(parent, name)
            yield
            return
        yield from self._take_out(change, number, parent, name)
        _unlink(self.staging, number)
        yield

    def _take_out(self, change: FileChange, staged: str, parent: int, name: str) -> Iterator[None]:
        """Rename a file aside, and require it to be what was shown; otherwise put it back."""
        rename_if_free(parent, name, self.staging, staged)
        yield
        fault, out = self._inspect(staged, change.before)
        if fault:
            self._put_back_into(parent, name, staged)
            raise _Conflict(fault, out)

    def _move(self, change: FileChange, number: str, parent: int, name: str) -> Iterator[None]:
        with self._above(change.source) as (old_parent, old_name):
            yield from self._take_out(change, f"{number}.source", old_parent, old_name)
            try:
                rename_if_free(self.staging, number, parent, name)
            except FileExistsError:
                self._put_back_into(old_parent, old_name, f"{number}.source")
                raise _Conflict(_TAKEN, _entry_state(parent, name)) from None
        yield
        _unlink(self.staging, f"{number}.source")
        yield

    def _add(self, change: FileChange, number: str, parent: int, name: str) -> None:
        try:
            rename_if_free(self.staging, number, parent, name)
        except FileExistsError:
            present = _entry_state(parent, name)
            if not present == change.after:
                raise _Conflict(_TAKEN, present) from None
            _unlink(self.staging, number)

    def _replace(self, change: FileChange, number: str, parent: int, name: str) -> Iterator[None]:
        ours = _identity(self.staging, number)
        try:
            exchange_entries(self.staging, number, parent, name)
        except FileNotFoundError:
            raise _Conflict(_CHANGED) from None
        yield
        if self._state(number) == change.after:
            _unlink(self.staging, number)
            return
        fault, out = self._inspect(number, change.before)
        if not fault and out is not None and out.kind is FileKind.DIRECTORY:
            try:
                os.rmdir(number, dir_fd=self.staging)
            except OSError:
                fault = _NOT_EMPTY
        if fault:
            self._exchange_back(parent, name, number, ours)
            raise _Conflict(fault, out)
        with suppress(FileNotFoundError):
            _unlink(self.staging, number)
        yield

    def _change_mode(self, change: FileChange, parent: int, name: str) -> None:
        assert change.after is not None
        opened = os.open(name, LIST, dir_fd=parent)
        try:
            status = os.fstat(opened)
            if change.before is None or mode_of(status) not in {change.before.mode, change.after.mode}:
                raise _Conflict(_CHANGED, _entry_state(parent, name))
            os.fchmod(opened, (stat.S_IMODE(status.st_mode) & ~0o777) | change.after.mode)
        finally:
            os.close(opened)

    # ── what came out ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _inspect(self, staged: str, expected: FileState | None) -> tuple[str, FileState | None]:
        """Compare what came out with what was shown; return what is wrong, and what it is."""
        status = os.stat(staged, dir_fd=self.staging, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            out = self._state(staged)
            same_kind = out is not None and expected is not None and out.kind is expected.kind is FileKind.DIRECTORY
            return ("" if out == expected or same_kind else _CHANGED), out
        opened = os.open(staged, _READ, dir_fd=self.staging)
        try:
            is_written = not _lease(opened)
            digest, size = digest_of(opened)
            out = FileState(kind=FileKind.FILE, digest=digest, mode=mode_of(os.fstat(opened)), size=size)
        finally:
            os.close(opened)
        return (_CHANGED if out != expected else _OPEN if is_written else ""), out

    def _exchange_back(self, parent: int, name: str, staged: str, ours: tuple[int, int]) -> None:
        """Put what came out back. If somebody saved yet again meanwhile, the newest stays, and what came out first is kept."""
        in_place = ours
        for _ in range(_ROUNDS):
            put = _identity(self.staging, staged)
            try:
                exchange_entries(self.staging, staged, parent, name)
            except FileNotFoundError:
                # They deleted it: what they had saved before is kept for them.
                break
            if _identity(self.staging, staged) == in_place:
                break
            in_place = put
        if _identity(self.staging, staged) == ours:
            _unlink(self.staging, staged)
        else:
            self._set_aside(staged)

    def _put_back(self, path: str, staged: str) -> None:
        try:
            with self._above(path) as (parent, name):
                self._put_back_into(parent, name, staged)
        except (FileNotFoundError, NotADirectoryError, LinkInTheWay):
            self._set_aside(staged)

    def _put_back_into(self, parent: int, name: str, staged: str) -> None:
        """Rename a file back to where it was, unless somebody has saved a new one there."""
        try:
            rename_if_free(self.staging, staged, parent, name)
        except (FileExistsError, FileNotFoundError):
            self._set_aside(staged)

    def _set_aside(self, staged: str) -> None:
        """Keep the content of a file that cannot go back, under its digest, and delete the file."""
        read_entry(self.staging, staged, self.sealed)
        self.sealed.sync_unless_on(self.device)
        sync_file_system(self.staging)
        _unlink(self.staging, staged)

    # ── small things ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _above(self, path: str) -> Generator[tuple[int, str]]:
        """Open the directory that holds a path, without following a link and on the project's own disk."""
        with open_directory_above(f"{self.changes.project}/{path}") as (parent, name):
            if os.fstat(parent).st_dev != self.device:
                raise _Conflict(_NO_WAY)
            yield parent, name

    def _present(self, path: str) -> FileState | None:
        try:
            with self._above(path) as (parent, name):
                return _entry_state(parent, name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except LinkInTheWay:
            if self._is_replaced_above(path):
                return None
            raise

    def _is_replaced_above(self, path: str) -> bool:
        """Tell whether this set puts something else in the place of a directory above a path, so that nothing is at the path afterwards."""
        return any(
            path.startswith(f"{change.path}/") and change.after is not None and change.after.kind is not FileKind.DIRECTORY
            for change in self.changes.changes
        )

    def _state(self, staged: str) -> FileState | None:
        return _entry_state(self.staging, staged)

    def _dress(self, made: int, mode: int, parent: int | None, name: str | None) -> None:
        """Give what we made the owner, the attributes and the mode that it is to have."""
        owner, group = (self.owner.user, self.owner.group) if self.owner is not None else (-1, -1)
        inherited = 0
        if parent is not None:
            status = os.fstat(parent)
            if os.geteuid() == 0:
                owner, group = status.st_uid, status.st_gid if status.st_mode & stat.S_ISGID else group if group >= 0 else status.st_gid
            elif status.st_mode & stat.S_ISGID:
                group = status.st_gid
            if stat.S_ISDIR(os.fstat(made).st_mode):
                inherited = status.st_mode & stat.S_ISGID
        if name is not None and parent is not None:
            old = os.open(name, _READ, dir_fd=parent) if _is_file(parent, name) else None
            if old is not None:
                try:
                    status = os.fstat(old)
                    owner, group = (status.st_uid if os.geteuid() == 0 else -1), status.st_gid
                    _copy_attributes(old, made)
                finally:
                    os.close(old)
        with suppress(PermissionError):
            os.fchown(made, owner, group)
        os.fchmod(made, mode | inherited)

    def _give_link(self, staged: str) -> None:
        if self.owner is not None:
            os.chown(staged, self.owner.user, self.owner.group, dir_fd=self.staging, follow_symlinks=False)

    def _clear(self, change: FileChange, number: str) -> None:
        """Remove our own contents of a change from the staging directory, and nothing else."""
        with suppress(OSError):
            _unlink(self.staging, f"{number}.part")
        with suppress(OSError):
            if change.after is not None and self._state(number) == change.after:
                _unlink(self.staging, number)

    def _end(self, change: FileChange, status: ApplyStatus, reason: str = "", present: FileState | None = None) -> None:
        shown = change.before if status is ApplyStatus.CONFLICT else None
        self.results[change.path] = AppliedFile(path=change.path, status=status, reason=reason, shown=shown, present=present)


def _stages(changes: list[FileChange]) -> Iterator[list[FileChange]]:
    """Yield the changes in an order in which each of them is possible."""
    deleted = [change for change in changes if change.kind is ChangeKind.DELETED]
    emptied = [change for change in changes if change.kind is ChangeKind.REPLACED and _is_directory(change.before)]
    last = {change.path for change in (*deleted, *emptied)}
    yield [change for change in changes if change.path not in last]
    for stage in (deleted, emptied):
        yield sorted(stage, key=lambda change: path_order(change.path), reverse=True)


def _refusal(change: FileChange) -> str:
    """Return why a change is never applied, whatever made it."""
    for path in change.paths:
        names = path.split("/")
        if any(is_git(name) for name in names):
            return "git directories are never applied as files"
        if any(name in {"", ".", ".."} or len(os.fsencode(name)) > _LONGEST_NAME for name in names) or "\0" in path:
            return "its path is not one of the project's"
        if names[0].startswith(STAGING):
            return RESERVED
    for state in (change.before, change.after):
        if state is not None and state.kind is FileKind.OTHER:
            return "it is a device, a socket or a named pipe"
    if change.after is not None and change.after.kind is FileKind.FILE and change.after.mode & _AS_OWNER:
        return "it would run with the rights of its owner or group (setuid or setgid)"
    return ""


def _lease(opened: int) -> bool:
    """Tell whether nobody has an open file open for writing, as far as the kernel says; nobody can begin to while it is open here."""
    try:
        # A signal that is ignored unless somebody wants it: that of leases would end our process.
        fcntl.fcntl(opened, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(opened, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as fault:
        return fault.errno != errno.EAGAIN
    return True


def _copy_attributes(old: int, made: int) -> None:
    """Copy the attributes that a user gave a file, and its access list."""
    with suppress(OSError):
        for name in os.listxattr(old):
            if name.startswith("user.") or name == "system.posix_acl_access":
                with suppress(OSError):
                    os.setxattr(made, name, os.getxattr(old, name))


def _remove_directory(parent: int, name: str) -> None:
    try:
        os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        return
    except OSError as fault:
        if fault.errno in _PASSING:
            raise
        raise _Conflict(_NOT_EMPTY if fault.errno == errno.ENOTEMPTY else _CHANGED, _entry_state(parent, name)) from None


def _entry_state(directory: int, name: str) -> FileState | None:
    entry = read_entry(directory, name)
    return None if entry is None else entry.state


def _identity(directory: int, name: str) -> tuple[int, int]:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    return status.st_dev, status.st_ino


def _unlink(directory: int, name: str) -> None:
    if kind_of(os.stat(name, dir_fd=directory, follow_symlinks=False)) is FileKind.DIRECTORY:
        os.rmdir(name, dir_fd=directory)
    else:
        os.unlink(name, dir_fd=directory)


def _is_file(directory: int, name: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _is_directory(state: FileState | None) -> bool:
    return state is not None and state.kind is FileKind.DIRECTORY


def _is_directory_mode(change: FileChange) -> bool:
    return change.kind is ChangeKind.MODE and _is_directory(change.after)


def _opened(stack: ExitStack, descriptor: int) -> int:
    stack.callback(os.close, descriptor)
    return descriptor
