"""Where a session meets its view of a project: the port that every mechanism fills."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from curtainwall.model.changes import ChangeSet, ViewChoice


@dataclass(frozen=True, slots=True)
class Entrance:
    """The way into a mounted view: `root` is a descriptor of its directory, and `words` start a program that sees it at the project's path.

    The words are put before the program's own; `descriptors` must be passed to it under their numbers. All of them belong to the view and
    are closed when it is left.
    """

    path: str
    root: int
    words: tuple[str, ...] = ()
    descriptors: tuple[int, ...] = ()


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
