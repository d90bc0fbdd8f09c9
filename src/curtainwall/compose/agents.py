"""A house whose agents work: the crew, whoever lets it work, and the desk for channels."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from curtainwall.agents.builtin import (
    Around,
    BuiltinAgent,
    CodeLimits,
    Model,
    Programs,
    Seal,
    Workers,
)
from curtainwall.agents.builtin.models import Patient, find_model
from curtainwall.agents.crew import Crew
from curtainwall.channels.line import Line
from curtainwall.channels.live import FarListening, LiveEndpoint
from curtainwall.compose.external.container_kind import Brokered
from curtainwall.compose.external.process_kind import Local
from curtainwall.compose.free_hosts import told_hosts
from curtainwall.compose.gate import Wired
from curtainwall.compose.hooks import HookedLifetimes
from curtainwall.compose.knowledge import HouseKnowledge, prompted_skills, shelf_of
from curtainwall.compose.models import default_model_name, model_settings
from curtainwall.compose.setup import Setup
from curtainwall.config.agents import BUILTIN, LOCAL, own_choice
from curtainwall.config.keys import house_key
from curtainwall.host import confined_worker, find_monty
from curtainwall.model import Broken, Listening, Mode, Route
from curtainwall.operations.desk import HouseDesk, Surface
from curtainwall.operations.explanations import Explanations
from curtainwall.operations.open import Wanted
from curtainwall.runtime import HouseJournal, Turns
from curtainwall.session import see_name
from curtainwall.teams.keeper import Keeper
from curtainwall.tools.hooks import Pins

_MIB = 1024 * 1024
_LEAST_MEMORY = 512 * _MIB

TERMINAL = Route(channel="local", reference="terminal")

ModelOf = Callable[[str], Model]
"""Finds a model by the name that a session has for it."""


@dataclass(frozen=True, slots=True)
class AtWork:
    """Everything that a channel or a program needs to work with sessions."""

    wired: Wired
    journal: HouseJournal
    turns: Turns
    desk: HouseDesk
    crew: Crew
    listening: Listening
    """What happens right now, in whichever process."""

    @property
    def line(self) -> Line:
        """The line of a text channel to the house."""
        wired = self.wired
        explaining, knowledge = Explanations(wired.sessions), HouseKnowledge(wired.sessions, wired.masker)
        return Line(self.desk, wired.house.feed, self.listening, wired.house.clock, explaining, knowledge)


class InstructionPins:
    """Which instructions of each workspace were last gone by, in a file of ours."""

    def __init__(self, pins: Pins) -> None:
        self._pins = pins

    def known(self, workspace: str, path: str) -> str | None:
        """Return the digest that was remembered."""
        return self._pins.all().get(f"{workspace}/{path}")

    def remember(self, workspace: str, path: str, digest: str) -> None:
        """Remember a digest in place of the one before."""
        self._pins.set(f"{workspace}/{path}", digest)


class Builtin:
    """Our own agent, with its models and the workers that run its programs."""

    names = (BUILTIN,)

    def __init__(self, wired: Wired, journal: HouseJournal, model_of: ModelOf, threshold: float | None) -> None:
        setup = wired.setup
        self._model_of = model_of
        self._workers = Workers(lambda: worker_launcher(setup), code_limits(setup), most=setup.config.code.workers)
        around = Around(
            feed=wired.house.feed,
            gate=wired.gate,
            journal=journal,
            hooks=wired.hooks,
            clock=wired.house.clock,
            masker=wired.masker,
            programs=Programs(self._workers, Seal(house_key(setup.home.mask_key)), journal),
            model_of=model_of,
            tools=wired.tools.listing,
            remembered=InstructionPins(Pins(setup.home.root / "instructions.json")),
            skills=partial(prompted_skills, shelf_of(setup.home), mask=wired.masker.mask_text),
            hosts=partial(told_hosts, wired),
        )
        self._agent = BuiltinAgent(around, threshold)

    async def see_that_it_can(self, agent: str) -> None:
        """See nothing: what it needs comes with us, and a model is looked for by its name."""

    def see_model(self, agent: str, model: str) -> None:
        """Raise where a name leads to no model."""
        del agent
        self._model_of(model)

    async def worker(self) -> BuiltinAgent:
        """Return the agent."""
        return self._agent

    async def close(self) -> None:
        """End the workers."""
        await self._workers.close()


@asynccontextmanager
async def agents_at_work(wired: Wired, model_of: ModelOf, wanted: Wanted) -> AsyncGenerator[AtWork]:
    """Let agents work in a house until the context is left; then turns that run are parked."""
    house, journal = wired.house, HouseJournal(wired.house)
    threshold = wired.setup.config.model.compact_at or None
    crew = Crew(wired.sessions.names.of, Builtin(wired, journal, model_of, threshold), Brokered(wired, journal), Local(wired, journal))
    lifetimes = HookedLifetimes(wired.hooks, wired.lifecycle)
    turns = Turns(house, lambda state: None if state.opened is None else crew, wired.hooks, crew.last_words, wired.gate, lifetimes)
    watch = wired.setup.home.root / "run" / "watch"
    listening = FarListening(journal, house.feed, wired.store.leases, watch)
    desk = HouseDesk(wired.sessions, Surface(wired.incoming, crew, turns.attend, wanted, threshold))
    keeping = Keeper(wired.teams, turns, crew).at_work() if wired.setup.config.teams else nullcontext()
    async with LiveEndpoint(journal, watch).open():
        try:
            async with keeping:
                yield AtWork(wired, journal, turns, desk, crew, listening)
        finally:
            await turns.close()
            await crew.close()


def models_of(wired: Wired) -> ModelOf:
    """Return what finds models by name, each once, and asks them with patience."""
    settings = model_settings(wired.setup.config, wired.masker.learn)
    found: dict[str, Model] = {}

    def model_of(name: str) -> Model:
        if name not in found:
            found[name] = Patient(find_model(name, settings), asyncio.sleep)
        return found[name]

    return model_of


def wanted_of(
    wired: Wired,
    agent: str,
    model: str | None,
    workspace: Path | None,
    mode: Mode | None,
    name: str,
    route: Route = TERMINAL,
) -> Wanted:
    """Return what a new session should be: as the user says, and where they say nothing, as fits the agent."""
    see_name(name)
    if agent == BUILTIN:
        return Wanted(model or default_model_of(wired), workspace, name, agent, mode or Mode.DEFAULT, (route,))
    own = own_choice(wired.setup.config.agents, agent)
    return Wanted(model or own, workspace, name, agent, mode or usual_mode(agent, workspace), (route,))


def usual_mode(agent: str, workspace: Path | None) -> Mode:
    """Return the mode of an agent's new session: giving a project to an agent that has it mounted is granting edits in it."""
    return Mode.DEFAULT if workspace is None or agent in (BUILTIN, LOCAL) else Mode.ACCEPT_EDITS


def default_model_of(wired: Wired) -> str:
    """Return the model of a new session where none is named."""
    return default_model_name(wired.setup.config, wired.masker.learn)


def code_limits(setup: Setup) -> CodeLimits:
    """Return what one program may use."""
    told = setup.config.code
    return CodeLimits(seconds=float(told.seconds), memory=told.memory * _MIB, calls=told.calls)


def worker_launcher(setup: Setup) -> Path:
    """Return what starts a code worker, confined; raise where that cannot be had and the user did not say otherwise."""
    binary = find_monty()
    if binary is None:
        raise Broken("the interpreter for programs (`monty`) is not installed; install `pydantic-monty` again")
    directory = setup.home.root / "run"
    memory = max(_LEAST_MEMORY, 2 * setup.config.code.memory * _MIB)
    return confined_worker(binary, directory, unconfined_ok=setup.config.code.unconfined, memory=memory).launcher
