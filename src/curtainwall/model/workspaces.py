"""Where a session works."""

from curtainwall.model.frozen import Frozen


class Workspace(Frozen):
    """The directory a session works in: its own, or a project that the user named. The path is real and absolute."""

    path: str
    own: bool
