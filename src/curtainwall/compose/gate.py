"""The third level: sessions with a gate, and everything that a call can reach through it."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from curtainwall.compose.approvals import approver_of
from curtainwall.compose.hooks import SessionHooks, lifecycle_of, user_hooks
from curtainwall.compose.knowledge import open_notebook, skill_index
from curtainwall.compose.servers import open_servers, server_secrets
from curtainwall.compose.sessions import Parts, open_sessions
from curtainwall.compose.setup import ActiveSetup, Setup
from curtainwall.compose.tools import run_tools, share_limits
from curtainwall.config.agents import BUILTIN, agent_model, contained_agents
from curtainwall.config.schema import Config
from curtainwall.config.secrets import house_key, model_secrets, secret_variables
from curtainwall.facts import Masker
from curtainwall.host import Credentials, Shares, ViewsOfSessions
from curtainwall.model import (
    APPLY_CHANGES,
    SYSTEM,
    AddLabels,
    Answer,
    AskGate,
    Blobs,
    BudgetKind,
    CallPermitted,
    CallRequest,
    Label,
    LabelSource,
    Place,
    Prepared,
    Presence,
    RaiseBudget,
    SessionId,
    StepsAsked,
    ToolResult,
    Who,
    record,
)
from curtainwall.operations.held import note_held
from curtainwall.operations.messages import IncomingMessages
from curtainwall.operations.reviews import tell_agent
from curtainwall.operations.sessions import Sessions
from curtainwall.policy import denies_path
from curtainwall.runtime import HomeStores, SessionGate, SessionJournal, SessionRegistry
from curtainwall.runtime.gate.permits import permit_watch
from curtainwall.teams.archive import Archive
from curtainwall.teams.conversations import Conversations, KeeperRequests
from curtainwall.teams.keeper_mail import KeeperMail
from curtainwall.teams.pair_sessions import MessageHooks, PairPorts, PairSessions, talk_terms, team_cards
from curtainwall.teams.pairs import Pair
from curtainwall.teams.talk import OnWait, Talk
from curtainwall.teams.tools import TeamToolPorts, team_refiners, team_runners
from curtainwall.tools import NativeTools, Runner, ToolHub
from curtainwall.tools.hooks import HookSurroundings, Lifecycle, UserHooks
from curtainwall.tools.memory import memory_runners
from curtainwall.tools.runners import progress_listener
from curtainwall.tools.session_tools import session_runners
from curtainwall.tools.skills import skill_runners

if TYPE_CHECKING:
    # Start-up time: git is loaded with its first call, and so are changes.
    from curtainwall.operations.history import ChangeHistory
    from curtainwall.tools import IsDenied, Tool
    from curtainwall.tools.changes import ChangePorts, Tell


@record
class GatedSessions:
    """Sessions whose calls can be decided and run."""

    active: ActiveSetup
    sessions: Sessions
    tools: ToolHub
    gate: SessionGate
    incoming: IncomingMessages
    hooks: UserHooks
    lifecycle: Lifecycle
    masker: Masker
    teams: Conversations
    shares: Shares
    views: ViewsOfSessions
    """The sessions' views of their projects."""

    def history(self) -> "ChangeHistory":
        """Return the history of accepted changes, to take them back and apply them again."""
        # Start-up time: few commands need it.
        from curtainwall.operations.history import ChangeHistory

        return ChangeHistory(self.sessions, self.gate, self.views, self.views, self.masker)

    @property
    def setup(self) -> Setup:
        """The setup in force."""
        return self.active.setup

    @property
    def store(self) -> HomeStores:
        """The log and the stores beside it."""
        return self.sessions.store

    @property
    def registry(self) -> SessionRegistry:
        """The sessions that are open here."""
        return self.sessions.registry


@record
class LateChangeTools:
    """The tool that applies changes, loaded with its first call: only sessions in review mode make one."""

    views: ViewsOfSessions
    blobs: Blobs
    masker: Masker
    tell: "Tell"

    def refine(self, prepared: Prepared, place: Place) -> Prepared:
        """Add what a change set writes and deletes, and what people are shown of it."""
        # Start-up time: as above.
        from curtainwall.tools.changes import change_refiners

        return change_refiners(self._ports())[APPLY_CHANGES](prepared, place)

    async def run(self, prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        """Apply what was accepted."""
        # Start-up time: as above.
        from curtainwall.tools.changes import change_runners

        return await change_runners(self._ports())[APPLY_CHANGES](prepared, permit, place)

    def _ports(self) -> "ChangePorts":
        # Start-up time: as above.
        from curtainwall.tools.changes import ChangePorts

        return ChangePorts(self.views, self.views, self.views, self.blobs, self.masker, self.tell)


@record
class LateSteps:
    """Takes accepted changes back, and is loaded when that is first asked for. Fills `ChangeSteps`."""

    wired: GatedSessions

    async def move(self, session: SessionId, by: Who, steps: StepsAsked, code: str = "") -> str:
        """Return what would be written and the code that confirms it; with that code, write it and return how that ended."""
        return await self.wired.history().move(session, by, steps, code)


@asynccontextmanager
async def session_hooks(wired: GatedSessions, session: SessionId) -> AsyncGenerator[None]:
    """Notify hooks of the session's beginning on entry, and of its end on exit if it has ended; once each time it is open."""
    await wired.lifecycle.settle(session, wired.registry.look_at(session).reopened)
    try:
        yield
    finally:
        await wired.lifecycle.settle(session, wired.registry.look_at(session).reopened)


@asynccontextmanager
async def open_gate(
    setup: Setup,
    runners: Mapping[str, Runner] | None = None,
    parts: Parts | None = None,
    added: "Sequence[Tool[..., object]]" = (),
) -> AsyncGenerator[GatedSessions]:
    """Open the sessions of this machine with their gate; `runners` and `parts` replace our own, and `added` are more tools."""
    setup.home.prepare()
    parts, in_force = parts or Parts(), ActiveSetup(setup)
    masker = Masker(house_key(setup.home.mask_key), {**model_secrets(setup.config), **server_secrets(setup.servers)})
    credentials = Credentials(setup.credentials, masker.learn)
    await credentials.learn_at_hand()
    surroundings = HookSurroundings(masker, withheld=frozenset(secret_variables(setup.config)))

    async def ask_again(session: SessionId, request: CallRequest, presence: Presence) -> Answer:
        # The gate runs tools, and some tools call the gate again, so this refers to the gate before it exists.
        return await gate.request(session, request, presence=presence)

    async with open_sessions(setup.home, in_force.terms, parts, in_force.rules) as sessions:
        registry = sessions.registry
        hooks = user_hooks(setup.hooks, surroundings, setup.home, registry)
        lifecycle = lifecycle_of(hooks, setup.home, registry)
        begun = SessionHooks(hooks, lifecycle, float(setup.config.hooks.idle)).begun
        incoming = IncomingMessages(registry, masker.mask_json, hooks, begun)
        teams = _conversations(sessions, in_force, masker, incoming, hooks)
        team_ports = TeamToolPorts(
            teams.talk, teams.requests, team_cards(setup.config), _wait_listener, masker.mask_json, partial(_fork_pair, teams)
        )
        from_teams: Mapping[str, Runner] = team_runners(team_ports) if setup.config.teams else {}
        shares = Shares(share_limits(setup.config.sandboxes))
        views = ViewsOfSessions(setup.home, contained_agents(setup.config.agents))
        changes = LateChangeTools(views, sessions.store.blobs, masker, partial(tell_agent, registry, masker))
        from_session = {
            APPLY_CHANGES: changes.run,
            **session_runners(partial(_allow_more, registry)),
            **skill_runners(skill_index(setup.home)),
            **memory_runners(open_notebook(setup.home), masker, partial(_touched, registry), partial(_taint, registry)),
            **from_teams,
        }
        native = run_tools(
            setup,
            masker,
            credentials,
            ask_again,
            from_session,
            {APPLY_CHANGES: changes.refine, **(team_refiners(team_ports) if setup.config.teams else {})},
            partial(note_held, registry, masker),
            shares,
            partial(_denials, sessions),
            runners,
            views,
        )
        async with (
            _tool_hub(setup, native, _added_tools(setup, native, added), ask_again, registry, masker, shares) as tools,
            aclosing(hooks),
            aclosing(lifecycle),
        ):
            gate = SessionGate(
                registry, tools, hooks, parts.approver or approver_of(lambda: in_force.setup.config, surroundings, setup.home)
            )
            try:
                yield GatedSessions(in_force, sessions, tools, gate, incoming, hooks, lifecycle, masker, teams, shares, views)
            finally:
                views.close()


def _added_tools(setup: Setup, native: NativeTools, added: "Sequence[Tool[..., object]]") -> NativeTools | None:
    """Return the tools of the embedding program, with the same settings as those of servers."""
    if not added:
        return None
    # Start-up time: only embedding programs have some.
    from curtainwall.tools import Catalogue, require_distinct

    require_distinct(added, {server.name for server in setup.servers})
    named = {each.spec.full_name: each for each in added}
    runners, refiners = {name: each.run for name, each in named.items()}, {name: each.bind for name, each in named.items()}
    return native.beside(Catalogue(each.spec for each in added), runners, refiners)


@asynccontextmanager
async def _tool_hub(
    setup: Setup,
    native: NativeTools,
    added: NativeTools | None,
    ask_again: AskGate,
    registry: SessionRegistry,
    masker: Masker,
    shares: Shares,
) -> AsyncGenerator[ToolHub]:
    """Open our own tools and those of servers, with their network."""
    if not setup.servers:
        yield ToolHub(native, None, added)
        return
    # Start-up time: most users have no servers.
    from curtainwall.compose.network import RefusedRequests, ServerEgress

    egress = ServerEgress(
        setup.home.authority,
        ask_again,
        own_ports=setup.own_ports,
        watch=permit_watch(registry),
        refused=lambda session: RefusedRequests(session, SessionJournal(registry), registry.clock, masker),
    )
    async with (
        aclosing(egress) as network,
        aclosing(
            ToolHub(native, open_servers(setup.home, setup.servers, masker, setup.policy.protection, registry.feed, network, shares), added)
        ) as tools,
    ):
        yield tools


def _conversations(
    sessions: Sessions, in_force: ActiveSetup, masker: Masker, incoming: IncomingMessages, hooks: UserHooks
) -> Conversations:
    """Return everything that conversations with teams need."""
    setup, config, registry = in_force.setup, in_force.config, sessions.registry
    message_hooks = MessageHooks(incoming.pass_hooks, partial(hooks.listens, "UserPromptSubmit"))
    model = partial(_model_of_new_sessions, setup.config, masker)
    archive = Archive(sessions.store.marks, registry.feed)
    peers = PairSessions(registry, sessions.home, config, setup.policy.protection, PairPorts(model, message_hooks, archive))
    talk = Talk(peers, registry.feed, registry.clock, talk_terms(setup.config), archive)
    mail = KeeperMail(sessions.store.marks, sessions.store.leases, registry.mint)
    return Conversations(sessions, config, peers, talk, KeeperRequests(mail), archive)


async def _fork_pair(teams: Conversations, session: SessionId, into: Pair) -> SessionId:
    # Start-up time: the keeper loads the agents.
    from curtainwall.teams.keeper import fork_pair

    return await fork_pair(teams, session, into)


async def _allow_more(registry: SessionRegistry, session: SessionId, kind: BudgetKind, more: float) -> float:
    async with registry.hold(session) as actor:
        limit = float(getattr(actor.state.limits, kind.value)) + more
        await actor.submit(RaiseBudget(by=SYSTEM, kind=kind, limit=limit))
        return limit


async def _touched(registry: SessionRegistry, session: SessionId) -> tuple[str, tuple[Label, ...]]:
    async with registry.hold(session) as actor:
        return actor.state.facts.agent, tuple(actor.state.labels)


async def _taint(registry: SessionRegistry, session: SessionId, labels: Sequence[LabelSource]) -> None:
    async with registry.hold(session) as actor:
        await actor.submit(AddLabels(by=SYSTEM, labels=tuple(labels)))


def _denials(sessions: Sessions, tool: str, place: Place) -> "IsDenied | None":
    """Return a predicate for paths that rules deny to a tool in a session; None if no rule denies any path."""
    state = sessions.registry.look_at(place.session)
    policy = sessions.terms().rules.of_session(state.opened).policy
    if not policy.denies_paths:
        return None
    facts = replace(state.facts, mode=place.mode)
    return lambda role, path: denies_path(policy, tool, role, path, facts)


def _wait_listener() -> OnWait | None:
    """Return the listener for the progress of a wait, if there is one."""
    listener = progress_listener()
    return None if listener is None else lambda waited, words: listener(waited, None, words)


def _model_of_new_sessions(config: Config, masker: Masker, agent: str) -> str:
    # Start-up time: most commands open no session.
    from curtainwall.compose.models import default_model_name

    return default_model_name(config, masker.learn) if agent == BUILTIN else agent_model(config.agents, agent)
