"""The views of the sessions of this process: entered by calls, left between turns, and settled when somebody has decided."""

import fcntl
import logging
import os
import secrets
import stat
import threading
import time
from collections.abc import Collection, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from curtainwall.host.home import Home, private_directory
from curtainwall.model import (
    AppliedChanges,
    ChangeSet,
    Entrance,
    Place,
    PresentFile,
    ProjectView,
    SessionId,
    ViewFailed,
    ViewMechanism,
    ViewUse,
    working_in,
    works_on_view,
)

if TYPE_CHECKING:
    # Start-up time: most sessions use no view.
    from curtainwall.host.views.sealed import SealedContents

_LOG = logging.getLogger(__name__)
_IN_USE_SECONDS: Final = 5.0
_PAUSE: Final = 0.01
_FOR_CONTAINERS: Final = "a container does not see an overlay of ours, so its agent works on a copy"


class ViewsOfSessions:
    """One view for each session, kept in the session's directory. Fills `SessionViews`, `ViewContents` and `ProjectFiles`; thread-safe.

    Start-up time: the mechanisms are loaded with the first view.
    """

    def __init__(self, home: Home, contained: Collection[str] = ()) -> None:
        """Keep views in a home; nothing is made before the first call enters one. The agents in containers, by name, work on copies."""
        self._home = home
        self._contained = frozenset(contained)
        self._lock = threading.Lock()
        self._doors: dict[SessionId, _Door] = {}

    def fault(self, project: str, agent: str = "") -> str:
        """Return why no view of a project is possible here for an agent, or ""."""
        from curtainwall.host.views.choice import choose_mechanism, remove_view

        trial = self._home.root / "run" / f"view-{secrets.token_hex(8)}"
        try:
            trial.mkdir(mode=0o700, parents=True)
            choice = choose_mechanism(project, trial, self._wanted(agent), _FOR_CONTAINERS)
        except (ViewFailed, OSError) as fault:
            return str(fault)
        finally:
            with suppress(ViewFailed):
                remove_view(trial)
        return choice.reason if choice.mechanism is ViewMechanism.NONE else ""

    def enter(self, place: Place) -> ViewUse | None:
        """Mount the view that a call works on and return one use of it, which the caller closes; raise `ViewFailed`."""
        if not works_on_view(place.workspace, place.mode):
            return None
        return self._door(place).enter(place.workspace.path)

    def leave(self, session: SessionId) -> None:
        """Unmount a session's view, or have that done when its last use ends."""
        with self._lock:
            door = self._doors.get(session)
        if door is not None:
            door.leave()

    def changes(self, place: Place) -> ChangeSet:
        """Leave the view and return what was changed in it, without what the user's own ignore rules leave out; raise `ViewFailed`."""
        from curtainwall.host.views.ignore_rules import IgnoreRules

        project = place.workspace.path
        state = self._state(place.session)
        if not state.exists():
            return ChangeSet(project=project)
        with self._door(place).alone(project) as view, IgnoreRules(project) as rules:
            left_out: list[str] = []

            def is_left_out(path: str) -> bool:
                if not rules.has(path, is_directory=_is_directory(state, project, path)):
                    return False
                left_out.append(path)
                return True

            return view.changes(is_left_out).model_copy(update={"left_out": len(left_out)})

    def settle(self, place: Place, changes: ChangeSet, *, apply: bool) -> AppliedChanges:
        """Apply changes and forget their paths in the view, or only forget them; this may be repeated. Raise `TryLater`, `ViewFailed`."""
        from curtainwall.host.views.apply import apply_changes

        project = place.workspace.path
        if changes.project != project:
            raise ViewFailed(f"these are changes of `{changes.project}`, and the session works in `{project}`")
        with self._door(place).alone(project) as view:
            result = AppliedChanges(digest=changes.digest)
            settled = {path for change in changes.changes for path in change.paths}
            if apply:
                # INVARIANT: this is the only thing here that writes to the project.
                with working_in(None):
                    result = apply_changes(changes, self._contents(place.session))
                applied = {*result.applied}
                settled = {path for change in changes.changes if change.path in applied for path in change.paths}
            if settled:
                view.discard(settled)
            return result

    def present(self, place: Place, paths: Collection[str]) -> dict[str, PresentFile]:
        """Return what the project has at these paths, with the contents put aside; paths with nothing are left out. Raise `ViewFailed`."""
        from curtainwall.host.views.states import read_present

        _prepare(self._state(place.session))
        sealed = self._contents(place.session)
        with working_in(None):
            files = {path: read_present(f"{place.workspace.path}/{path}", sealed) for path in paths}
        return {path: file for path, file in files.items() if file is not None}

    def write(self, place: Place, changes: ChangeSet) -> AppliedChanges:
        """Apply changes and leave those in the view as they are; this may be repeated. Raise `TryLater`, `ViewFailed`."""
        from curtainwall.host.views.apply import apply_changes

        project = place.workspace.path
        if changes.project != project:
            raise ViewFailed(f"these are changes of `{changes.project}`, and the session works in `{project}`")
        # Nothing below a mounted view may change; the view takes it for something that the user did.
        with self._door(place).alone(project), working_in(None):
            return apply_changes(changes, self._contents(place.session))

    def missing(self, session: SessionId, digests: Collection[str]) -> frozenset[str]:
        """Return which of these contents are missing or damaged."""
        sealed = self._contents(session)
        return frozenset(digest for digest in digests if not sealed.is_whole(digest))

    def content(self, session: SessionId, digest: str) -> bytes:
        """Return a content by its digest; raise `ViewFailed` if it is missing or damaged."""
        from curtainwall.host.views.sealed import ContentsLost

        if not (digest.isalnum() and digest.isascii()):
            raise ViewFailed("this is no digest of a content")
        try:
            return self._contents(session).read(digest)
        except (ContentsLost, OSError) as fault:
            raise ViewFailed(f"the content `{digest}` is missing or damaged") from fault

    def close(self) -> None:
        """Leave every view; their changes are kept."""
        with self._lock:
            doors = [*self._doors.values()]
        for door in doors:
            door.leave()

    def _state(self, session: SessionId) -> Path:
        return self._home.session(session).view

    def _contents(self, session: SessionId) -> "SealedContents":
        from curtainwall.host.views.sealed import SealedContents

        return SealedContents(self._state(session) / "contents")

    def _wanted(self, agent: str) -> ViewMechanism | None:
        return ViewMechanism.COPY if agent in self._contained else None

    def _door(self, place: Place) -> "_Door":
        with self._lock:
            return self._doors.setdefault(place.session, _Door(self._state(place.session), self._wanted(place.agent)))


class _Door:
    """One session's view: who is in it, and whether it is mounted."""

    def __init__(self, state: Path, wanted: ViewMechanism | None) -> None:
        self._state = state
        self._wanted = wanted
        # Held while the view is mounted, unmounted, read or changed as a whole.
        self._turn = threading.Lock()
        self._uses = 0
        self._unused = threading.Condition()
        self._is_ending = False
        self._view: ProjectView | None = None
        self._entrance: Entrance | None = None

    def enter(self, project: str) -> ViewUse:
        """Mount the view unless it is, and count one more use; raise `ViewFailed`."""
        with self._turn, working_in(None):
            if self._entrance is None:
                self._mount(project)
            assert self._entrance is not None
            with self._unused:
                self._is_ending = False
                self._uses += 1
            return ViewUse(self._entrance, self._begin, self._end)

    def leave(self) -> None:
        """Unmount the view, now or when its last use ends."""
        with self._turn:
            with self._unused:
                self._is_ending = bool(self._uses)
                if self._uses:
                    return
            # INVARIANT: nobody can enter while we hold the turn, so the view stays unused.
            try:
                self._unmount()
            except ViewFailed as fault:
                # Its changes are kept, and what they started from is noted at the next chance.
                _LOG.warning("a view could not be left: %s", fault)

    @contextmanager
    def alone(self, project: str) -> Generator[ProjectView]:
        """Lend the view while it is not mounted, here or in another process; raise `ViewFailed` if something works in it."""
        with self._turn, working_in(None):
            with self._unused:
                if not self._unused.wait_for(lambda: not self._uses, _IN_USE_SECONDS):
                    raise ViewFailed("a command or a tool still works in the view")
            self._unmount()
            _prepare(self._state)
            with _locked(self._state / "lock"):
                view = self._open(project)
                # What an earlier process left mounted ended with it; now its bases are noted.
                view.leave()
                yield view

    def _begin(self) -> None:
        with self._unused:
            self._uses += 1

    def _end(self) -> None:
        with self._unused:
            self._uses -= 1
            is_last = not self._uses
            self._unused.notify_all()
            must_leave = is_last and self._is_ending
        if must_leave:
            # The last one may be a coroutine, which must not wait for the kernel.
            threading.Thread(target=self.leave, name="leave-view", daemon=True).start()

    def _mount(self, project: str) -> None:
        _prepare(self._state)
        view = self._open(project)
        try:
            entrance = view.enter()
        except BaseException:
            with suppress(ViewFailed):
                view.close()
            raise
        self._view, self._entrance = view, entrance

    def _open(self, project: str) -> ProjectView:
        from curtainwall.host.views.choice import open_view

        try:
            view = open_view(project, self._state, self._wanted, _FOR_CONTAINERS)
        except (OSError, ValueError) as fault:
            raise ViewFailed(f"the view of `{project}` cannot be opened: {fault}") from fault
        # INVARIANT: where no view is possible, nothing is entered: the project itself would be in its place.
        if view.choice.mechanism is ViewMechanism.NONE:
            raise ViewFailed(f"no view of `{project}` is possible here: {view.choice.reason}; use the mode `ask`")
        if self._wanted not in {None, view.choice.mechanism}:
            # The agent's name stood for another kind of agent when the session began.
            raise ViewFailed(
                f"the view of `{project}` began as {view.choice.mechanism.value}, which no container sees; start a new session"
            )
        return view

    def _unmount(self) -> None:
        view, self._view, self._entrance = self._view, None, None
        if view is not None:
            view.close()


def _prepare(state: Path) -> None:
    try:
        private_directory(state.parent)
        private_directory(state)
    except OSError as fault:
        raise ViewFailed(f"`{state}` cannot be used: {(fault.strerror or 'unknown').lower()}") from fault


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold the lock of whatever may mount a view; raise `ViewFailed` if another process keeps it."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _IN_USE_SECONDS
        while True:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ViewFailed("another process works in this view; try again when it is done") from None
                time.sleep(_PAUSE)
        yield
    finally:
        os.close(opened)


def _is_directory(state: Path, project: str, path: str) -> bool:
    """Tell whether a changed path is a directory in the view, or was one in the project if the view has deleted it."""
    for top in (str(state / "upper"), str(state / "copy"), project):
        with suppress(OSError):
            status = os.lstat(f"{top}/{path}")
            if not stat.S_ISCHR(status.st_mode):
                return stat.S_ISDIR(status.st_mode)
    return False
