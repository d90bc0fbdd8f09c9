"""The fourth level: agents of three kinds (our own, in containers, as processes), and the desk that channels use."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from curtainwall.agents.builtin import (
    BuiltinAgent,
    BuiltinPorts,
    CodeLimits,
    LanguageModel,
    ProgramRunner,
    SnapshotSeal,
    Workers,
)
from curtainwall.agents.builtin.models import RetryingModel, find_model
from curtainwall.agents.registry import AgentRegistry
from curtainwall.channels.live import LiveEndpoint, RemoteListening
from curtainwall.channels.ports import ChannelPorts
from curtainwall.compose.free_hosts import describe_hosts
from curtainwall.compose.gate import GatedSessions, LateSteps
from curtainwall.compose.hooks import SessionHooks
from curtainwall.compose.knowledge import HouseKnowledge, prompted_skills, skill_index
from curtainwall.compose.models import default_model_name, model_settings
from curtainwall.compose.setup import Setup
from curtainwall.config.agents import BUILTIN, LOCAL, agent_model, agent_names, contained_agents
from curtainwall.config.schema import Config
from curtainwall.config.secrets import house_key
from curtainwall.host import confined_worker, find_monty
from curtainwall.model import Broken, Clock, ExtensionNoted, Journal, LiveFeed, Mode, Route, SessionId, record
from curtainwall.operations.desk import DeskPorts, SessionDesk
from curtainwall.operations.explanations import Explanations
from curtainwall.operations.open import SessionSpec
from curtainwall.operations.reviews import ViewReviews
from curtainwall.runtime import SessionJournal, Turns
from curtainwall.session import require_short_name
from curtainwall.teams.keeper import Keeper
from curtainwall.tools.hooks import Pins

if TYPE_CHECKING:
    from curtainwall.agents.external.container import ContainerAgent
    from curtainwall.agents.external.process import ProcessAgent
    from curtainwall.compose.external.containers import Containers
    from curtainwall.compose.external.processes import Processes


def all_agents(config: Config) -> tuple[str, ...]:
    """Return the names of all agents that a session can have."""
    return agent_names(config.agents)


class ContainerKind:
    """External agents in containers, behind our gate and our proxy."""

    def __init__(self, wired: GatedSessions, journal: Journal) -> None:
        self._wired = wired
        self._journal = journal
        self._made: Containers | None = None
        self._agent: ContainerAgent | None = None

    @property
    def names(self) -> Sequence[str]:
        """Return the names of its agents."""
        return contained_agents(self._wired.setup.config.agents)

    async def require_ready(self, agent: str, base: str = "") -> None:
        """Raise, with what to do, if the engine, the image, the key or disk space is missing; `base` is an image to build on."""
        await self._containers().require_ready(agent, base)

    async def lacks_image(self, agent: str, base: str = "") -> bool:
        """Tell whether an agent's image has to be built first; raise if it cannot be built."""
        return await self._containers().lacks_image(agent, base)

    async def build(self, agent: str, base: str = "") -> AsyncIterator[str]:
        """Build an agent's image, and yield the progress."""
        async for line in self._containers().build(agent, base):
            yield line

    def require_model(self, agent: str, model: str) -> None:
        """Raise if an agent cannot use a model of this name."""
        self._containers().require_model(agent, model)

    async def worker(self) -> "ContainerAgent":
        """Return the agent that runs the containers."""
        if self._agent is None:
            self._agent = await self._containers().agent(self._journal)
        return self._agent

    async def close(self) -> None:
        """Remove the containers of this process."""
        if self._made is not None:
            await self._made.close()

    def _containers(self) -> "Containers":
        if self._made is None:
            # Start-up time: the engine's client and the authority take long to load.
            from curtainwall.compose.external.containers import Containers

            self._made = Containers(self._wired)
        return self._made


class ProcessKind:
    """Local agents, behind our gate and our proxy."""

    names: Sequence[str] = (LOCAL,)

    def __init__(self, wired: GatedSessions, journal: Journal) -> None:
        self._wired = wired
        self._journal = journal
        self._made: Processes | None = None

    async def require_ready(self, agent: str) -> None:
        """Raise, with what to do, if the program, the confinement or the key is missing."""
        await self._processes().require_ready(agent)

    def require_model(self, agent: str, model: str) -> None:
        """Raise if the agent cannot use a model of this name."""
        self._processes().require_model(agent, model)

    async def worker(self) -> "ProcessAgent":
        """Return the agent that runs the processes."""
        return await self._processes().agent()

    async def close(self) -> None:
        """End the processes."""
        if self._made is not None:
            await self._made.close()

    def _processes(self) -> "Processes":
        if self._made is None:
            # Start-up time: the proxy and its authority take long to load.
            from curtainwall.compose.external.processes import Processes

            self._made = Processes(self._wired, self._journal)
        return self._made


_MIB = 1024 * 1024
_LEAST_MEMORY = 512 * _MIB

TERMINAL = Route(channel="local", reference="terminal")

ModelOf = Callable[[str], LanguageModel]
"""Finds a model by the name in a session."""


@record
class RunningAgents:
    """Everything that a channel or a program needs to work with sessions."""

    wired: GatedSessions
    journal: SessionJournal
    turns: Turns
    desk: SessionDesk
    agents: AgentRegistry
    live: LiveFeed
    """What happens right now, in any process."""

    @property
    def line(self) -> ChannelPorts:
        """The ports of a text channel."""
        wired = self.wired
        explanations, knowledge = Explanations(wired.sessions), HouseKnowledge(wired.sessions, wired.masker, wired.views)
        return ChannelPorts(self.desk, wired.registry.feed, self.live, wired.registry.clock, explanations, knowledge, LateSteps(wired))


class InstructionPins:
    """Remembers in a file of ours which instructions of each workspace were last used."""

    def __init__(self, pins: Pins) -> None:
        self._pins = pins

    def known(self, workspace: str, path: str) -> str | None:
        """Return the remembered digest, if any."""
        return self._pins.all().get(f"{workspace}/{path}")

    def remember(self, workspace: str, path: str, digest: str) -> None:
        """Replace the remembered digest."""
        self._pins.set(f"{workspace}/{path}", digest)


class BuiltinKind:
    """Our own agent, with its models and the workers that run its programs."""

    names = (BUILTIN,)

    def __init__(self, wired: GatedSessions, journal: SessionJournal, model_of: ModelOf, threshold: float | None) -> None:
        setup = wired.setup
        self._model_of = model_of
        self._workers = Workers(lambda: worker_launcher(setup), code_limits(setup), most=setup.config.code.workers)
        ports = BuiltinPorts(
            feed=wired.registry.feed,
            gate=wired.gate,
            journal=journal,
            hooks=wired.hooks,
            clock=wired.registry.clock,
            masker=wired.masker,
            programs=ProgramRunner(self._workers, SnapshotSeal(house_key(setup.home.mask_key)), journal),
            model_of=model_of,
            tools=wired.tools.listing,
            remembered=InstructionPins(Pins(setup.home.root / "instructions.json")),
            skills=partial(prompted_skills, skill_index(setup.home), mask=wired.masker.mask_text),
            hosts=partial(describe_hosts, wired),
        )
        self._agent = BuiltinAgent(ports, threshold)

    async def require_ready(self, agent: str) -> None:
        """Check nothing: everything it needs ships with us, and `require_model` checks the model."""

    def require_model(self, agent: str, model: str) -> None:
        """Raise if there is no model of this name."""
        del agent
        self._model_of(model)

    async def worker(self) -> BuiltinAgent:
        """Return the agent."""
        return self._agent

    async def close(self) -> None:
        """End the workers."""
        await self._workers.close()


@asynccontextmanager
async def run_agents(wired: GatedSessions, model_of: ModelOf, spec: SessionSpec) -> AsyncGenerator[RunningAgents]:
    """Run agents until the context is left; then park the running turns."""
    registry, journal = wired.registry, SessionJournal(wired.registry)
    threshold = wired.setup.config.model.compact_at or None
    crew = AgentRegistry(
        wired.sessions.names.of,
        BuiltinKind(wired, journal, model_of, threshold),
        ContainerKind(wired, journal),
        ProcessKind(wired, journal),
    )
    session_hooks = SessionHooks(wired.hooks, wired.lifecycle, float(wired.setup.config.hooks.idle))
    reviews = ViewReviews(wired.sessions, wired.gate, wired.views, wired.masker)
    turns = Turns(registry, crew, wired.hooks, crew.last_words, wired.gate, session_hooks, reviews)
    watch = wired.setup.home.root / "run" / "watch"
    listening = RemoteListening(journal, registry.feed, wired.store.leases, watch)
    desk = SessionDesk(wired.sessions, DeskPorts(wired.incoming, crew, turns.attend, spec, threshold, wired.views.fault))
    keeper = Keeper(wired.teams, turns, crew).at_work() if wired.setup.config.teams else nullcontext()
    async with LiveEndpoint(journal, watch).open():
        try:
            async with keeper:
                yield RunningAgents(wired, journal, turns, desk, crew, listening)
        finally:
            await turns.close()
            await crew.close()


async def remember_image(journal: Journal, session: SessionId, base: str, clock: Clock) -> None:
    """Record the image that a session's agent is to be built on, which outranks the configured one."""
    data: dict[str, JsonValue] = {"image": base}
    await journal.record(session, (ExtensionNoted(at=clock.now(), extension="container", data=data),))


def model_finder(wired: GatedSessions) -> ModelOf:
    """Return a function that finds models by name, creates each once, and retries their calls."""
    settings = model_settings(wired.setup.config, wired.masker.learn)
    models: dict[str, LanguageModel] = {}

    def model_of(name: str) -> LanguageModel:
        if name not in models:
            models[name] = RetryingModel(find_model(name, settings), asyncio.sleep)
        return models[name]

    return model_of


def session_spec(
    wired: GatedSessions,
    agent: str,
    model: str | None,
    workspace: Path | None,
    mode: Mode | None,
    name: str,
    route: Route = TERMINAL,
) -> SessionSpec:
    """Return the spec of a new session: the user's choices, or else defaults for the agent."""
    require_short_name(name)
    if agent == BUILTIN:
        model = model or default_model_of(wired)
    else:
        model = model or agent_model(wired.setup.config.agents, agent)
    return SessionSpec(model, workspace, name, agent, mode or default_mode(wired.setup.config, agent, workspace), (route,))


def default_mode(config: Config, agent: str, workspace: Path | None) -> Mode:
    """Return the default mode for a new session: giving a project to a container agent, which has it mounted, grants edits in it."""
    if config.sessions.mode is not None:
        return config.sessions.mode
    return Mode.DEFAULT if workspace is None or agent in (BUILTIN, LOCAL) else Mode.ACCEPT_EDITS


def default_model_of(wired: GatedSessions) -> str:
    """Return the default model for a new session."""
    return default_model_name(wired.setup.config, wired.masker.learn)


def code_limits(setup: Setup) -> CodeLimits:
    """Return the limits of one program."""
    section = setup.config.code
    return CodeLimits(seconds=float(section.seconds), memory=section.memory * _MIB, calls=section.calls)


def worker_launcher(setup: Setup) -> Path:
    """Return what starts a confined code worker; raise if it cannot be confined and the user has not allowed unconfined ones."""
    binary = find_monty()
    if binary is None:
        raise Broken("the interpreter for programs (`monty`) is not installed; install `pydantic-monty` again")
    directory = setup.home.root / "run"
    memory = max(_LEAST_MEMORY, 2 * setup.config.code.memory * _MIB)
    return confined_worker(binary, directory, unconfined_ok=setup.config.code.unconfined, memory=memory).launcher
