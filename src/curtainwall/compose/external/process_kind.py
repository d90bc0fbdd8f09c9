"""Claude Code as a process of this machine, as one kind of agents among others; what it needs is made for the first session."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from curtainwall.compose.gate import Wired
from curtainwall.config.agents import LOCAL
from curtainwall.model import Journal

if TYPE_CHECKING:
    from curtainwall.agents.external.process import ProcessAgent
    from curtainwall.compose.external.processes import Processes


class Local:
    """Local agents, behind our gate and our proxy."""

    names: Sequence[str] = (LOCAL,)

    def __init__(self, wired: Wired, journal: Journal) -> None:
        self._wired = wired
        self._journal = journal
        self._made: Processes | None = None

    async def see_that_it_can(self, agent: str) -> None:
        """Raise, with what to do, where the program, the confinement or the key is missing."""
        await self._processes().see_that_it_can(agent)

    def see_model(self, agent: str, model: str) -> None:
        """Raise where the agent cannot use a model of this name."""
        self._processes().see_model(agent, model)

    async def worker(self) -> "ProcessAgent":
        """Return whoever keeps the processes."""
        return await self._processes().agent()

    async def close(self) -> None:
        """End the processes."""
        if self._made is not None:
            await self._made.close()

    def _processes(self) -> "Processes":
        if self._made is None:
            # Start-up time: the proxy and its authority take longer to load than most sessions last.
            from curtainwall.compose.external.processes import Processes

            self._made = Processes(self._wired, self._journal)
        return self._made
