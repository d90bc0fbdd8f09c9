"""Agents in containers as one kind among others. Engine, fleet, authority and egress are made for the first session that needs them."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from curtainwall.compose.gate import Wired
from curtainwall.config.agents import agent_names, contained_agents
from curtainwall.config.schema import Config
from curtainwall.model import Journal

if TYPE_CHECKING:
    from curtainwall.agents.external.container import ContainerAgent
    from curtainwall.compose.external.containers import Containers


def all_agents(config: Config) -> tuple[str, ...]:
    """Return the names of all agents that a session can have."""
    return agent_names(config.agents)


class Brokered:
    """The agents of others, behind our gate and our proxy."""

    def __init__(self, wired: Wired, journal: Journal) -> None:
        self._wired = wired
        self._journal = journal
        self._made: Containers | None = None
        self._agent: ContainerAgent | None = None

    @property
    def names(self) -> Sequence[str]:
        """Return the names of its agents."""
        return contained_agents(self._wired.setup.config.agents)

    async def see_that_it_can(self, agent: str) -> None:
        """Raise, with what to do, where the engine, the image, the key or room on the disk is missing."""
        await self._containers().see_that_it_can(agent)

    async def lacks_image(self, agent: str) -> bool:
        """Tell whether an agent's image has to be built first; raise where nothing could be built."""
        return await self._containers().lacks_image(agent)

    async def build(self, agent: str) -> AsyncIterator[str]:
        """Build an agent's image, and tell how it goes."""
        async for line in self._containers().build(agent):
            yield line

    def see_model(self, agent: str, model: str) -> None:
        """Raise where an agent cannot use a model of this name."""
        self._containers().see_model(agent, model)

    async def worker(self) -> "ContainerAgent":
        """Return whoever keeps the containers."""
        if self._agent is None:
            self._agent = await self._containers().agent(self._journal)
        return self._agent

    async def close(self) -> None:
        """Remove the containers of this process."""
        if self._made is not None:
            await self._made.close()

    def _containers(self) -> "Containers":
        if self._made is None:
            # Start-up time: the engine's client and the authority take longer to load than most sessions last.
            from curtainwall.compose.external.containers import Containers

            self._made = Containers(self._wired)
        return self._made
