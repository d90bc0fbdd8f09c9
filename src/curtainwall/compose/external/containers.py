"""Agents in containers, put together: adapters, images, engine, fleet, authority, and their access to the gate and to their models."""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pydantic import JsonValue

from curtainwall.agents.builtin.models import Price
from curtainwall.agents.external.container import (
    EGRESS_SOCKET,
    TOOLS_SOCKET,
    Adapter,
    Adapters,
    ContainerAgent,
    ContainerFolders,
    ContainerLimits,
    ContainerNetwork,
    ContainerPorts,
    Engine,
    EngineMissing,
    Fleet,
    ImageMissing,
    Images,
    LentProgram,
    PlainAgent,
)
from curtainwall.compose.connections import TurnNetworkGate
from curtainwall.compose.external.meter import TurnMeter
from curtainwall.compose.external.providers import accesses, require_key, require_matching_keys, require_team_keys
from curtainwall.compose.free_hosts import describe_hosts
from curtainwall.compose.gate import INSIDE, GatedSessions
from curtainwall.compose.knowledge import skill_index
from curtainwall.compose.models import model_settings
from curtainwall.compose.network import RefusedRequests
from curtainwall.compose.secret_files import mounted_labels
from curtainwall.config.schema import Config
from curtainwall.egress import Access, Authority, Egress, ProxyConfig
from curtainwall.host import Dialler
from curtainwall.model import (
    SYSTEM,
    AddLabels,
    Answer,
    CallId,
    CallRequest,
    CommandRefused,
    CurtainwallError,
    Gate,
    Journal,
    Mode,
    NotFound,
    Presence,
    Save,
    SessionId,
    ToolResult,
    TurnAt,
    Workspace,
)
from curtainwall.runtime import Actor
from curtainwall.runtime.gate.permits import permit_watch
from curtainwall.tools import scopes
from curtainwall.tools.mcp_in import McpServer
from curtainwall.tools.skills import own_folders

# What these return is somebody's text, and has to come back as it was.
_WORD_FOR_WORD = ("filesystem.read_", "filesystem.edit_", "fetch.", "shell.", "git.")


class ContainerGate:
    """The gate, seen from inside a container."""

    def __init__(self, gate: Gate, workspace: str, inside: str) -> None:
        self._gate = gate
        self._inside = inside
        self._outside = re.compile(rf"{re.escape(workspace)}(?![\w.-])")

    async def request(
        self,
        session: SessionId,
        request: CallRequest,
        *,
        wait: bool = True,
        save: Save | None = None,
        presence: Presence | None = None,
    ) -> Answer:
        """Walk the ten steps, and speak of the workspace as the agent does."""
        answer = await self._gate.request(session, request, wait=wait, save=save, presence=presence)
        verdict = answer.verdict.model_copy(update={"reason": self._seen(answer.verdict.reason)})
        result = answer.result
        if result is not None and not (result.ok and request.tool.startswith(_WORD_FOR_WORD)):
            result = ToolResult(ok=result.ok, value=self._seen(result.value))
        return replace(answer, verdict=verdict, result=result)

    async def go_on(self, session: SessionId, call: CallId, arguments: Mapping[str, JsonValue] | None = None) -> Answer:
        """Go on with a call that was asked for."""
        return await self._gate.go_on(session, call, arguments)

    async def drop(self, session: SessionId, call: CallId, why: str) -> None:
        """Let go of a call that nobody waits for any more."""
        await self._gate.drop(session, call, why)

    def _seen(self, value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            return self._outside.sub(self._inside, value)
        if isinstance(value, list):
            return [self._seen(each) for each in value]
        return {self._outside.sub(self._inside, key): self._seen(each) for key, each in value.items()} if isinstance(value, dict) else value


# Where distributions keep the certificates that programs trust.
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


@dataclass(frozen=True, slots=True)
class ContainerAccess:
    """Opens a session's sockets in its run directory."""

    wired: GatedSessions
    journal: Journal
    egress: Egress
    accesses_of: Callable[[str, str], Mapping[str, Access]]
    """Tells what an agent may be given for a team, by the provider's name."""
    price: Price | None

    @asynccontextmanager
    async def open(self, at: TurnAt, run: Path, user: int, providers: Sequence[str]) -> AsyncGenerator[ContainerNetwork]:
        """Serve `mcp.sock` and `egress.sock` for that user and that turn alone, while the context is open."""
        house, gate = self.wired.house, self.wired.gate
        async with AsyncExitStack() as stack:
            actor = await stack.enter_async_context(house.hold(at.session))
            await self._label(actor)
            meter = TurnMeter(at, lambda: actor.state, self.journal, house.clock, self.price)
            seen = ContainerGate(gate, actor.state.workspace.path, INSIDE)
            door = McpServer(at.session, seen, house.feed, self.wired.tools.listing, house.clock, turn=at.turn)
            await stack.enter_async_context(door.open(run / TOOLS_SOCKET, owner=user))
            asking = TurnNetworkGate(gate, at, permit_watch(house))
            accesses = self.accesses_of(actor.state.facts.agent, actor.state.facts.team)
            reached = tuple(accesses[name] for name in providers if name in accesses)
            refused = RefusedRequests(at.session, self.journal, house.clock, self.wired.masker, lambda: actor.state.turn)
            terms = ProxyConfig(reached, meter, asking.judge, asking.decide, report=refused.report)
            proxy = await self.egress.open(terms, run / EGRESS_SOCKET, owner=user)
            stack.push_async_callback(proxy.close)
            certificates = await asyncio.to_thread(trusted_certificates, self.egress)
            hosts = describe_hosts(self.wired, at.session)
            yield ContainerNetwork(keys=proxy.sentinels, certificates=certificates, hosts=hosts, settled=meter.settled)

    async def _label(self, actor: Actor) -> None:
        """Count everything that is mounted as read."""
        state = actor.state
        policy = self.wired.setup.rules.of_session(state.opened).policy
        found = await asyncio.to_thread(mounted_labels, policy, state.facts)
        new = tuple(source for source in found if source.label not in state.labels)
        if new:
            await actor.submit(AddLabels(by=SYSTEM, labels=new))


def trusted_certificates(egress: Egress) -> str:
    """Return whom a foreign agent trusts: us, and behind a connection that nobody sees into, whom this machine trusts."""
    bundle = next((Path(path) for path in _BUNDLES if os.path.isfile(path)), None)
    known = "" if bundle is None else bundle.read_text(encoding="utf-8", errors="replace")
    return f"{egress.authority.certificate.decode()}\n{known}"


@dataclass(frozen=True, slots=True)
class AgentStatus:
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

    async def standings(self, adapters: Adapters, keys: Mapping[str, frozenset[str]]) -> list[AgentStatus]:
        """Return how it stands with every agent in a container; `keys` are the providers that there are keys for, by the agent's name."""
        try:
            await self._engine.about()
            engine = ""
        except EngineMissing as fault:
            engine = str(fault)
        return [await self._standing(name, tuple(adapters.find(name).providers), keys[name], engine) for name in adapters.names]

    async def _standing(self, agent: str, providers: tuple[str, ...], keys: frozenset[str], engine: str) -> AgentStatus:
        try:
            image = self.of(agent)
        except NotFound:
            nothing = f"there is no recipe for it; name an image of yours in [agents.{agent}]"
            return AgentStatus(agent, "", "", built=False, lacks=(nothing,))
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


_MIB = 1024 * 1024
_OWN_CHOICE = frozenset({"", "auto"})


class Containers:
    """The parts of one process. The engine is asked for nothing before it is needed."""

    def __init__(self, wired: GatedSessions) -> None:
        self._wired = wired
        self._config = config = wired.setup.config
        self._engine = Engine()
        self._adapters = adapters_of(config)
        self._images = AgentImages(config, self._engine)
        self._fleet = Fleet(self._engine, limits_of(config), house=str(wired.setup.home.root))
        self._egress: Egress | None = None

    async def require_ready(self, agent: str) -> None:
        """Raise, with what to do, where the key, the engine, the image or room on the disk is missing."""
        wanted = tuple(self._adapters.find(agent).providers)
        require_matching_keys(self._config, agent, wanted)
        await require_key(agent, self._accesses_of(agent), wanted)
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

    def require_model(self, agent: str, model: str) -> None:
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
        around = ContainerPorts(
            feed=wired.house.feed,
            gate=wired.gate,
            journal=journal,
            clock=wired.house.clock,
            masker=wired.masker,
            fleet=self._fleet,
            outside=ContainerAccess(wired, journal, self._egress, self._accesses_of, price),
            adapters=self._adapters,
            folders_of=self._folders_of,
            image_of=self.image_of,
            programs_of=self._programs_of,
            skills_of=partial(own_folders, skill_index(wired.setup.home)),
        )
        return ContainerAgent(around)

    async def close(self) -> None:
        """Remove the containers of this process, and let go of everything."""
        await self._fleet.close()
        await self._engine.close()
        if self._egress is not None:
            self._egress.close()

    def _accesses_of(self, agent: str, team: str = "") -> dict[str, Access]:
        require_team_keys(self._config, self._wired.setup.config, team)
        require_matching_keys(self._config, agent, self._adapters.find(agent).providers, team=team)
        return accesses(self._config, self._wired.masker.learn, agent=agent, team=team)

    def _folders_of(self, session: SessionId, workspace: Workspace, mode: Mode) -> ContainerFolders:
        home = self._wired.setup.home
        place = home.session(session)
        return ContainerFolders(
            workspace=Path(workspace.path),
            orientation=place.root / "orientation",
            run=home.root / "run" / session,
            state=place.root / "state",
            is_own=workspace.own,
            is_readonly=mode is Mode.PLAN,
        )

    def _programs_of(self, agent: str) -> tuple[LentProgram, ...]:
        section = self._config.agents.get(agent)
        lent = () if section is None else (each.split(":", 1) for each in section.programs)
        return tuple(LentProgram(Path(here), inside) for here, inside in lent)


def adapters_of(config: Config) -> Adapters:
    """Return the adapters that ship, and one for each agent of the user's own."""
    own: list[Adapter] = []
    for name, section in config.agents.items():
        if section.command:
            variables = dict(each.split("=", 1) for each in section.env)
            own.append(PlainAgent(name, section.command, section.resume, section.providers, variables))
    return Adapters(*own)


def limits_of(config: Config) -> ContainerLimits:
    """Return how much containers may use."""
    told = config.containers
    return ContainerLimits(
        containers=told.most,
        processes=told.processes,
        memory=told.memory * _MIB,
        cpus=told.cpus,
        disk=told.disk * _MIB,
        turn=float(told.turn),
        pause_after=float(told.pause),
        remove_after=float(told.idle),
    )
