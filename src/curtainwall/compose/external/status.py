"""The status of an agent for listings. It does not know where a status comes from, so it needs no engine."""

from curtainwall.model import record


@record
class AgentStatus:
    """One agent as `agents list` shows it; `lacks` lists everything that keeps it from running, and what to do."""

    name: str
    version: str
    image: str
    built: bool
    lacks: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """What it lacks, in one line; empty if it can run."""
        return "; ".join(self.lacks)

    @property
    def is_runnable(self) -> bool:
        """Whether a session could be started with it."""
        return not self.lacks
