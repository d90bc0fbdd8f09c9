"""Whether an agent is still there; this distinguishes work whose agent has left from work that is no longer wanted."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Presence:
    """An agent that works on a turn or waits for a call. Both are stopped by cancelling, and this tells what the cancelling means.

    While the agent is there, cancelled work counts as interrupted, and its asks are withdrawn. Once the agent has left, its asks stay open,
    and the answers are kept until it comes back.
    """

    has_left: bool = False

    def leave(self) -> None:
        """Record that the agent leaves; call this before cancelling its work."""
        self.has_left = True
