"""No view: the agent works in the project itself, and what it changes there is changed."""

import os
from collections.abc import Callable, Collection

from curtainwall.host.files.beneath import open_beneath
from curtainwall.host.views.overlay import failing
from curtainwall.host.views.states import LIST
from curtainwall.model import ChangeSet, Entrance, ViewChoice, ViewMechanism


class DirectView:
    """The project in place of a view of it; there is nothing to propose or to discard. Fills `ProjectView`."""

    def __init__(self, project: str, reason: str = "") -> None:
        """Take a project, by its real path."""
        self.choice = ViewChoice(mechanism=ViewMechanism.NONE, reason=reason)
        self._project = project
        self._entrance: Entrance | None = None

    def enter(self) -> Entrance:
        """Return the project."""
        if self._entrance is None:
            with failing("the project cannot be opened"):
                self._entrance = Entrance(self._project, open_beneath(self._project, LIST))
        return self._entrance

    def leave(self) -> None:
        """Close the project."""
        entrance, self._entrance = self._entrance, None
        if entrance is not None:
            os.close(entrance.root)

    def changes(self, is_left_out: Callable[[str], bool] | None = None) -> ChangeSet:
        """Return nothing: whatever was changed is in the project."""
        del is_left_out
        return ChangeSet(project=self._project)

    def discard(self, paths: Collection[str] | None = None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Close the project."""
        self.leave()
