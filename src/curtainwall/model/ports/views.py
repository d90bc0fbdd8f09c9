"""Where a session meets its view of a project: the port that every mechanism fills."""

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from curtainwall.model.changes import AppliedChanges, ChangeSet, PresentFile, ViewChoice
from curtainwall.model.ids import SessionId
from curtainwall.model.tools import Place
from curtainwall.model.view_uses import Entrance, ViewUse


class ProjectView(Protocol):
    """One session's view of a project: the project below, the session's own changes on top.

    The methods work with whole files and may take long, so a coroutine calls them in a thread. A view is used by one process at a time.
    """

    choice: ViewChoice

    def enter(self) -> Entrance:
        """Mount the view, if it is not mounted yet, and return the way in; raise `ViewFailed`."""
        ...

    def leave(self) -> None:
        """Unmount the view once nothing works in it any more, and remember what its changes started from; raise `ViewFailed`."""
        ...

    def changes(self, is_left_out: Callable[[str], bool] | None = None) -> ChangeSet:
        """Return what was changed, with the contents put aside; whatever is left out by its path is not read. Raise `ViewFailed`."""
        ...

    def discard(self, paths: Collection[str] | None = None) -> None:
        """Forget the changes of these paths, or all of them, so that the view shows the project there again; the view is unmounted."""
        ...

    def close(self) -> None:
        """Leave the view and end the process that held its mount; its changes are kept, and it may be entered again."""
        ...


class SessionViews(Protocol):
    """The views of the sessions of this process. The methods may take long, so a coroutine calls them in a thread."""

    def fault(self, project: str, agent: str = "") -> str:
        """Return why no view of a project is possible here for an agent, or ""."""
        ...

    def enter(self, place: Place) -> ViewUse | None:
        """Mount the view that a call works on and return one use of it, which the caller closes; raise `ViewFailed`.

        It is None for a call that works on the workspace itself, because that is the session's own or the mode is not `review`.
        """
        ...

    def leave(self, session: SessionId) -> None:
        """Unmount a session's view, or have that done when its last use ends; called when a turn ends and when a session is let go."""
        ...

    def changes(self, place: Place) -> ChangeSet:
        """Leave the view and return what was changed in it, without what the user's own ignore rules leave out; raise `ViewFailed`."""
        ...

    def settle(self, place: Place, changes: ChangeSet, *, apply: bool) -> AppliedChanges:
        """Apply changes and forget their paths in the view, or only forget them; this may be repeated. Raise `TryLater`, `ViewFailed`."""
        ...


class ViewContents(Protocol):
    """What files of a change set hold, before and after, put aside when the change set was made."""

    def content(self, session: SessionId, digest: str) -> bytes:
        """Return a content by its digest; raise `ViewFailed` if it is missing or damaged."""
        ...


class ProjectFiles(Protocol):
    """What a session's project has, as its user sees it, and what takes accepted changes back there. The methods may take long."""

    def present(self, place: Place, paths: Collection[str]) -> Mapping[str, PresentFile]:
        """Return what the project has at these paths, with the contents put aside; paths with nothing are left out. Raise `ViewFailed`."""
        ...

    def write(self, place: Place, changes: ChangeSet) -> AppliedChanges:
        """Apply changes and leave those in the view as they are; this may be repeated. Raise `TryLater`, `ViewFailed`."""
        ...

    def missing(self, session: SessionId, digests: Collection[str]) -> frozenset[str]:
        """Return which of these contents are missing or damaged."""
        ...
