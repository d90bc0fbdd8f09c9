"""The house as a service: sessions of every channel at work in one process, what each channel is given, and what is run besides."""

import asyncio
import gc
import resource
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Final, Protocol, cast

from curtainwall.agents.builtin import LanguageModel
from curtainwall.channels.asks.board import Board, WhoMay
from curtainwall.channels.chat import Chat
from curtainwall.channels.chat import ChatPorts as ChatHouse
from curtainwall.channels.plain import counted
from curtainwall.channels.ports import ChannelPorts
from curtainwall.compose.agents import RunningAgents, default_model_of, model_finder, run_agents
from curtainwall.compose.approvals import who_may_answer
from curtainwall.compose.config_checks import missing_references, unshown_targets
from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.sessions import Parts
from curtainwall.compose.setup import Setup, load_setup
from curtainwall.compose.store import SERVING
from curtainwall.config.agents import LOCAL, model_for
from curtainwall.config.schema import Config
from curtainwall.host.user import local_user
from curtainwall.model import CurtainwallError, Marks, Millis, Route, RuleId, SessionId, ShownAt, TryLater
from curtainwall.operations.open import ChannelPlaces, SessionSpec
from curtainwall.runtime import Stores, SystemClock
from curtainwall.serve.logs import Logbook
from curtainwall.serve.rebuild import rebuild
from curtainwall.serve.reload import ConfigReload
from curtainwall.serve.sessions import ChannelSessions, Deadlines
from curtainwall.serve.supervisor import MissingService, Service, Supervisor
from curtainwall.session import lift
from curtainwall.store import SqliteStore, rescue

SERVICES: Mapping[str, str] = {
    "files": "curtainwall.serve.files",
    "notify": "curtainwall.serve.notify",
    "status": "curtainwall.serve.status",
    "traces": "curtainwall.serve.traces",
    "cron": "curtainwall.serve.cron",
    "webhook": "curtainwall.serve.webhook",
    "matrix": "curtainwall.serve.matrix",
    "web": "curtainwall.serve.web.service",
    "teams": "curtainwall.serve.teams",
}
"""What is served, and the module of each: it has `SECTIONS` (the tables of the configuration that it needs; it is restarted when one of
them changes) and `services(serving)`, which returns what to run, or nothing where the configuration does not ask for it."""


class ServiceModule(Protocol):
    """A module that introduces a channel, or another service, to the house."""

    @property
    def SECTIONS(self) -> frozenset[str]:  # noqa: N802 - a constant of the module
        """The tables of the configuration that its services stand on."""
        ...

    def services(self, serving: "Serving") -> Iterable[Service]:
        """Return what to run under the configuration that is in force."""
        ...


@dataclass(slots=True)
class Serving:
    """Everything that a service is made from."""

    work: RunningAgents
    book: Logbook
    supervisor: Supervisor
    began: Millis
    model: str
    """The model of a new session where nobody names one."""
    reloading: ConfigReload = field(init=False)
    taking_up: ChannelSessions = field(init=False)
    deadlines: Deadlines = field(init=False)
    _made: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def __post_init__(self) -> None:
        self.reloading = ConfigReload(self.work.wired.in_force, self.restart, self.book)
        is_owed_an_end = self.wired.lifecycle.is_owed_an_end
        house, index = self.wired.house, self.wired.store.index
        self.taking_up = ChannelSessions(house.feed, self.wired.store, self.work.turns.attend, is_owed_an_end)
        self.deadlines = Deadlines(house.feed, index, house.alarm)

    @property
    def wired(self) -> GatedSessions:
        """The house."""
        return self.work.wired

    @property
    def config(self) -> Config:
        """The configuration that is in force now."""
        return self.wired.setup.config

    @property
    def marks(self) -> Marks:
        """What channels remember."""
        return self.wired.store.marks

    @property
    def line(self) -> ChannelPorts:
        """The line of a text channel to the house."""
        return self.work.line

    def chat(self, channel: str) -> Chat:
        """Return what a text channel talks to."""
        return Chat(channel, ChatHouse(self.line, self.places, self.marks, self.board, self._log_places))

    def _log_places(self, session: SessionId) -> tuple[str, ...]:
        home = self.wired.setup.home
        return f"log: {home.database}", f"audit: {home.session(session).audit}"

    @property
    def places(self) -> ChannelPlaces:
        """Which session each place leads to."""
        return ChannelPlaces(self.wired.sessions, self.work.turns.attend, self.wanted_at)

    def wanted_at(self, place: Route) -> SessionSpec:
        """Return what a session should be that is opened at a place: its asks are shown there, and where the configuration says."""
        return replace(self.work.desk.usual, name=f"{place.channel} {place.reference}".strip(), routes=(place,))

    def board(self, at: ShownAt | None = None) -> Board:
        """Return the board with the asks of a channel, of a place on it, or of the whole house."""
        return Board(
            self.work.desk,
            self.wired.house.feed,
            self.wired.store.index,
            self.reason_of,
            at,
            self.who_may_on("" if at is None else at.channel),
        )

    def who_may_on(self, channel: str) -> WhoMay:
        """Return what looks at who may answer asks, and tells it of each in words to whoever is on a channel."""
        return lambda: who_may_answer(self.wired.store.index, self.wired.setup.config, local_user().name, channel)

    def reason_of(self, rule: RuleId) -> str:
        """Return what a rule is there for, by the rules that are in force now, also those of one team, job or webhook."""
        setup = self.wired.setup
        card = setup.policy.card(rule) or next((card for card in setup.own_cards if card.id == rule), None)
        return "" if card is None else card.reason or card.title

    def run(self) -> None:
        """Run what the configuration asks for."""
        self.supervisor.start([self.reloading, self.taking_up, self.deadlines])
        for name in SERVICES:
            self._start(name)

    def restart(self, tables: frozenset[str]) -> list[str]:
        """Make services anew whose tables changed, and return the tables that they stand on."""
        handled: set[str] = set()
        for name in SERVICES:
            sections = _module(name).SECTIONS
            handled |= sections
            if sections & tables:
                self.book.say(f"{name}: made anew, its configuration has changed", service=name)
                task = asyncio.create_task(self._again(name), name=f"restart of {name}")
                task.add_done_callback(_raise_fault)
        return sorted(handled)

    async def _again(self, name: str) -> None:
        await self.supervisor.stop(self._made.pop(name, []))
        try:
            self._start(name)
        except CurtainwallError as fault:
            # The others go on; health says what is missing until the configuration changes again.
            self.book.say(f"{name}: it cannot be made anew: {fault}", "error", service=name)
            self._made[name] = [name]
            self.supervisor.start([MissingService(name, str(fault))])

    def _start(self, name: str) -> None:
        made = list(_module(name).services(self))
        self._made[name] = [service.name for service in made]
        self.supervisor.start(made)


@asynccontextmanager
async def serving(
    setup: Setup | None = None,
    book: Logbook | None = None,
    parts: Parts | None = None,
    models: Sequence[LanguageModel] = (),
) -> AsyncGenerator[Serving]:
    """Serve the house until the context is left; what runs then is parked. One process at a time serves a home; raise `TryLater`."""
    book, setup = book or Logbook(), setup or load_setup()
    rescued = None if parts is not None else await asyncio.to_thread(rescue, setup.home.root, SystemClock(), lift)
    if rescued is not None:
        book.say(f"{rescued}", aside=rescued.aside.name, lost=", ".join(rescued.lost))
    async with open_gate(setup, parts=parts) as wired:
        if rescued is not None:
            async for words in rebuild(wired, rescued.lost):
                book.say(words)
        lease = wired.store.leases.take(SERVING)
        if lease is None:
            owner = wired.store.leases.owner(SERVING)
            who = f"process {owner.pid}" if owner else "another process"
            raise TryLater(f"`{setup.home.root}` is served by {who} already; stop it, or set CURTAINWALL_HOME to another home")
        supervisor = Supervisor(book.service)
        try:
            own, found = {model.name: model for model in models}, model_finder(wired)
            agent, model = setup.config.sessions.agent, models[0].name if models else default_model_of(wired)
            wanted = SessionSpec(model_for(setup.config.agents, agent, model), agent=agent)
            async with run_agents(wired, lambda name: own.get(name) or found(name), wanted) as work:
                served = Serving(work, book, supervisor, wired.house.clock.now(), model)
                taken = served.taking_up.take_up()
                served.run()
                faults = asyncio.create_task(supervisor.report_faults(), name="reports of faults")
                try:
                    for words in await asyncio.to_thread(_lost_conversations, wired):
                        book.say(words)
                    for words in (*unshown_targets(setup.config), *missing_references(setup.config)):
                        book.say(words, "warning")
                    book.say(
                        f"serving `{setup.home.root}`, {counted(taken, 'session')} taken up{_more_of(setup.config)}",
                        sessions=taken,
                        policy=setup.policy.version,
                    )
                    yield served
                finally:
                    faults.cancel()
                    # What is cut off would be told to its agent as something that may have happened.
                    await asyncio.gather(wired.gate.finish(served.config.serve.grace), supervisor.stop())
        finally:
            lease.release()


def _more_of(config: Config) -> str:
    """Say how many jobs and teams there are, where there are any."""
    return "".join(f", {counted(many, what)}" for many, what in ((len(config.cron), "job"), (len(config.teams), "team")) if many)


def _lost_conversations(wired: GatedSessions) -> list[str]:
    """Say which conversations of local agents are not on disk as the log has them."""
    if not any(team.agent == LOCAL for team in wired.setup.config.teams.values()):
        return []
    # Start-up time: local agents take long to load.
    from curtainwall.teams.adoption import recent_on_disk

    broken = [told for told in recent_on_disk(wired.teams) if told.standing.state == "broken"]
    return [f"the conversation of `{told.pair}` is lost ({told.standing.why}); the next message begins a new one" for told in broken]


def _module(name: str) -> ServiceModule:
    return cast("ServiceModule", import_module(SERVICES[name]))


def _raise_fault(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (fault := task.exception()) is not None:
        raise fault


_NEW_ONES: Final = 20_000
_ROUNDS: Final = 10
_LONG_ROUNDS: Final = 5
_FILES: Final = 16_384


def open_many_files() -> None:
    """Let this process open as many files as it may, within reason: sessions, programs and connections take some each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def tune_process(store: Stores) -> None:
    """Let nothing hold up everything else for long: neither looks for garbage, nor commits."""
    # To go through what start-up made takes 70 ms each time.
    gc.freeze()
    # What nobody refers to goes at once. What refers to itself, as a task does by the error that ended it, waits for a look at everything,
    # which comes after a million new objects at the latest that are still there.
    gc.set_threshold(_NEW_ONES, _ROUNDS, _LONG_ROUNDS)
    if isinstance(store, SqliteStore):
        store.allow_writer_process()
