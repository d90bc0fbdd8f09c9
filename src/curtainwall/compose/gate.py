"""The third level: sessions with a gate, and everything that a call can reach through it."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from curtainwall.compose.approvals import approver_of
from curtainwall.compose.hooks import lifecycle_of, user_hooks
from curtainwall.compose.knowledge import open_notebook, skill_index
from curtainwall.compose.network import RefusedRequests, ServerEgress
from curtainwall.compose.servers import open_servers, server_secrets
from curtainwall.compose.sessions import Parts, open_sessions
from curtainwall.compose.setup import ActiveSetup, Setup
from curtainwall.compose.tools import judged_tools, run_tools, share_limits
from curtainwall.config.agents import BUILTIN, agent_model, contained_agents
from curtainwall.config.schema import Config
from curtainwall.config.secrets import house_key, model_secrets, secret_variables
from curtainwall.facts import Masker
from curtainwall.host import Credentials, Shares
from curtainwall.model import (
    SYSTEM,
    AddLabels,
    Answer,
    BudgetKind,
    CallRequest,
    Label,
    LabelSource,
    Place,
    Presence,
    RaiseBudget,
    SessionId,
    session_stream,
)
from curtainwall.operations.held import note_held
from curtainwall.operations.messages import IncomingMessages
from curtainwall.operations.sessions import Sessions
from curtainwall.policy import denies_path
from curtainwall.runtime import HomeStores, SessionGate, SessionJournal, SessionRegistry
from curtainwall.runtime.gate.permits import permit_watch
from curtainwall.session import fold, lift
from curtainwall.teams.archive import Archive
from curtainwall.teams.conversations import Conversations, KeeperRequests
from curtainwall.teams.pair_sessions import MessageHooks, PairSessions, talk_terms, team_cards
from curtainwall.teams.talk import OnWait, Talk
from curtainwall.teams.tools import TeamToolPorts, team_refiners, team_runners
from curtainwall.tools import IsDenied, Mounts, Runner, ToolHub
from curtainwall.tools.hooks import HookSurroundings, Lifecycle, UserHooks
from curtainwall.tools.memory import memory_runners
from curtainwall.tools.runners import progress_listener
from curtainwall.tools.session_tools import session_runners
from curtainwall.tools.skills import skill_runners

# Where a foreign agent finds its workspace, and how it names it when it asks for something there.
INSIDE = "/workspace"


@dataclass(frozen=True, slots=True)
class GatedSessions:
    """Sessions whose calls can be decided and run."""

    in_force: ActiveSetup
    sessions: Sessions
    tools: ToolHub
    gate: SessionGate
    incoming: IncomingMessages
    hooks: UserHooks
    lifecycle: Lifecycle
    masker: Masker
    teams: Conversations
    shares: Shares

    @property
    def setup(self) -> Setup:
        """The setup that is in force now."""
        return self.in_force.setup

    @property
    def store(self) -> HomeStores:
        """The log and what is kept beside it."""
        return self.sessions.store

    @property
    def house(self) -> SessionRegistry:
        """The sessions that are open here."""
        return self.sessions.house


@asynccontextmanager
async def session_hooks(wired: GatedSessions, session: SessionId) -> AsyncGenerator[None]:
    """Tell hooks of the session's beginning now, and of its end afterwards where it has come; each once in its life."""
    await wired.lifecycle.settle(session)
    try:
        yield
    finally:
        await wired.lifecycle.settle(session)


@asynccontextmanager
async def open_gate(setup: Setup, runners: Mapping[str, Runner] | None = None, parts: Parts | None = None) -> AsyncGenerator[GatedSessions]:
    """Open the sessions of this machine with their gate; whoever brings parts of their own gets those in place of ours."""
    setup.home.prepare()
    parts, in_force = parts or Parts(), ActiveSetup(setup)
    masker = Masker(house_key(setup.home.mask_key), {**model_secrets(setup.config), **server_secrets(setup.servers)})
    credentials = Credentials(setup.credentials, masker.learn)
    await credentials.learn_at_hand()
    around = HookSurroundings(masker, withheld=frozenset(secret_variables(setup.config)))

    async def ask_again(session: SessionId, request: CallRequest, presence: Presence) -> Answer:
        # The gate runs tools, and some tools lead to another call at the gate: one of both has to be named before it is there.
        return await gate.request(session, request, presence=presence)

    async with open_sessions(setup.home, in_force.terms, parts) as sessions:
        house = sessions.house
        hooks = user_hooks(setup.hooks, around, setup.home, house)
        incoming = IncomingMessages(house, masker.mask_json, hooks)
        teams = _conversations(sessions, in_force, masker, incoming, hooks)
        hands = TeamToolPorts(teams.talk, teams.requests, team_cards(setup.config), teams.peers.team_of, _wait_listener, masker.mask_json)
        of_teams: Mapping[str, Runner] = team_runners(hands) if setup.config.teams else {}
        closers = team_refiners(hands) if setup.config.teams else None
        protection, shares = setup.policy.protection, Shares(share_limits(setup.config.sandboxes))
        if runners is None:
            of_session = {
                **session_runners(partial(_allow_more, house)),
                **skill_runners(skill_index(setup.home)),
                **memory_runners(open_notebook(setup.home), masker, partial(_touched, house), partial(_taint, house)),
                **of_teams,
            }
            native = run_tools(
                setup.home,
                masker,
                credentials,
                protection,
                ask_again,
                of_session,
                partial(_mounts, sessions, contained_agents(setup.config.agents)),
                setup.own_ports,
                setup.config.teams,
                closers,
                partial(note_held, house, masker),
                shares,
                partial(_denials, sessions),
            )
        else:
            native = judged_tools(
                setup.home,
                masker,
                {**of_teams, **runners},
                own_ports=setup.own_ports,
                teams=setup.config.teams,
                closers=closers,
                protection=protection,
            )
        async with (
            aclosing(
                ServerEgress(
                    setup.home.authority,
                    ask_again,
                    own_ports=setup.own_ports,
                    watch=permit_watch(house),
                    refused=lambda session: RefusedRequests(session, SessionJournal(house), house.clock, masker),
                )
            ) as ways,
            aclosing(ToolHub(native, open_servers(setup.home, setup.servers, masker, protection, house.feed, ways, shares))) as tools,
            aclosing(lifecycle_of(hooks, setup.home, house)) as lifecycle,
        ):
            gate = SessionGate(house, tools, hooks, parts.approver or approver_of(lambda: in_force.setup.config, around, setup.home))
            yield GatedSessions(in_force, sessions, tools, gate, incoming, hooks, lifecycle, masker, teams, shares)


def _conversations(
    sessions: Sessions, in_force: ActiveSetup, masker: Masker, incoming: IncomingMessages, hooks: UserHooks
) -> Conversations:
    """Return what talking to teams needs."""
    setup, house = in_force.setup, sessions.house

    def config() -> Config:
        return in_force.setup.config

    ways = MessageHooks(incoming.pass_hooks, partial(hooks.listens, "UserPromptSubmit"))
    model = partial(_model_of_new_sessions, setup.config, masker)
    peers = PairSessions(house, sessions.home, config, setup.policy.protection, model, ways)
    archive = Archive(sessions.store.marks, house.feed)
    talk = Talk(peers, house.feed, house.clock, talk_terms(setup.config), archive)
    return Conversations(sessions, config, peers, talk, KeeperRequests(), archive)


async def _allow_more(house: SessionRegistry, session: SessionId, kind: BudgetKind, more: float) -> float:
    async with house.hold(session) as actor:
        limit = float(getattr(actor.state.limits, kind.value)) + more
        await actor.submit(RaiseBudget(by=SYSTEM, kind=kind, limit=limit))
        return limit


async def _touched(house: SessionRegistry, session: SessionId) -> tuple[str, tuple[Label, ...]]:
    async with house.hold(session) as actor:
        return actor.state.facts.agent, tuple(actor.state.labels)


async def _taint(house: SessionRegistry, session: SessionId, labels: Sequence[LabelSource]) -> None:
    async with house.hold(session) as actor:
        await actor.submit(AddLabels(by=SYSTEM, labels=tuple(labels)))


def _denials(sessions: Sessions, tool: str, place: Place) -> IsDenied | None:
    """Return what tells whether rules deny a path to a tool in a session; None where no rule denies any path."""
    state = sessions.house.peek(place.session) or fold(lift(entry) for entry in sessions.store.log.read(session_stream(place.session)))
    policy = sessions.terms().rules.of_session(state.opened).policy
    if not policy.denies_paths:
        return None
    facts = replace(state.facts, mode=place.mode)
    return lambda role, path: denies_path(policy, tool, role, path, facts)


def _mounts(sessions: Sessions, contained: tuple[str, ...], place: Place) -> Mounts:
    return ((INSIDE, place.workspace.path),) if sessions.names.of(place.session) in contained else ()


def _wait_listener() -> OnWait | None:
    """Return who hears that an answer is still waited for, where somebody does."""
    heard = progress_listener()
    return None if heard is None else lambda waited, words: heard(waited, None, words)


def _model_of_new_sessions(config: Config, masker: Masker, agent: str) -> str:
    # Start-up time: most commands open no session.
    from curtainwall.compose.models import default_model_name

    return default_model_name(config, masker.learn) if agent == BUILTIN else agent_model(config.agents, agent)
