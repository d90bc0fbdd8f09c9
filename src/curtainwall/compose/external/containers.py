"""Assembles agents in containers: adapters, images, engine, fleet, authority, and access to the gate and to models."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from pydantic import JsonValue

from curtainwall.agents.builtin.models import Price
from curtainwall.agents.external import describe_tools
from curtainwall.agents.external.container import (
    EGRESS_SOCKET,
    TOOLS_SOCKET,
    ContainerAgent,
    ContainerExtras,
    ContainerFolders,
    ContainerLimits,
    ContainerNetwork,
    ContainerPorts,
    Engine,
    Fleet,
    ForwardedPort,
    ImageMissing,
    ImagePins,
    LentProgram,
)
from curtainwall.compose.connections import TurnNetworkGate
from curtainwall.compose.external.certificates import trusted_certificates
from curtainwall.compose.external.images import AgentImages, adapters_of
from curtainwall.compose.external.meter import TurnMeter
from curtainwall.compose.external.mounts import cache_mounts, extra_mounts, is_worth_masking, mounted_path, variables_of
from curtainwall.compose.external.providers import accesses, require_key, require_matching_keys, require_team_keys
from curtainwall.compose.external.usual_instructions import usual_instructions
from curtainwall.compose.free_hosts import describe_hosts
from curtainwall.compose.gate import GatedSessions
from curtainwall.compose.knowledge import skill_index
from curtainwall.compose.models import model_settings
from curtainwall.compose.network import RefusedRequests
from curtainwall.compose.secret_files import mounted_labels
from curtainwall.config.agents import DEVCONTAINER
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
    Gate,
    Journal,
    Mode,
    Presence,
    Save,
    SessionId,
    ToolResult,
    TurnAt,
    Workspace,
    record,
)
from curtainwall.runtime import Actor
from curtainwall.runtime.gate.permits import permit_watch
from curtainwall.tools import INSIDE, scopes
from curtainwall.tools.mcp_in import McpServer
from curtainwall.tools.skills import own_folders

# These tools return other people's text, which must not be changed.
_WORD_FOR_WORD = ("filesystem.read_", "filesystem.edit_", "fetch.", "shell.", "git.")


class ContainerGate:
    """The gate as a container sees it: paths in answers are those inside the container."""

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
        """Pass a call through the gate, and write workspace paths in the answer as the agent knows them."""
        answer = await self._gate.request(session, request, wait=wait, save=save, presence=presence)
        verdict = answer.verdict.model_copy(update={"reason": self._seen(answer.verdict.reason)})
        result = answer.result
        if result is not None and not (result.ok and request.tool.startswith(_WORD_FOR_WORD)):
            result = ToolResult(ok=result.ok, value=self._seen(result.value))
        return replace(answer, verdict=verdict, result=result)

    async def resume(self, session: SessionId, call: CallId, arguments: Mapping[str, JsonValue] | None = None) -> Answer:
        """Continue a call that waited for approval."""
        return await self._gate.resume(session, call, arguments)

    async def drop(self, session: SessionId, call: CallId, why: str) -> None:
        """Drop a call that nobody waits for any more."""
        await self._gate.drop(session, call, why)

    def _seen(self, value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            return self._outside.sub(self._inside, value)
        if isinstance(value, list):
            return [self._seen(each) for each in value]
        return {self._outside.sub(self._inside, key): self._seen(each) for key, each in value.items()} if isinstance(value, dict) else value


# Where distributions keep the certificates that programs trust.
@record
class ContainerAccess:
    """Opens a session's sockets in its run directory."""

    wired: GatedSessions
    journal: Journal
    egress: Egress
    accesses_of: Callable[[str, str], Mapping[str, Access]]
    """Returns the access of an agent that serves a team, by provider name."""
    price: Price | None
    mounts_of: Callable[[str], Sequence[str]]
    """Returns what the user mounts for an agent besides the workspace."""

    @asynccontextmanager
    async def open(self, at: TurnAt, run: Path, user: int, providers: Sequence[str]) -> AsyncGenerator[ContainerNetwork]:
        """Serve `mcp.sock` and `egress.sock` for this user and this turn only, while the context is open."""
        registry, gate = self.wired.registry, self.wired.gate
        async with AsyncExitStack() as stack:
            actor = await stack.enter_async_context(registry.hold(at.session))
            await self._label(actor)
            meter = TurnMeter(at, lambda: actor.state, self.journal, registry.clock, self.wired.masker, self.price)
            container_gate = ContainerGate(gate, actor.state.workspace.path, INSIDE)
            server = McpServer(at.session, container_gate, registry.feed, self.wired.tools.listing, registry.clock, turn=at.turn)
            await stack.enter_async_context(server.open(run / TOOLS_SOCKET, owner=user))
            network_gate = TurnNetworkGate(gate, at, permit_watch(registry))
            accesses = self.accesses_of(actor.state.facts.agent, actor.state.facts.team)
            reachable = tuple(accesses[name] for name in providers if name in accesses)
            refused = RefusedRequests(at.session, self.journal, registry.clock, self.wired.masker, lambda: actor.state.turn)
            terms = ProxyConfig(reachable, meter, network_gate.judge, network_gate.decide, report=refused.report)
            proxy = await self.egress.open(terms, run / EGRESS_SOCKET, owner=user)
            stack.push_async_callback(proxy.close)
            certificates = await asyncio.to_thread(trusted_certificates, self.egress)
            tools, hosts = describe_tools(self.wired.tools.listing()), describe_hosts(self.wired, at.session)
            instructions = usual_instructions(self.wired, actor.state.opened)
            yield ContainerNetwork(proxy.sentinels, certificates, tools, hosts, instructions, meter.settled)

    async def _label(self, actor: Actor) -> None:
        """Add the labels of everything that is mounted, as if it had been read."""
        state = actor.state
        policy = self.wired.setup.rules.of_session(state.opened).policy
        mounted = partial(mounted_labels, policy, state.facts, besides=self.mounts_of(state.facts.agent))
        sources = await asyncio.to_thread(mounted)
        new = tuple(source for source in sources if source.label not in state.labels)
        if new:
            await actor.submit(AddLabels(by=SYSTEM, labels=new))


_MIB = 1024 * 1024
_OWN_CHOICE = frozenset({"", "auto"})


class Containers:
    """Everything that container agents need in one process. The engine is not contacted before it is needed."""

    def __init__(self, wired: GatedSessions) -> None:
        self._wired = wired
        self._config = config = wired.setup.config
        self._engine = Engine()
        self._adapters = adapters_of(config)
        self._images = AgentImages(config, self._engine, ImagePins(wired.setup.home.root).all())
        self._fleet = Fleet(self._engine, limits_of(config), home=str(wired.setup.home.root))
        self._egress: Egress | None = None

    async def require_ready(self, agent: str, base: str = "") -> None:
        """Raise, with what to do, if the key, the engine, the image or disk space is missing."""
        providers = tuple(self._adapters.find(agent).providers)
        require_matching_keys(self._config, agent, providers)
        await require_key(agent, self._accesses_of(agent), providers)
        try:
            if not base and self._is_chosen_by_projects(agent):
                await self._engine.about()
                return
            await self._engine.check(self._images.of(agent, base), self._fleet.limits.free_disk, self._wired.setup.home.root)
        except ImageMissing:
            raise ImageMissing(f"the image of `{agent}` is not there; {self._images.remedy(agent, base)}") from None

    def _is_chosen_by_projects(self, agent: str) -> bool:
        section = self._config.agents.get(agent)
        return section is not None and section.image == DEVCONTAINER

    async def lacks_image(self, agent: str, base: str = "") -> bool:
        """Tell whether an agent's image has to be built first, and can be."""
        return not (not base and self._is_chosen_by_projects(agent)) and await self._images.lacks(agent, base)

    async def build(self, agent: str, base: str = "") -> AsyncIterator[str]:
        """Build an agent's image, and yield the progress."""
        async for line in self._images.build(agent, base=base):
            yield line

    def require_model(self, agent: str, model: str) -> None:
        """Raise if an agent cannot use a model of this name."""
        provider, _, name = model.partition(":")
        providers = self._adapters.find(agent).providers
        if model not in _OWN_CHOICE and not (name and provider in providers):
            names = ", ".join(f"{each}:NAME" for each in providers) or "none by name"
            raise CommandRefused(f"`{agent}` cannot use the model `{model}`; it takes {names}, or `auto` for its own choice")

    async def agent(self, journal: Journal) -> ContainerAgent:
        """Return the agent that runs the containers of all sessions."""
        wired, config = self._wired, self._config
        authority = await asyncio.to_thread(Authority, wired.setup.home.root / "ca")
        self._egress = Egress(authority, Dialler(scopes(wired.setup.own_ports)), wired.setup.own_ports)
        price = model_settings(config, wired.masker.learn).price
        ports = ContainerPorts(
            feed=wired.registry.feed,
            gate=wired.gate,
            journal=journal,
            clock=wired.registry.clock,
            masker=wired.masker,
            fleet=self._fleet,
            outside=ContainerAccess(wired, journal, self._egress, self._accesses_of, price, self._mounted),
            adapters=self._adapters,
            folders_of=self._folders_of,
            image_of=self._images.choose,
            programs_of=self._programs_of,
            extras_of=self._extras_of,
            skills_of=partial(own_folders, skill_index(wired.setup.home)),
            views=wired.views,
        )
        return ContainerAgent(ports)

    async def close(self) -> None:
        """Remove the containers of this process, and close everything."""
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
        session_home = home.session(session)
        return ContainerFolders(
            workspace=Path(workspace.path),
            orientation=session_home.root / "orientation",
            run=home.root / "run" / session,
            state=session_home.root / "state",
            is_own=workspace.own,
            is_readonly=mode is Mode.PLAN,
        )

    def _extras_of(self, agent: str, workspace: Workspace, mode: Mode) -> ContainerExtras:
        section = self._config.agents.get(agent)
        if section is None:
            return ContainerExtras()
        variables = variables_of(section)
        for name, value in variables.items():
            if is_worth_masking(value):
                self._wired.masker.learn(name, value)
        setup = self._wired.setup
        mounts = extra_mounts(section, workspace, mode, setup.policy.protection)
        caches = cache_mounts(section, agent, workspace, setup.home.root / "caches")
        ports = tuple(ForwardedPort(int(each.split(":")[0]), int(each.split(":")[-1])) for each in section.ports)
        # An agent of the user's own has its variables from its adapter.
        return ContainerExtras((*mounts, *caches), ports, variables, section.keep)

    def _mounted(self, agent: str) -> tuple[str, ...]:
        section = self._config.agents.get(agent)
        return () if section is None else tuple(map(mounted_path, section.mounts))

    def _programs_of(self, agent: str) -> tuple[LentProgram, ...]:
        section = self._config.agents.get(agent)
        pairs = () if section is None else (each.split(":", 1) for each in section.programs)
        return tuple(LentProgram(Path(here), inside) for here, inside in pairs)


def limits_of(config: Config) -> ContainerLimits:
    """Return how much containers may use."""
    section = config.containers
    return ContainerLimits(
        containers=section.most,
        processes=section.processes,
        memory=section.memory * _MIB,
        cpus=section.cpus,
        disk=section.disk * _MIB,
        turn=float(section.turn),
        pause_after=float(section.pause),
        remove_after=float(section.idle),
    )
