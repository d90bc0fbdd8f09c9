"""The watch over a turn of a process: one that is silent for too long, while no call of its runs, is no more use."""

import time

from curtainwall.agents.external import TurnWatch
from curtainwall.agents.external.process.terms import AgentSilent, Limits
from curtainwall.model import AnyEvent, CallDropped, CallFinished, CallLost


class Watch(TurnWatch):
    """Raises `AgentSilent`. While a human is asked or a call runs, silence does not count."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits.turn)
        self._silence = limits.silence

    def count(self) -> None:
        """Count the time since the last look."""
        super().count()
        if self.asked:
            self.heard_at = time.monotonic()

    def take(self, event: AnyEvent) -> None:
        """Take in what the log says."""
        super().take(event)
        if isinstance(event, CallFinished | CallLost | CallDropped):
            self.heard_at = time.monotonic()

    def next_look(self) -> float | None:
        """Return the seconds until the time is up or the silence too long."""
        if self.asked or self.work.permitted:
            return super().next_look()
        return max(0.0, min(self.left, self._silence - self._silent_for()))

    async def look(self) -> None:
        """See that the process still lives."""
        if self._silent_for() >= self._silence:
            raise AgentSilent(f"the agent gave no sign of life for {self._silence:g} seconds and was ended; send a message again")

    def _silent_for(self) -> float:
        return 0.0 if self.asked or self.work.permitted else time.monotonic() - self.heard_at
