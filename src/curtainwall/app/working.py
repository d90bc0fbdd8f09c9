"""A house whose agents work: the built-in agent with its workers and models, whoever lets it work, and the desk for channels."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
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
from curtainwall.agents.builtin.models import AUTO, Patient, default_model, find_model
from curtainwall.app.desk import HouseDesk
from curtainwall.app.keys import house_key
from curtainwall.app.models import model_settings
from curtainwall.app.openings import BUILTIN, Wanted
from curtainwall.app.wiring import Setup, Wired
from curtainwall.channels.live import FarListening, LiveEndpoint
from curtainwall.host import confined_worker, find_monty
from curtainwall.model import Agent, Broken, Listening
from curtainwall.runtime import HouseJournal, Turns
from curtainwall.session import SessionState
from curtainwall.tools.hooks import Pins

_MIB = 1024 * 1024
_LEAST_MEMORY = 512 * _MIB

ModelOf = Callable[[str], Model]
"""Finds a model by the name that a session has for it."""


@dataclass(frozen=True, slots=True)
class AtWork:
    """Everything that a channel or a program needs to work with sessions."""

    wired: Wired
    journal: HouseJournal
    turns: Turns
    desk: HouseDesk
    agent: BuiltinAgent
    listening: Listening
    """What happens right now, in whichever process."""


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


@asynccontextmanager
async def agents_at_work(wired: Wired, model_of: ModelOf, wanted: Wanted) -> AsyncGenerator[AtWork]:
    """Let agents work in a house until the context is left; then turns that run are parked."""
    setup, house = wired.setup, wired.house
    journal = HouseJournal(house)
    workers = Workers(lambda: worker_launcher(setup), code_limits(setup), most=setup.config.code.workers)
    programs = Programs(workers, Seal(house_key(setup.home.mask_key)), journal)
    around = Around(
        feed=house.feed,
        gate=wired.gate,
        journal=journal,
        hooks=wired.hooks,
        clock=house.clock,
        masker=wired.masker,
        programs=programs,
        model_of=model_of,
        tools=wired.tools.listing,
        remembered=InstructionPins(Pins(setup.home.root / "instructions.json")),
    )
    threshold = setup.config.model.compact_at or None
    agent = BuiltinAgent(around, threshold)

    def agent_of(state: SessionState) -> Agent | None:
        return agent if state.opened is not None and state.opened.agent == BUILTIN else None

    turns = Turns(house, agent_of, wired.hooks, agent.last_words)
    watch = setup.home.root / "run" / "watch"
    listening = FarListening(journal, house.feed, wired.store.leases, watch)
    desk = HouseDesk(wired, turns.attend, model_of, wanted, threshold)
    async with LiveEndpoint(journal, watch).open():
        try:
            yield AtWork(wired, journal, turns, desk, agent, listening)
        finally:
            await turns.close()
            await workers.close()


def models_of(wired: Wired) -> ModelOf:
    """Return what finds models by name, each once, and asks them with patience."""
    settings = model_settings(wired.setup.config, wired.masker.learn)
    found: dict[str, Model] = {}

    def model_of(name: str) -> Model:
        if name not in found:
            found[name] = Patient(find_model(name, settings), asyncio.sleep)
        return found[name]

    return model_of


def default_model_of(wired: Wired) -> str:
    """Return the model of a new session where none is named."""
    told = wired.setup.config.model.name
    return default_model(model_settings(wired.setup.config, wired.masker.learn)) if told == AUTO else told


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
