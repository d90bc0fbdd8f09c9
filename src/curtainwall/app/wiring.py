"""Introductions: policy, rules, store, house, tools and gate, made from the home directory and the configuration."""

import os
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from curtainwall.app.agent_names import AgentNames
from curtainwall.app.approving import approver_files, approver_of, approver_programs
from curtainwall.app.archive import Archive
from curtainwall.app.config import Config
from curtainwall.app.config_agents import BUILTIN, contained_agents, own_choice
from curtainwall.app.config_lists import lists_of
from curtainwall.app.config_reading import load_config
from curtainwall.app.config_teams import team_files, team_variables
from curtainwall.app.credentials import credentials_in
from curtainwall.app.held import note_held
from curtainwall.app.home import WORKSPACE, Home, find_home, user_homes
from curtainwall.app.hooks import hook_file, hook_settings, lifecycle_of, user_hooks
from curtainwall.app.keys import existing_key, house_key
from curtainwall.app.knowledge import notebook_of, shelf_of
from curtainwall.app.model_keys import model_secrets
from curtainwall.app.operators import operators_in
from curtainwall.app.own_tools import judged_tools, run_tools
from curtainwall.app.pairs import HousePeers, Ways, cards_of, terms_of
from curtainwall.app.protected import led_to, protection_of
from curtainwall.app.rule_files import known_in, own_cards, own_files, own_policies, rule_sources
from curtainwall.app.sandbox_limits import share_limits
from curtainwall.app.secret_places import secret_files, secret_variables
from curtainwall.app.server_ways import ServerWays
from curtainwall.app.servers import given_secrets, open_servers, server_specs
from curtainwall.app.services import INSTANCE
from curtainwall.app.session_tools import session_runners
from curtainwall.app.standing import watch_in
from curtainwall.app.wishes import Wishes
from curtainwall.channels.teams import Hands, Talk, Tell, team_closers, team_runners
from curtainwall.facts import Masker, Scene, Unclear, canonical_path, is_beneath
from curtainwall.host import Credential, Credentials, Shares
from curtainwall.model import (
    SYSTEM,
    AddLabels,
    Answer,
    Approver,
    Broken,
    BudgetKind,
    CallRequest,
    Clock,
    CommandRefused,
    Digest,
    Label,
    LabelSource,
    Limits,
    MessageId,
    Place,
    RaiseBudget,
    SendMessage,
    SessionId,
    Undecided,
    UserPromptSubmit,
    Who,
    Workspace,
    session_stream,
)
from curtainwall.policy import Policy, Protection, RuleCard, denies_path, load
from curtainwall.runtime import House, SessionGate, Stores, SystemClock
from curtainwall.session import BreakerLimits, Rules, Whose, fold, lift
from curtainwall.store import MemoryStore, SqliteStore, loss_of_database
from curtainwall.tools import Hub, IsDenied, Mounts, Runner
from curtainwall.tools.hooks import Lifecycle, Settings, Surroundings, UserHooks
from curtainwall.tools.memory import memory_runners
from curtainwall.tools.progress import listener
from curtainwall.tools.servers import ServerSpec
from curtainwall.tools.skills import skill_runners

# Where a foreign agent finds its workspace, and how it names it when it asks for something there.
INSIDE = "/workspace"


@dataclass(frozen=True, slots=True)
class Setup:
    """What every command starts from: where we live, what the user set, and the rules in force."""

    home: Home
    config: Config
    policy: Policy
    given: tuple[Path, ...] = ()
    servers: tuple[ServerSpec, ...] = ()
    credentials: tuple[Credential, ...] = ()
    hooks: Settings = field(default_factory=Settings)
    own_policies: Mapping[Whose, Policy] = field(default_factory=dict[Whose, Policy])

    @property
    def rules(self) -> Rules:
        """Return what decisions stand on besides the log."""
        config = self.config
        return Rules(
            policy=self.policy,
            operators=operators_in(config),
            deadline=None if config.approvals.deadline is None else config.approvals.deadline * 1000,
            unrouted=config.approvals.unrouted,
            breaker=BreakerLimits(config.breaker.repeats, config.breaker.asks, config.breaker.window * 1000),
            calls=config.log.calls,
            logged_bytes=config.log.logged_bytes,
            askers={name: frozenset(team.askers) for name, team in config.teams.items() if team.askers is not None},
            own_policies=self.own_policies,
            known=known_in(config),
            depth=config.peers.depth,
            compact_after=config.peers.compact_after,
        )

    @property
    def versions(self) -> Mapping[str, Digest]:
        """Return the versions of the rules in force: those of the house, and those of each team, job and webhook with some of its own."""
        own = {f"rules of {kind} `{name}`": policy.version for (kind, name), policy in self.own_policies.items()}
        return {"rules": self.policy.version, **own}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what whoever wrote the rules should know about them."""
        policies = (self.policy, *self.own_policies.values())
        return tuple(dict.fromkeys(warning for policy in policies for warning in policy.warnings))

    @property
    def own_cards(self) -> Mapping[RuleCard, str]:
        """Return the rules that do not hold for all, and for whom each holds."""
        return own_cards(self.policy, self.own_policies)

    @property
    def own_ports(self) -> frozenset[int]:
        """Return the ports of this machine that are ours; no agent reaches them."""
        status, webhooks = self.config.serve.status_port, self.config.webhooks
        hooked = {webhooks.address[1]} if webhooks.hooks else set[int]()
        talked = {self.config.peers.address[1]} if team_files(self.config.teams) or team_variables(self.config.teams) else set[int]()
        return frozenset({self.config.web.port, *({status} if status else set[int]()), *hooked, *talked})

    @property
    def limits(self) -> Limits:
        """Return what a new session may use up."""
        told = self.config.limits
        return Limits(tokens=told.tokens, steps=told.steps, seconds=told.seconds, dollars=told.dollars, warn_at=told.warn_at)


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts that a program brings along: where the log is kept, who approves by itself, what time it is."""

    store: Stores | None = None
    approver: Approver | None = None
    clock: Clock | None = None


class InForce:
    """The setup that decisions stand on right now; another takes its place as a whole, and what is under way is decided by one of them."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.rules = setup.rules

    def take(self, setup: Setup) -> None:
        """Let every decision from here on stand on this setup."""
        self.setup, self.rules = setup, setup.rules


@dataclass(frozen=True, slots=True)
class Wired:
    """A house with everything in its place."""

    in_force: InForce
    store: Stores
    house: House
    tools: Hub
    gate: SessionGate
    hooks: UserHooks
    lifecycle: Lifecycle
    masker: Masker
    names: AgentNames
    peers: HousePeers
    talk: Talk
    wishes: Wishes
    archive: Archive
    shares: Shares

    @property
    def setup(self) -> Setup:
        """The setup that is in force now."""
        return self.in_force.setup


def set_up(policy_files: Iterable[Path] = (), environ: Mapping[str, str] = os.environ) -> Setup:
    """Return the setup that the environment and the files say; nothing is written, and nothing needs to be there."""
    home = find_home(environ)
    config = load_config(home.config)
    extra = tuple(policy_files)
    lists = lists_of(home.config, config)
    protection = protection_for(home, config, extra, environ)
    sources, make = rule_sources(home, extra), partial(load, lists=lists, protection=protection)
    policy, own = make(sources), own_policies(home, config, sources, make)
    servers = server_specs(config, secret_variables(config), environ)
    return Setup(home, config, policy, extra, servers, credentials_in(config, environ), hook_settings(home, config, environ), own)


def protection_for(home: Home, config: Config, policy_files: Iterable[Path] = (), environ: Mapping[str, str] = os.environ) -> Protection:
    """Return the protected paths of this machine, with those that the user named and the rule files that were given."""
    hooks = hook_file(config, environ)
    ours = (*secret_files(config), *led_to(home, environ), *(() if hooks is None else (str(hooks),)), *approver_files(config))
    rules = (str(path.absolute()) for path in (*own_files(config).values(), *policy_files))
    never = (*config.protected.never, *ours, *rules)
    return protection_of(home, user_homes(environ), never, config.protected.readonly, approver_programs(config))


def judging_tools(setup: Setup) -> Hub:
    """Return every tool for judging alone: nothing runs, no server is started, and nothing is written."""
    masker = judging_masker(setup.home)
    protection, teams = setup.policy.protection, setup.config.teams
    native = judged_tools(setup.home, masker, own_ports=setup.own_ports, teams=teams, protection=protection)
    return Hub(native, open_servers(setup.home, setup.servers, masker, protection))


def judging_masker(home: Home) -> Masker:
    """Return a masker for judging alone: with the house's key where there is one, and nothing is written where there is none."""
    return Masker(existing_key(home.mask_key) or os.urandom(32), _known(home))


def _known(home: Home) -> dict[str, str]:
    try:
        return model_secrets(load_config(home.config))
    except Broken:
        return model_secrets(Config())


def workspace_at(path: Path | str, setup: Setup, *, own: bool, besides: frozenset[str] = frozenset()) -> Workspace:
    """Return a directory as a workspace, by its real path; raise `CommandRefused` where a protected path is in the way, `besides` some."""
    try:
        real = canonical_path(str(Path(path).absolute()), Scene(workspace="/", home="/"))
    except Unclear as fault:
        raise CommandRefused(f"`{path}` cannot be a workspace: {fault.message}") from None
    # Among protected paths, only a session's own workspace in our home may be one; beside it lie its answers and its audit.
    is_of_session = own and _is_in_a_workspace(real, str(setup.home.sessions))
    workspace = Workspace(path=real, own=own)
    # The rule files that were given stand last among the protected paths, so any other conflict is told before them.
    conflict = setup.policy.protection.conflict(Workspace(path=real, own=is_of_session))
    if conflict is not None and conflict not in besides:
        raise CommandRefused(f"`{path}` cannot be a workspace: it contains or lies in the protected path `{conflict}`; choose another")
    return workspace


def _is_in_a_workspace(real: str, sessions: str) -> bool:
    parts = real[len(sessions) + 1 :].split("/") if is_beneath(real, sessions) else []
    return parts[1:2] == [WORKSPACE]


def local_user() -> Who:
    """Return who sits at this machine, as the log names them."""
    import getpass

    try:
        return Who(name=getpass.getuser())
    except (KeyError, OSError):
        return Who(name=f"uid {os.geteuid()}")


@contextmanager
def open_store(home: Home, *, only_if_whole: bool = True) -> Generator[Stores]:
    """Open the store to look things up; where there is no log yet, an empty one, and nothing is written.

    A log that has lost entries is refused, unless somebody wants to look at it all the same.
    """
    if not home.database.exists():
        if only_if_whole and (loss := loss_of_database(home.root)) is not None:
            raise Broken(str(loss))
        yield MemoryStore(SystemClock())
        return
    store = SqliteStore.open(home.root, SystemClock(), decode=lift, only_if_whole=only_if_whole)
    try:
        yield store
    finally:
        store.close()


def is_served(home: Home) -> bool:
    """Tell whether a `serve` runs for a home."""
    with open_store(home) as store:
        return store.leases.owner(INSTANCE) is not None


@asynccontextmanager
async def hooks_of(wired: Wired, session: SessionId) -> AsyncGenerator[None]:
    """Tell hooks of the session's beginning now, and of its end afterwards where it has come; each once in its life."""
    await wired.lifecycle.settle(session)
    try:
        yield
    finally:
        await wired.lifecycle.settle(session)


@asynccontextmanager
async def open_house(setup: Setup, runners: Mapping[str, Runner] | None = None, parts: Parts | None = None) -> AsyncGenerator[Wired]:
    """Open the house on this machine's store, making what is missing; whoever brings parts of their own gets those in place of ours."""
    setup.home.prepare()
    parts = parts or Parts()
    clock, in_force = parts.clock or SystemClock(), InForce(setup)
    masker = Masker(house_key(setup.home.mask_key), {**model_secrets(setup.config), **given_secrets(setup.servers)})
    credentials = Credentials(setup.credentials, masker.learn)
    await credentials.learn_at_hand()

    async def ask_again(session: SessionId, request: CallRequest) -> Answer:
        return await gate.request(session, request)

    async def allow_more(session: SessionId, kind: BudgetKind, more: float) -> float:
        async with house.hold(session) as actor:
            limit = float(getattr(actor.state.limits, kind.value)) + more
            await actor.submit(RaiseBudget(by=SYSTEM, kind=kind, limit=limit))
            return limit

    async def touched(session: SessionId) -> tuple[str, tuple[Label, ...]]:
        async with house.hold(session) as actor:
            return actor.state.facts.agent, tuple(actor.state.labels)

    async def taint(session: SessionId, labels: Sequence[LabelSource]) -> None:
        async with house.hold(session) as actor:
            await actor.submit(AddLabels(by=SYSTEM, labels=tuple(labels)))

    def denials(tool: str, place: Place) -> IsDenied | None:
        state = house.peek(place.session) or fold(lift(entry) for entry in store.log.read(session_stream(place.session)))
        policy = in_force.rules.of_session(state.opened).policy
        if not policy.denies_paths:
            return None
        facts = replace(state.facts, mode=place.mode)
        return lambda role, path: denies_path(policy, tool, role, path, facts)

    def mounts(place: Place) -> Mounts:
        return ((INSIDE, place.workspace.path),) if names.of(place.session) in contained_agents(setup.config.agents) else ()

    async def heard(session: SessionId, place: Place, text: str) -> None:
        reply = await hooks.tell(UserPromptSubmit(prompt=text), place)
        if reply.blocked is not None:
            raise CommandRefused(f"a hook keeps this message away from the agent: {reply.blocked}")
        if reply.context:
            # It is kept where nobody decides it now, and the message has to come after it all the same.
            with suppress(Undecided):
                await house.send(session, SendMessage(by=SYSTEM, message=MessageId(house.mint()), text=reply.context, role="context"))

    def listens(place: Place) -> bool:
        return hooks.listens("UserPromptSubmit", place)

    protection, wishes, teams = setup.policy.protection, Wishes(), setup.config.teams
    async with (
        SqliteStore.open(setup.home.root, clock, decode=lift) if parts.store is None else nullcontext(parts.store) as store,
        House(store, clock, lambda: in_force.rules) as house,
    ):
        names = AgentNames(store.log)
        model = partial(_model_of_new_sessions, setup.config, masker)
        peers = HousePeers(house, setup.home, lambda: in_force.setup.config, protection, model, Ways(heard, listens))
        archive = Archive(store.marks, house.feed)
        talk = Talk(peers, peers, house.feed, clock, terms_of(setup.config), archive)
        hands = Hands(talk, wishes, cards_of(setup.config), peers.team_of, _teller, masker.mask_json)
        of_teams: Mapping[str, Runner] = team_runners(hands) if teams else {}
        closers = team_closers(hands) if teams else None
        of_session = {
            **session_runners(allow_more),
            **skill_runners(shelf_of(setup.home)),
            **memory_runners(notebook_of(setup.home), masker, touched, taint),
            **of_teams,
        }
        held, shares = partial(note_held, house, masker), Shares(share_limits(setup.config.sandboxes))
        native = (
            run_tools(
                setup.home,
                masker,
                credentials,
                protection,
                ask_again,
                of_session,
                mounts,
                setup.own_ports,
                teams,
                closers,
                held,
                shares,
                denials,
            )
            if runners is None
            else judged_tools(
                setup.home, masker, {**of_teams, **runners}, own_ports=setup.own_ports, teams=teams, closers=closers, protection=protection
            )
        )
        async with (
            aclosing(ServerWays(setup.home.authority, ask_again, own_ports=setup.own_ports, watch=watch_in(house))) as ways,
            aclosing(Hub(native, open_servers(setup.home, setup.servers, masker, protection, house.feed, ways, shares))) as tools,
        ):
            around = Surroundings(masker, withheld=frozenset(secret_variables(setup.config)))
            hooks = user_hooks(setup.hooks, around, setup.home, house)
            gate = SessionGate(house, tools, hooks, parts.approver or approver_of(lambda: in_force.setup.config, around, setup.home))
            async with aclosing(lifecycle_of(hooks, setup.home, house)) as lifecycle:
                yield Wired(in_force, store, house, tools, gate, hooks, lifecycle, masker, names, peers, talk, wishes, archive, shares)


def _teller() -> Tell | None:
    """Return who hears that an answer is still waited for, where somebody does."""
    heard = listener()
    return None if heard is None else lambda waited, words: heard(waited, None, words)


def _model_of_new_sessions(config: Config, masker: Masker, agent: str) -> str:
    # Start-up time: most commands open no session.
    from curtainwall.app.models import default_model_name

    return default_model_name(config, masker.learn) if agent == BUILTIN else own_choice(config.agents, agent)
