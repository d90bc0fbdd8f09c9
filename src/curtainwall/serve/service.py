"""The service as a whole: runs the sessions of every channel in one process, and provides what channels and other services need."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Protocol, cast

from curtainwall.agents.builtin import LanguageModel
from curtainwall.channels.asks.board import Board, WhoMay
from curtainwall.channels.chat import Chat, ChatPorts
from curtainwall.channels.measures import Measures
from curtainwall.channels.plain import counted
from curtainwall.channels.ports import ChannelPorts
from curtainwall.compose.agents import RunningAgents, default_mode, default_model_of, model_finder, run_agents
from curtainwall.compose.approvals import who_may_answer
from curtainwall.compose.config_checks import missing_references
from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.sessions import Parts
from curtainwall.compose.setup import Setup, load_setup
from curtainwall.compose.store import SERVING
from curtainwall.compose.telemetry import export_measures
from curtainwall.config.agents import LOCAL, model_for
from curtainwall.config.schema import Config
from curtainwall.host.user import local_user
from curtainwall.model import CurtainwallError, Marks, Millis, Route, RuleId, SessionId, ShownAt, TryLater
from curtainwall.operations.open import ChannelPlaces, SessionSpec
from curtainwall.runtime import SystemClock
from curtainwall.serve.logs import Logbook
from curtainwall.serve.rebuild import rebuild
from curtainwall.serve.reload import ConfigReload
from curtainwall.serve.sessions import ChannelSessions, Deadlines
from curtainwall.serve.supervisor import MissingService, Service, Supervisor
from curtainwall.session import lift
from curtainwall.store import rescue

SERVICES: Mapping[str, str] = {
    "files": "curtainwall.serve.files",
    "pruner": "curtainwall.serve.pruner",
    "notify": "curtainwall.serve.notify",
    "status": "curtainwall.serve.status",
    "telemetry": "curtainwall.serve.telemetry",
    "cron": "curtainwall.serve.cron",
    "webhook": "curtainwall.serve.webhook",
    "matrix": "curtainwall.serve.matrix",
    "web": "curtainwall.serve.web.service",
    "teams": "curtainwall.serve.teams",
}
"""The services and their modules. A module has `SECTIONS` (the configuration tables it depends on; it is restarted when one of them
changes) and `services(serving)`, which returns what to run, or nothing if the configuration does not ask for it.
"""


class ServiceModule(Protocol):
    """A module that connects a channel, or another service, to the runtime."""

    @property
    def SECTIONS(self) -> frozenset[str]:  # noqa: N802 - a constant of the module
        """The configuration tables that its services depend on."""
        ...

    def services(self, serving: "Serving") -> Iterable[Service]:
        """Return what to run under the current configuration."""
        ...


@dataclass(slots=True)
class Serving:
    """Everything that a service is made from."""

    work: RunningAgents
    book: Logbook
    supervisor: Supervisor
    began: Millis
    model: str
    """The default model of a new session."""
    reload: ConfigReload = field(init=False)
    sessions: ChannelSessions = field(init=False)
    deadlines: Deadlines = field(init=False)
    measures: Measures = field(init=False)
    """Counts since the process began; a change of the configuration does not reset them."""
    _names: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def __post_init__(self) -> None:
        self.measures = Measures(export_measures())
        self.reload = ConfigReload(self.work.wired.active, self.restart, self.book)
        is_owed_an_end = self.wired.lifecycle.is_owed_an_end
        registry, index = self.wired.registry, self.wired.store.index
        turns = self.work.turns
        self.sessions = ChannelSessions(registry.feed, self.wired.store, turns.attend, is_owed_an_end, turns.attends)
        self.deadlines = Deadlines(registry.feed, index, registry.alarm)

    @property
    def wired(self) -> GatedSessions:
        """The sessions and the gate."""
        return self.work.wired

    @property
    def config(self) -> Config:
        """The current configuration."""
        return self.wired.setup.config

    @property
    def marks(self) -> Marks:
        """The channels' memory."""
        return self.wired.store.marks

    @property
    def line(self) -> ChannelPorts:
        """The ports of a text channel."""
        return self.work.line

    def chat(self, channel: str) -> Chat:
        """Return the chat of a text channel."""
        return Chat(channel, ChatPorts(self.line, self.places, self.marks, self.board, self._log_places))

    def _log_places(self, session: SessionId) -> tuple[str, ...]:
        home = self.wired.setup.home
        return f"log: {home.database}", f"audit: {home.session(session).audit}"

    @property
    def places(self) -> ChannelPlaces:
        """Which session each place leads to."""
        return ChannelPlaces(self.wired.sessions, self.work.turns.attend, self.spec_at)

    def spec_at(self, place: Route) -> SessionSpec:
        """Return the specification of a session opened at a place: its asks are shown there, and where the configuration says."""
        instructions = self.config.sessions.instructions
        return replace(self.work.desk.usual, name=f"{place.channel} {place.reference}".strip(), routes=(place,), instructions=instructions)

    def board(self, at: ShownAt | None = None) -> Board:
        """Return the board with the asks of a channel, of a place on it, or of all sessions."""
        return Board(
            self.work.desk,
            self.wired.registry.feed,
            self.wired.store.index,
            self.reason_of,
            at,
            self.who_may_on("" if at is None else at.channel),
        )

    def who_may_on(self, channel: str) -> WhoMay:
        """Return a function that reads who may answer asks, and describes it for each ask to people on a channel."""
        return lambda: who_may_answer(self.wired.store.index, self.wired.setup.config, local_user().name, channel)

    def reason_of(self, rule: RuleId) -> str:
        """Return the purpose of a rule, by the rules now in force, including those of one team, job or webhook."""
        setup = self.wired.setup
        card = setup.policy.card(rule) or next((card for card in setup.own_cards if card.id == rule), None)
        return "" if card is None else card.reason or card.title

    def run(self) -> None:
        """Run what the configuration asks for."""
        self.supervisor.start([self.reload, self.sessions, self.deadlines])
        for name in SERVICES:
            self._start(name)

    def restart(self, tables: frozenset[str]) -> list[str]:
        """Restart the services whose tables changed, and return the tables that services depend on."""
        handled: set[str] = set()
        for name in SERVICES:
            sections = _module(name).SECTIONS
            handled |= sections
            if sections & tables:
                self.book.say(f"{name}: made anew, its configuration has changed", service=name)
                task = asyncio.create_task(self._restart_one(name), name=f"restart of {name}")
                task.add_done_callback(_raise_error)
        return sorted(handled)

    async def _restart_one(self, name: str) -> None:
        await self.supervisor.stop(self._names.pop(name, []))
        try:
            self._start(name)
        except CurtainwallError as error:
            # The others continue; health says what is missing until the configuration changes again.
            self.book.say(f"{name}: it cannot be made anew: {error}", "error", service=name)
            self._names[name] = [name]
            self.supervisor.start([MissingService(name, str(error))])

    def _start(self, name: str) -> None:
        started = list(_module(name).services(self))
        self._names[name] = [service.name for service in started]
        self.supervisor.start(started)


@asynccontextmanager
async def serving(
    setup: Setup | None = None,
    book: Logbook | None = None,
    parts: Parts | None = None,
    models: Sequence[LanguageModel] = (),
) -> AsyncGenerator[Serving]:
    """Serve a home until the context is left, then park what runs. Only one process serves a home at a time; raise `TryLater`."""
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
            given_models, find_model = {model.name: model for model in models}, model_finder(wired)
            agent, model = setup.config.sessions.agent, models[0].name if models else default_model_of(wired)
            spec = SessionSpec(
                model_for(setup.config.agents, agent, model),
                agent=agent,
                mode=default_mode(setup.config, agent, None),
                instructions=setup.config.sessions.instructions,
            )
            async with run_agents(wired, lambda name: given_models.get(name) or find_model(name), spec) as work:
                served = Serving(work, book, supervisor, wired.registry.clock.now(), model)
                count = served.sessions.take_up()
                faults = asyncio.create_task(supervisor.report_faults(), name="reports of faults")
                try:
                    # Inside, because where one service cannot be made, those before it already run and would keep us from ending.
                    served.run()
                    for words in await asyncio.to_thread(_lost_conversations, wired):
                        book.say(words)
                    for words in missing_references(setup.config):
                        book.say(words, "warning")
                    book.say(
                        f"serving `{setup.home.root}`, {counted(count, 'session')} taken up{_more_of(setup.config)}",
                        sessions=count,
                        policy=setup.policy.version,
                    )
                    yield served
                finally:
                    faults.cancel()
                    # A call that is cut off would be reported to its agent as something that may have happened.
                    await asyncio.gather(wired.gate.finish(served.config.serve.grace), supervisor.stop())
        finally:
            lease.release()


def _more_of(config: Config) -> str:
    """Return how many jobs and teams are served, if any."""
    jobs = sum(job.enabled for job in config.cron.values())
    return "".join(f", {counted(many, what)}" for many, what in ((jobs, "job"), (len(config.teams), "team")) if many)


def _lost_conversations(wired: GatedSessions) -> list[str]:
    """Return which conversations of local agents are not on disk as the log has them."""
    if not any(team.agent == LOCAL for team in wired.setup.config.teams.values()):
        return []
    # Start-up time: local agents take long to load.
    from curtainwall.teams.adoption import recent_on_disk

    broken = [conversation for conversation in recent_on_disk(wired.teams) if conversation.standing.state == "broken"]
    return [
        f"the conversation of `{conversation.pair}` is lost ({conversation.standing.why}); the next message begins a new one"
        for conversation in broken
    ]


def _module(name: str) -> ServiceModule:
    return cast("ServiceModule", import_module(SERVICES[name]))


def _raise_error(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
