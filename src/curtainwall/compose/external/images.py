"""The agents in containers that can be chosen: their adapters, their images, and what each of them lacks."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from curtainwall.agents.external.container import (
    RECIPE_LABEL,
    Adapter,
    Adapters,
    Engine,
    EngineMissing,
    ImageChoice,
    Images,
    PlainAgent,
    devcontainer_image,
)
from curtainwall.compose.external.mounts import variables_of
from curtainwall.compose.external.status import AgentStatus
from curtainwall.config.agents import DEVCONTAINER
from curtainwall.config.schema import Config
from curtainwall.model import CommandRefused, CurtainwallError, NotFound, Workspace


def adapters_of(config: Config) -> Adapters:
    """Return the adapters that ship, and one for each agent that the user defined."""
    own: list[Adapter] = []
    for name, section in config.agents.items():
        if section.command:
            own.append(PlainAgent(name, section.command, section.resume, section.providers, variables_of(section)))
    return Adapters(*own)


class AgentImages:
    """The images of all agents: those that we build, on Debian or on a user's image, and those that users bring ready to run."""

    def __init__(self, config: Config, engine: Engine, pins: Mapping[str, str] | None = None) -> None:
        self._config = config
        self._engine = engine
        self._pins = pins or {}

    def is_users(self, agent: str) -> bool:
        """Tell whether an agent runs in a user's image without changes."""
        section = self._config.agents.get(agent)
        return section is not None and bool(section.command or section.ready)

    def of(self, agent: str, base: str = "") -> str:
        """Return the image that an agent runs in, on the configured base or another; raise `NotFound` if there is no recipe for it."""
        on = base or self.base_of(agent)
        return on if on and self.is_users(agent) else self.recipes(agent, base).name_of(agent)

    def base_of(self, agent: str) -> str:
        """Return the image that is configured for an agent; empty if there is none, or if each project names its own."""
        section = self._config.agents.get(agent)
        image = None if section is None else section.image
        return "" if image is None or image == DEVCONTAINER else image

    def choose(self, agent: str, workspace: Workspace, remembered: str) -> ImageChoice:
        """Return the image of a session: the one that it remembers, the one that its project names if the user wants that, or the usual."""
        base = remembered
        section = self._config.agents.get(agent)
        if not base and section is not None and section.image == DEVCONTAINER and not workspace.own:
            base = devcontainer_image(Path(workspace.path))
        return ImageChoice(self.of(agent, base), base, self.remedy(agent, base))

    def recipes(self, agent: str, base: str = "") -> Images:
        """Return the recipes, on this agent's base image or another."""
        on = base or self.base_of(agent)
        return Images(self._engine, on=on, pins=self._pins) if on else Images(self._engine, pins=self._pins)

    @property
    def buildable(self) -> tuple[str, ...]:
        """Return the agents whose images we build."""
        return tuple(agent for agent in Images(self._engine).agents if not self.is_users(agent))

    def remedy(self, agent: str, base: str = "") -> str:
        """Return what to do if an agent's image is missing."""
        if self.is_users(agent):
            return f"make `{self.of(agent, base)}` first"
        return f"build it with `curtainwall agents build {agent}{f' --image {base}' if base else ''}`"

    async def lacks(self, agent: str, base: str = "") -> bool:
        """Tell whether an agent's image has to be built first, and can be."""
        return not self.is_users(agent) and not await self._engine.has_image(self.of(agent, base))

    async def build(self, agent: str, network: str | None = None, base: str = "") -> AsyncIterator[str]:
        """Build an agent's image if it is missing, and yield the progress."""
        if self.is_users(agent):
            raise CommandRefused(f"there is nothing to build: `{agent}` runs in your image `{self.of(agent, base)}`")
        async for line in self.recipes(agent, base).build(agent, network):
            yield line

    async def prune(self, *, everything: bool) -> tuple[list[str], int]:
        """Remove our images that no recipe makes any more, or all of them, and return their names and their size at most."""
        removed, size = list[str](), 0
        for image in await self._engine.images():
            for name in image.names:
                if (everything or not self._is_current(name, image.on)) and await self._engine.remove_image(name):
                    removed.append(name)
                    size += image.size
        for image in await self._engine.images(RECIPE_LABEL):
            if await self._engine.remove_image(image.id):
                removed.append(image.id)
                size += image.size
        return removed, size

    def _is_current(self, name: str, on: str) -> bool:
        """Tell whether the recipes would still make an image of this name on what it was built on."""
        images = Images(self._engine, on=on, pins=self._pins) if on else Images(self._engine, pins=self._pins)
        return any(name in images.names_of(agent) for agent in images.agents)

    async def statuses(self, adapters: Adapters, keys: Mapping[str, frozenset[str]]) -> list[AgentStatus]:
        """Return the status of every container agent; `keys` are the providers that have keys, by agent name."""
        try:
            await self._engine.about()
            engine = ""
        except EngineMissing as fault:
            engine = str(fault)
        return [await self._status(name, tuple(adapters.find(name).providers), keys[name], engine) for name in adapters.names]

    async def _status(self, agent: str, providers: tuple[str, ...], keys: frozenset[str], engine: str) -> AgentStatus:
        try:
            image = self.of(agent)
        except NotFound:
            reason = f"there is no recipe for it; name an image of yours in [agents.{agent}]"
            return AgentStatus(agent, "", "", built=False, lacks=(reason,))
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
        return AgentStatus(agent, version, image, built=built, lacks=tuple(lacks))
