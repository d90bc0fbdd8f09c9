"""Whether an agent is still there: what tells work whose agent is gone from work that nobody wants any more."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Presence:
    """An agent at work on a turn, or waiting for a call. Both end by being cancelled, and this says how that is meant.

    Work that is cancelled while its agent is there is interrupted, and takes back what it asked for. Of an agent that has left, asks stay
    open, and the answers are kept for when it comes back.
    """

    has_left: bool = False

    def leave(self) -> None:
        """Say that the agent leaves, before its work is cancelled."""
        self.has_left = True
