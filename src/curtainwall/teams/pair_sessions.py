"""The session of each pair of teams: finds or opens it, sets its terms, and shares budgets between the asker's threads."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from curtainwall.config.schema import ActiveConfig, Config
from curtainwall.config.teams import TeamSection
from curtainwall.facts import PathRoots, Unclear, canonical_path, is_beneath
from curtainwall.host.home import Home
from curtainwall.model import (
    NO_LIMIT,
    SYSTEM,
    TEAMS,
    AnyCommand,
    AnyEvent,
    BudgetKind,
    CommandRefused,
    CountSpending,
    Effect,
    FinishCall,
    LabelSource,
    Limits,
    MessageId,
    Millis,
    NotAllowed,
    NotFound,
    OpenSession,
    PeerAnswer,
    PeerAnswerTaken,
    Place,
    RaiseBudget,
    SessionId,
    SessionQuery,
    Usage,
    Workspace,
    record,
    session_stream,
)
from curtainwall.model.people import parse_place
from curtainwall.operations.open import begin_once
from curtainwall.policy import Protection
from curtainwall.runtime import SessionRegistry
from curtainwall.session import SessionState, Spent, may_receive, refusal_text, require_no_cycle
from curtainwall.teams.archive import Archive
from curtainwall.teams.keeper_mail import KEEPER
from curtainwall.teams.pairs import Pair

_SHARED = (BudgetKind.TOKENS, BudgetKind.DOLLARS)


class _Share(NamedTuple):
    """A session's part in a budget, up to where its log was read."""

    head: int
    spent: Spent
    raised: Mapping[BudgetKind, float]


class SharedBudgets:
    """The usage and the limits of several sessions together. Each log is read once, and again when it has grown."""

    def __init__(self, registry: SessionRegistry, state: Callable[[SessionId], SessionState]) -> None:
        self._registry = registry
        self._state = state
        self._shares: dict[SessionId, _Share] = {}

    async def share(self, session: SessionId, others: Iterable[SessionId]) -> None:
        """Make a session share the budget of the others: count what they used, and raise its limits to theirs."""
        others = [other for other in others if other != session]
        state = self._state(session)
        for kind in _SHARED:
            limit = max((self._share(other).raised.get(kind, 0.0) for other in others), default=0.0)
            if limit > getattr(state.limits, kind):
                # Refused if somebody has allowed as much in the meantime.
                with suppress(CommandRefused):
                    await self._registry.send(session, RaiseBudget(by=SYSTEM, kind=kind, limit=limit))
        used = self._used(others)
        if used != state.elsewhere:
            await self._registry.send(session, CountSpending(by=SYSTEM, usage=used.usage))

    async def settle(self, sessions: Sequence[SessionId]) -> None:
        """Charge the joint spending to each working session whose limit it reaches."""
        used = self._used(sessions)
        for session in sessions:
            state = self._state(session)
            is_at_work = state.turn is not None and not state.turn_waits and not state.exhausted
            if is_at_work and (used.tokens >= state.limits.tokens or used.dollars >= state.limits.dollars):
                await self.share(session, sessions)

    def _used(self, sessions: Iterable[SessionId]) -> Spent:
        used = Spent()
        for session in sessions:
            used = used.plus(self._share(session).spent)
        return used

    def _share(self, session: SessionId) -> _Share:
        head = self._registry.feed.head(session_stream(session))
        share = self._shares.get(session)
        if share is None or share.head != head:
            share = self._shares[session] = _read(head, self._state(session))
        return share


def _read(head: int, state: SessionState) -> _Share:
    if state.opened is None:
        return _Share(head, Spent(), {})
    initial = state.opened.limits
    raised = {kind: float(getattr(state.limits, kind)) for kind in _SHARED if getattr(state.limits, kind) > getattr(initial, kind)}
    return _Share(head, state.spent.copy(), raised)


DAY = 24 * 60 * 60 * 1000

Finish = Callable[[PeerAnswer], FinishCall | None]
"""Turns an answer into the outcome of the call that waits for it, if it is small enough to be logged with the answer."""


@record
class Caller:
    """Who asks: the asking session, and the team that it speaks for."""

    session: SessionId
    team: str


@record
class TalkTerms:
    """How long to wait for an answer, how long a notice may wait, and when a pair counts as archived."""

    wait: float = 30.0
    notice_days: float = 30.0
    archive_after: int = 90 * DAY


@record
class TeamCard:
    """How a team is presented to others."""

    description: str = ""
    colour: str = ""


_MANY = 100_000
_NAMED = 5
_UNBOUNDED = Limits(tokens=NO_LIMIT, steps=NO_LIMIT, seconds=NO_LIMIT, dollars=NO_LIMIT)
"""The limit of a pair if its team sets none: the asker pays, and has limits."""

DefaultModel = Callable[[str], str]
"""Returns the model for an agent's new sessions."""

PassHooks = Callable[[SessionId, Place, str], Awaitable[None]]
"""Runs the user's hooks on a message; raises if they block it."""

HasHooks = Callable[[Place], bool]
"""Tells whether the user has hooks for messages in a place."""


@record
class MessageHooks:
    """The user's hooks for messages to teams."""

    run: PassHooks
    any_hooks: HasHooks


@record
class PairPorts:
    """The parts that pairs use besides their sessions: the model of new ones, the user's hooks, and the archive."""

    default_model: DefaultModel
    hooks: MessageHooks
    archive: Archive


class PairSessions:
    """Opens, finds and reads the sessions of pairs in this process."""

    def __init__(
        self,
        registry: SessionRegistry,
        home: Home,
        config: ActiveConfig,
        protection: Protection,
        ports: PairPorts,
    ) -> None:
        self._registry = registry
        self._archive = ports.archive
        self._home = home
        self._config = config
        self._protection = protection
        self._default_model = ports.default_model
        self._hooks = ports.hooks
        self.budgets = SharedBudgets(registry, self.state)
        self._opened: dict[Pair, Place] = {}
        self._opening = asyncio.Lock()
        self._settled: dict[SessionId, Usage] = {}
        self._teams: dict[SessionId, str] = {}

    async def open(self, pair: Pair, caller: Caller, text: str) -> SessionId:
        """Return the session of a pair, opening it if needed; raise if the asker may not talk to the team."""
        place = self._open_place(pair)
        if place is None:
            # Checked before anything is opened; later messages are judged on delivery, by the rules of that time.
            workspace = self.workspace_of(pair.team)
            self._require_allowed(pair, caller, workspace)
            async with self._opening:
                self.require_room(pair)
                session = await self._open(pair, workspace)
            place = self._opened[pair] = Place(session=session, workspace=workspace, mode=self._team(pair.team).mode)
        else:
            # The configuration may have changed since.
            self._require_root(pair.team, place.workspace.path)
        if self._is_limited(pair.team):
            await self.budgets.share(place.session, self._threads(pair))
        await self._hooks.run(place.session, place, text)
        return place.session

    async def settle_budgets(self, session: SessionId) -> None:
        """Stop the asker's other conversations with the same team once they have used up the shared budget."""
        if not self._is_limited(self.team_of(session)):
            return
        spent = self.state(session).spent.usage
        if self._settled.get(session) != spent:
            self._settled[session] = spent
            pair = next((candidate for route in self._registry.stores.index.routes_to(session) if (candidate := Pair.at(route))), None)
            if pair is not None:
                await self.budgets.settle(self._threads(pair))

    def _threads(self, pair: Pair) -> Sequence[SessionId]:
        """Return the sessions of all conversations of a pair's asker with its team."""
        return [session for it, session in self.pairs(pair.asker) if it.team == pair.team]

    def require_room(self, pair: Pair) -> None:
        """Raise if an asker already has the most conversations with a team that may be in use; an existing one is always fine."""
        if self.session_of(pair) is not None:
            return
        peers = self._config.now.peers
        since = self._registry.clock.now() - peers.archive_after * 1000
        pairs = self._pairs(pair.asker, since)
        threads = sorted(it.thread for it, session in pairs if it.team == pair.team and not self._archive.is_put_away(session))
        if len(threads) >= peers.threads:
            named = ", ".join(f"`{thread}`" for thread in threads[:_NAMED] if thread)
            go_on = f"go on without `thread`{f', or in one as {named}' if named else ''}"
            raise CommandRefused(
                f"`{pair.asker}` has {len(threads)} conversations with team `{pair.team}`, and no more may be in use at a time; {go_on}, "
                "or let a human archive one (`curtainwall teams list`, `curtainwall teams archive TEAM --thread NAME`) or allow more "
                "(`peers.threads`)"
            )

    async def ensure(self, pair: Pair) -> SessionId:
        """Return the session of a pair, opening it if needed, for maintenance: no message is sent."""
        return await self._open(pair, self.workspace_of(pair.team))

    def at_hand(self, pair: Pair) -> SessionId | None:
        """Return a pair's session if a message can be sent to it at once: nothing to open, to count, to check or to run before."""
        place = self._open_place(pair)
        if place is None or self._is_limited(pair.team) or not self._lies_in_roots(place.workspace.path):
            return None
        return None if self._hooks.any_hooks(place) else place.session

    async def answer(self, session: SessionId, message: MessageId, finish: Finish) -> PeerAnswer:
        """Return the answer to a message once it is durable, together with what finishes the call that waited for it."""
        taken: list[PeerAnswer] = []

        def follow(_state: SessionState, events: Sequence[AnyEvent]) -> AnyCommand | None:
            for event in events:
                if isinstance(event, PeerAnswerTaken) and event.answer.message == message:
                    taken.append(event.answer)
                    return finish(event.answer)
            return None

        async with self._registry.hold(session) as actor:
            with actor.followed_by(follow):
                while message in actor.state.sent:
                    await actor.wait_for_growth()
        return taken[-1] if taken else self._answer_in_log(session, message)

    def _answer_in_log(self, session: SessionId, message: MessageId) -> PeerAnswer:
        for recorded in self._registry.feed.read(session_stream(session)):
            if isinstance(recorded.event, PeerAnswerTaken) and recorded.event.answer.message == message:
                return recorded.event.answer
        raise NotFound(f"session `{session}` sent no message `{message}`")

    def _open_place(self, pair: Pair) -> Place | None:
        """Return where a pair talks, if this process opened it and its session was not deleted since."""
        place = self._opened.get(pair)
        return None if place is None or self._registry.feed.head(session_stream(place.session)) == 0 else place

    def pairs(self, asker: str | None = None) -> Sequence[tuple[Pair, SessionId]]:
        """Return the pairs of one asker, or all pairs."""
        return self._pairs(asker)

    def _pairs(self, asker: str | None, since: Millis | None = None) -> Sequence[tuple[Pair, SessionId]]:
        index, pairs = self._registry.stores.index, list[tuple[Pair, SessionId]]()
        for row in index.sessions(SessionQuery(channel=TEAMS, since=since, limit=_MANY)):
            for route in index.routes_to(row.session):
                pair = Pair.at(route)
                if pair is not None and asker in (None, pair.asker):
                    pairs.append((pair, row.session))
        return pairs

    def session_of(self, pair: Pair) -> SessionId | None:
        """Return the session of a pair if it has one, no matter which process opened it."""
        index = self._registry.stores.index
        session = index.session_at(pair.route)
        rows = session is not None and index.sessions(SessionQuery(channel=TEAMS, prefix=session, limit=1))
        return session if rows else None

    async def send(self, session: SessionId, command: AnyCommand) -> int:
        """Send a command to a session; raise if it is refused."""
        return await self._registry.send(session, command)

    def labels(self, session: SessionId) -> tuple[LabelSource, ...]:
        """Return the labels of a session."""
        return tuple(self.state(session).labels.values())

    def team_of(self, session: SessionId) -> str:
        """Return the team that a session speaks for."""
        if session not in self._teams:
            opened = self.state(session).opened
            if opened is None:
                return ""
            self._teams[session] = opened.team
        return self._teams[session]

    def state(self, session: SessionId) -> SessionState:
        """Return a session as it is now."""
        return self._registry.look_at(session)

    def workspace_of(self, team: str) -> Workspace:
        """Return a team's project by its real path; raise if nobody can work there."""
        written = Path(self._team(team).project).expanduser()
        try:
            real = canonical_path(str(written), PathRoots(workspace="/", home="/"))
            readable = any(True for _ in Path(real).iterdir()) or Path(real).is_dir()
        except (Unclear, OSError) as fault:
            why = fault.message if isinstance(fault, Unclear) else (fault.strerror or str(fault)).lower()
            raise CommandRefused(f"team `{team}` has no project: `{written}`: {why}; correct `teams.{team}.project`") from None
        self._require_root(team, real)
        workspace = Workspace(path=real, own=False)
        conflict = self._protection.conflict(workspace)
        if conflict is not None or not readable:
            raise CommandRefused(f"team `{team}` cannot work in `{real}`: it contains or lies in the protected path `{conflict}`")
        return workspace

    def _require_root(self, team: str, real: str) -> None:
        """Raise if a project, by its real path, lies outside the directories in which teams may have theirs."""
        if not self._lies_in_roots(real):
            raise CommandRefused(f"team `{team}` cannot work in `{real}`: it lies in none of `peers.project-roots`")

    def _lies_in_roots(self, real: str) -> bool:
        roots = self._config.now.peers.project_roots
        for root in roots or ():
            with suppress(Unclear):
                if is_beneath(real, canonical_path(str(Path(root).expanduser()), PathRoots(workspace="/", home="/"))):
                    return True
        return roots is None

    def is_worked_on(self, session: SessionId) -> bool:
        """Tell whether a process works for the teams, or on this session."""
        leases = self._registry.stores.leases
        return any(leases.owner(stream) is not None for stream in (KEEPER, session_stream(session)))

    def limits_of(self, team: str) -> Limits:
        """Return what one asker may use of a team."""
        section = self._team(team)
        limits = {"tokens": section.tokens, "dollars": section.dollars}
        return _UNBOUNDED.model_copy(update={key: value for key, value in limits.items() if value is not None})

    def _is_limited(self, team: str) -> bool:
        """Tell whether a team limits what one asker may use, over all of their conversations."""
        section = self._config.now.teams.get(team)
        return section is not None and (section.tokens is not None or section.dollars is not None)

    def _team(self, name: str) -> TeamSection:
        section = self._config.now.teams.get(name)
        if section is None:
            names = ", ".join(f"`{team}`" for team in sorted(self._config.now.teams))
            raise NotFound(f"there is no team `{name}`; {f'there are: {names}' if names else 'none is configured'}")
        return section

    def _require_allowed(self, pair: Pair, caller: Caller, workspace: Workspace) -> None:
        rules = self._registry.rules().of(team=pair.team)
        require_no_cycle(self.state(caller.session), pair.team, rules)
        verdict = may_receive(rules, pair.team, pair.asker, self.labels(caller.session), workspace)
        if verdict.effect is Effect.DENY:
            raise NotAllowed(refusal_text(verdict))

    async def _open(self, pair: Pair, workspace: Workspace) -> SessionId:
        team = self._team(pair.team)
        registry, index = self._registry, self._registry.stores.index
        session = index.session_at(pair.route)
        if session is not None and self.state(session).closed is not None:
            session = await registry.bind(pair.route, SessionId(registry.mint()), SYSTEM, instead_of=session)
        elif session is None:
            session = await registry.bind(pair.route, SessionId(registry.mint()), SYSTEM)
        self._home.session(session).prepare()
        targets = (*(() if team.approval_target is None else (team.approval_target,)), *self._config.now.approvals.targets)

        def opening() -> OpenSession:
            return OpenSession(
                by=SYSTEM,
                session=session,
                name=str(pair),
                agent=team.agent,
                model=team.model or self._default_model(team.agent),
                workspace=workspace,
                mode=team.mode,
                limits=self.limits_of(pair.team),
                policy=registry.rules().of(team=pair.team).policy.version,
                routes=tuple(dict.fromkeys(map(parse_place, targets))),
                team=pair.team,
                channel=TEAMS,
            )

        await begin_once(registry, session, SYSTEM, opening)
        return session


def team_cards(config: Config) -> dict[str, TeamCard]:
    """Return how each team is presented to others."""
    return {name: TeamCard(team.description, team.colour or "") for name, team in config.teams.items()}


def talk_terms(config: Config) -> TalkTerms:
    """Return the configured waiting times, and when a pair counts as archived."""
    peers = config.peers
    return TalkTerms(wait=float(peers.wait), notice_days=peers.notice_days, archive_after=peers.archive_after * DAY // 86_400)
