"""Everything that agents in containers need, introduced to each other: adapters, images, engine, fleet, authority, and the ways out."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from curtainwall.agents.external.container import (
    Adapter,
    Adapters,
    Around,
    ContainerAgent,
    Engine,
    Fleet,
    Folders,
    ImageMissing,
    Limits,
    PlainAgent,
    Program,
)
from curtainwall.compose.external.container_access import Ways
from curtainwall.compose.external.images import AgentImages
from curtainwall.compose.external.providers import accesses, see_that_a_key_is_there, see_that_keys_fit, see_that_team_keys_stand
from curtainwall.compose.gate import Wired
from curtainwall.compose.knowledge import shelf_of
from curtainwall.compose.models import model_settings
from curtainwall.config.schema import Config
from curtainwall.egress import Access, Authority, Egress
from curtainwall.host import Dialler
from curtainwall.model import CommandRefused, Journal, Mode, SessionId, Workspace
from curtainwall.tools import scopes
from curtainwall.tools.skills import own_folders

_MIB = 1024 * 1024
_OWN_CHOICE = frozenset({"", "auto"})


class Containers:
    """The parts of one process. The engine is asked for nothing before it is needed."""

    def __init__(self, wired: Wired) -> None:
        self._wired = wired
        self._config = config = wired.setup.config
        self._engine = Engine()
        self._adapters = adapters_of(config)
        self._images = AgentImages(config, self._engine)
        self._fleet = Fleet(self._engine, limits_of(config), house=str(wired.setup.home.root))
        self._egress: Egress | None = None

    async def see_that_it_can(self, agent: str) -> None:
        """Raise, with what to do, where the key, the engine, the image or room on the disk is missing."""
        wanted = tuple(self._adapters.find(agent).providers)
        see_that_keys_fit(self._config, agent, wanted)
        await see_that_a_key_is_there(agent, self._accesses_of(agent), wanted)
        try:
            await self._engine.check(self.image_of(agent), self._fleet.limits.free_disk, self._wired.setup.home.root)
        except ImageMissing:
            raise ImageMissing(f"the image of `{agent}` is not there; {self._images.remedy(agent)}") from None

    async def lacks_image(self, agent: str) -> bool:
        """Tell whether an agent's image has to be built first, and can be."""
        return await self._images.lacks(agent)

    async def build(self, agent: str) -> AsyncIterator[str]:
        """Build an agent's image, and tell how it goes."""
        async for line in self._images.build(agent):
            yield line

    def see_model(self, agent: str, model: str) -> None:
        """Raise where an agent cannot use a model of this name."""
        provider, _, name = model.partition(":")
        able = self._adapters.find(agent).providers
        if model not in _OWN_CHOICE and not (name and provider in able):
            told = ", ".join(f"{each}:NAME" for each in able) or "none by name"
            raise CommandRefused(f"`{agent}` cannot use the model `{model}`; it takes {told}, or `auto` for its own choice")

    def image_of(self, agent: str) -> str:
        """Return the image that an agent runs in."""
        return self._images.of(agent)

    async def agent(self, journal: Journal) -> ContainerAgent:
        """Return the agent that keeps the containers of all sessions."""
        wired, config = self._wired, self._config
        authority = await asyncio.to_thread(Authority, wired.setup.home.root / "ca")
        self._egress = Egress(authority, Dialler(scopes(wired.setup.own_ports)), wired.setup.own_ports)
        price = model_settings(config, wired.masker.learn).price
        around = Around(
            feed=wired.house.feed,
            gate=wired.gate,
            journal=journal,
            clock=wired.house.clock,
            masker=wired.masker,
            fleet=self._fleet,
            outside=Ways(wired, journal, self._egress, self._accesses_of, price),
            adapters=self._adapters,
            folders_of=self._folders_of,
            image_of=self.image_of,
            programs_of=self._programs_of,
            skills_of=partial(own_folders, shelf_of(wired.setup.home)),
        )
        return ContainerAgent(around)

    async def close(self) -> None:
        """Remove the containers of this process, and let go of everything."""
        await self._fleet.close()
        await self._engine.close()
        if self._egress is not None:
            self._egress.close()

    def _accesses_of(self, agent: str, team: str = "") -> dict[str, Access]:
        see_that_team_keys_stand(self._config, self._wired.setup.config, team)
        see_that_keys_fit(self._config, agent, self._adapters.find(agent).providers, team=team)
        return accesses(self._config, self._wired.masker.learn, agent=agent, team=team)

    def _folders_of(self, session: SessionId, workspace: Workspace, mode: Mode) -> Folders:
        home = self._wired.setup.home
        place = home.session(session)
        return Folders(
            workspace=Path(workspace.path),
            orientation=place.root / "orientation",
            run=home.root / "run" / session,
            state=place.root / "state",
            is_own=workspace.own,
            is_readonly=mode is Mode.PLAN,
        )

    def _programs_of(self, agent: str) -> tuple[Program, ...]:
        section = self._config.agents.get(agent)
        lent = () if section is None else (each.split(":", 1) for each in section.programs)
        return tuple(Program(Path(here), inside) for here, inside in lent)


def adapters_of(config: Config) -> Adapters:
    """Return the adapters that ship, and one for each agent of the user's own."""
    own: list[Adapter] = []
    for name, section in config.agents.items():
        if section.command:
            variables = dict(each.split("=", 1) for each in section.env)
            own.append(PlainAgent(name, section.command, section.resume, section.providers, variables))
    return Adapters(*own)


def limits_of(config: Config) -> Limits:
    """Return how much containers may use."""
    told = config.containers
    return Limits(
        containers=told.most,
        processes=told.processes,
        memory=told.memory * _MIB,
        cpus=told.cpus,
        disk=told.disk * _MIB,
        turn=float(told.turn),
        pause_after=float(told.pause),
        remove_after=float(told.idle),
    )
