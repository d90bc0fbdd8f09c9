"""A view as one overlay mount: the project below, and above it a directory with what the session changed."""

import os
import subprocess
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from curtainwall.host.files.beneath import FileOwner, open_beneath
from curtainwall.host.views.bases import UNKNOWN_BASE, Bases, BaseState
from curtainwall.host.views.differences import Differences, Spot
from curtainwall.host.views.holder import Holder, Layers
from curtainwall.host.views.sealed import SealedContents
from curtainwall.host.views.states import LIST, is_in_state, read_alike, read_entry
from curtainwall.host.views.upper import Upper, prune, was_copied_up
from curtainwall.model import ChangeSet, Entrance, ViewChoice, ViewFailed, ViewMechanism

_CLOCK: Final = ".clock"


class OverlayView:
    """A view that costs nothing until something is changed in it. Fills `ProjectView`."""

    def __init__(self, project: str, state: Path, reason: str = "") -> None:
        """Prepare a view of a project, by its real path; `state` is a directory of ours outside the project, on a disk of any kind."""
        self.choice = ViewChoice(mechanism=ViewMechanism.OVERLAY, reason=reason)
        self.sealed = SealedContents(state / "contents")
        self._project = project
        self._state = state
        self._upper = state / "upper"
        self._owner = project_owner(project)
        self._bases = Bases.load(state / "bases.json")
        self._holder: Holder | None = None
        self._entrance: Entrance | None = None

    def enter(self) -> Entrance:
        """Mount the view, if it is not mounted yet, and return the way in; raise `ViewFailed`."""
        if self._entrance is not None:
            return self._entrance
        with failing("the view cannot be mounted"):
            self._prepare_upper()
            work = self._fresh_work()
            holder = self._live_holder()
            # A use that a crash ended goes on: what the agent's work of that time started from is not noted yet.
            if self._bases.since is None:
                self._bases.since = moment(self._state / _CLOCK)
                self._bases.save(durably=False)
            root = holder.mount(Layers(str(self._upper), str(work)))
        self._entrance = holder.entrance(root, self._owner)
        return self._entrance

    def leave(self) -> None:
        """Unmount the view once nothing works in it any more, and remember what its changes started from; raise `ViewFailed`."""
        entrance, self._entrance = self._entrance, None
        if entrance is not None:
            os.close(entrance.root)
            if self._holder is not None:
                self._holder.unmount()
        if self._bases.since is not None:
            with failing("the view cannot be read"):
                self._note_bases()

    def changes(self, is_left_out: Callable[[str], bool] | None = None) -> ChangeSet:
        """Return what was changed, with the contents put aside; raise `ViewFailed`."""
        differences = Differences(self._project, self.sealed, self._bases)
        walk = Upper(differences.compare, is_left_out)
        with failing("the view cannot be read"), self._opened() as (upper, lower):
            walk.read(upper, lower)
        for path, fault in walk.faults.items():
            differences.refuse(path, fault)
        differences.git = walk.git
        return differences.change_set()

    def discard(self, paths: Collection[str] | None = None) -> None:
        """Forget the changes of these paths, or all of them, so that the view shows the project there again."""
        self.leave()
        with failing("the changes cannot be discarded"):
            if paths is None:
                delete_tree(self._upper)
                self._bases.known.clear()
            elif self._upper.exists():
                with self._opened() as (upper, lower):
                    prune(upper, lower, paths)
                self._bases.drop(paths)
            self._bases.save()

    def close(self) -> None:
        """Leave the view and end the process that held its mount; its changes are kept, and it may be entered again."""
        try:
            self.leave()
        finally:
            if self._holder is not None:
                self._holder.close()
                self._holder = None

    def _live_holder(self) -> Holder:
        if self._holder is not None and not self._holder.is_alive():
            self._holder.close()
            self._holder = None
        if self._holder is None:
            self._holder = Holder(self._project, self._owner, self._state / "lock")
        return self._holder

    def _prepare_upper(self) -> None:
        """Make the directory of changes; the view's root has its owner and mode, so they are those of the project."""
        self._upper.mkdir(mode=0o700, exist_ok=True)
        wanted, status = os.stat(self._project), os.stat(self._upper)
        if os.geteuid() == 0 and (status.st_uid, status.st_gid) != (wanted.st_uid, wanted.st_gid):
            os.chown(self._upper, wanted.st_uid, wanted.st_gid)
        if status.st_mode != wanted.st_mode:
            os.chmod(self._upper, wanted.st_mode & 0o7777)

    def _fresh_work(self) -> Path:
        """Return an empty directory for the kernel; one that another mount has used may be another user's, or not empty."""
        numbers = [int(name.removeprefix("work.")) for name in os.listdir(self._state) if name.startswith("work.")]
        for number in numbers:
            with suppress(ViewFailed):
                delete_tree(self._state / f"work.{number}")
        work = self._state / f"work.{max(numbers, default=0) + 1}"
        work.mkdir(mode=0o700)
        return work

    def _note_bases(self) -> None:
        """Note what each change started from, and forget files that are as they were: the view would hide what the user changes there."""
        bases, before = self._bases, len(self._bases.known)
        unchanged: list[str] = []

        def note(path: str, below: Spot | None, above: Spot | None) -> None:
            note_base(path, below, above)
            if above is not None and _is_unchanged(bases.known.get(path), below, above):
                unchanged.append(path)

        def note_base(path: str, below: Spot | None, above: Spot | None) -> None:
            if bases.find(path) is not None:
                return
            now = None if below is None else read_entry(*below, self.sealed)
            if now is not None:
                bases.note(path, now.state, now.changed)
            elif _may_be_gone(below, above, bases.since):
                bases.known[path] = UNKNOWN_BASE
            else:
                bases.note(path, None, 0)

        with self._opened() as (upper, lower):
            Upper(note, into_new=False).read(upper, lower)
            prune(upper, lower, unchanged)
        bases.drop(unchanged)
        bases.since = None
        bases.save(durably=len(bases.known) != before)

    @contextmanager
    def _opened(self) -> Generator[tuple[int, int]]:
        self._upper.mkdir(mode=0o700, exist_ok=True)
        lower = open_beneath(self._project, LIST)
        try:
            upper = os.open(self._upper, LIST)
            try:
                yield upper, lower
            finally:
                os.close(upper)
        finally:
            os.close(lower)


def _may_be_gone(below: Spot | None, above: Spot | None, since: int | None) -> bool:
    """Tell whether the project may have had a file there when the agent began to change it, and lost it since."""
    if below is None or above is None or since is None or os.fstat(below[0]).st_ctime_ns < since:
        return False
    return was_copied_up(*above)


def _is_unchanged(base: BaseState | None, below: Spot | None, above: Spot) -> bool:
    """Tell whether a file of the view is what it was made from, or what the project has now: it was only touched, or changed back."""
    if base is not None and base.is_known and is_in_state(above, base.state):
        return True
    return below is not None and read_alike(below, above) is not None


@contextmanager
def failing(what: str) -> Generator[None]:
    """Report a fault of the disk as `ViewFailed`."""
    try:
        yield
    except OSError as fault:
        at = f" at `{fault.filename}`" if fault.filename else ""
        raise ViewFailed(f"{what}: {(fault.strerror or 'unknown').lower()}{at}") from fault


def project_owner(project: str) -> FileOwner:
    """Return the user that everything in a view runs as: we, or as root the owner of the project."""
    if os.geteuid() != 0:
        return FileOwner(os.geteuid(), os.getegid())
    status = os.stat(project)
    return FileOwner(status.st_uid, status.st_gid)


def moment(clock: Path) -> int:
    """Return a time in nanoseconds that all earlier changes of files are before, and no later ones; a file tells it."""
    opened = os.open(clock, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(opened, 0o600)
        began = now = os.fstat(opened).st_ctime_ns
        # The kernel's clock for files may stand still for some milliseconds.
        while now == began:
            os.fchmod(opened, 0o600)
            now = os.fstat(opened).st_ctime_ns
        return now
    finally:
        os.close(opened)


def delete_tree(path: Path) -> None:
    """Delete a directory with everything in it, however deep, also where an agent has closed a directory to us."""
    if not os.path.lexists(path):
        return
    for words in (("rm", "-rf"), ("chmod", "-R", "u+rwX"), ("rm", "-rf")):
        subprocess.run((*words, "--", str(path)), stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if not os.path.lexists(path):
            return
    raise ViewFailed(f"`{path}` cannot be deleted")
