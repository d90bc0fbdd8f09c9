"""Which image each agent of the configuration runs in, whether it is there, and how it is made."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from curtainwall.agents.external.container import Adapters, Engine, EngineMissing, Images
from curtainwall.config.schema import Config
from curtainwall.model import CommandRefused, CurtainwallError, NotFound


@dataclass(frozen=True, slots=True)
class AgentStanding:
    """One agent as `agents list` shows it; `lacks` says everything that is in the way of running it, and what to do."""

    name: str
    version: str
    image: str
    built: bool
    lacks: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """What it lacks, in one line; nothing where it lacks nothing."""
        return "; ".join(self.lacks)

    @property
    def is_runnable(self) -> bool:
        """Tell whether a session could be started with it."""
        return not self.lacks


class AgentImages:
    """The images of all agents: those that we build, on Debian or on an image of the user's, and those that are the user's own."""

    def __init__(self, config: Config, engine: Engine) -> None:
        self._config = config
        self._engine = engine

    def is_users(self, agent: str) -> bool:
        """Tell whether an agent runs in an image of the user's own, as it is."""
        section = self._config.agents.get(agent)
        return section is not None and bool(section.command or section.ready)

    def of(self, agent: str) -> str:
        """Return the image that an agent runs in; raise `NotFound` where there is neither a recipe nor an image of the user's."""
        section = self._config.agents.get(agent)
        if section is not None and section.image is not None and self.is_users(agent):
            return section.image
        return self.recipes(agent).name_of(agent)

    def recipes(self, agent: str) -> Images:
        """Return the recipes, on the image that this agent is layered on."""
        section = self._config.agents.get(agent)
        return Images(self._engine) if section is None or section.image is None else Images(self._engine, on=section.image)

    @property
    def buildable(self) -> tuple[str, ...]:
        """Return the agents whose images we build."""
        return tuple(agent for agent in Images(self._engine).agents if not self.is_users(agent))

    def remedy(self, agent: str) -> str:
        """Return what to do where an agent's image is not there."""
        return f"make `{self.of(agent)}` first" if self.is_users(agent) else f"build it with `curtainwall agents build {agent}`"

    async def lacks(self, agent: str) -> bool:
        """Tell whether an agent's image has to be built first, and can be."""
        return not self.is_users(agent) and not await self._engine.has_image(self.of(agent))

    async def build(self, agent: str, network: str | None = None) -> AsyncIterator[str]:
        """Build an agent's image, and tell how it goes; what is there already is not built again."""
        if self.is_users(agent):
            raise CommandRefused(f"there is nothing to build: `{agent}` runs in your image `{self.of(agent)}`")
        async for line in self.recipes(agent).build(agent, network):
            yield line

    async def standings(self, adapters: Adapters, keys: Mapping[str, frozenset[str]]) -> list[AgentStanding]:
        """Return how it stands with every agent in a container; `keys` are the providers that there are keys for, by the agent's name."""
        try:
            await self._engine.about()
            engine = ""
        except EngineMissing as fault:
            engine = str(fault)
        return [await self._standing(name, tuple(adapters.find(name).providers), keys[name], engine) for name in adapters.names]

    async def _standing(self, agent: str, providers: tuple[str, ...], keys: frozenset[str], engine: str) -> AgentStanding:
        try:
            image = self.of(agent)
        except NotFound:
            nothing = f"there is no recipe for it; name an image of yours in [agents.{agent}]"
            return AgentStanding(agent, "", "", built=False, lacks=(nothing,))
        version = "" if self.is_users(agent) else self.recipes(agent).version_of(agent)
        built, lacks = False, [engine] if engine else []
        try:
            built = not engine and await self._engine.has_image(image)
            if not engine and not built:
                lacks.append(f"its image is not there; {self.remedy(agent)}")
        except CurtainwallError as fault:
            lacks.append(str(fault))
        if providers and keys.isdisjoint(providers):
            lacks.append(f"there is no key for {' or '.join(providers)} (docs/models.md)")
        return AgentStanding(agent, version, image, built=built, lacks=tuple(lacks))
