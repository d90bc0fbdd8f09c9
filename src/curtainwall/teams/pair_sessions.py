"""The session of each pair of teams: found or opened, on which terms, and with whose budget."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from curtainwall.config.schema import Config
from curtainwall.config.teams import TeamSection
from curtainwall.facts import PathRoots, Unclear, canonical_path
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
    session_stream,
)
from curtainwall.model.people import parse_place
from curtainwall.operations.open import begin_once
from curtainwall.policy import Protection
from curtainwall.runtime import SessionRegistry
from curtainwall.session import SessionState, Spent, fold, lift, may_receive, refusal_text, require_no_cycle
from curtainwall.teams.pairs import Pair

_SHARED = (BudgetKind.TOKENS, BudgetKind.DOLLARS)


class _Share(NamedTuple):
    """A session's part in a budget, up to where its log was read."""

    head: int
    spent: Spent
    raised: Mapping[BudgetKind, float]


class SharedBudgets:
    """What sessions have used and were allowed; each log is read once, and again when it has grown."""

    def __init__(self, house: SessionRegistry, state: Callable[[SessionId], SessionState]) -> None:
        self._house = house
        self._state = state
        self._shares: dict[SessionId, _Share] = {}

    async def share(self, session: SessionId, others: Iterable[SessionId]) -> None:
        """Let a session's budget be that of the others, too: count what they have used, and allow what was allowed there."""
        others = [other for other in others if other != session]
        state = self._state(session)
        for kind in _SHARED:
            limit = max((self._share(other).raised.get(kind, 0.0) for other in others), default=0.0)
            if limit > getattr(state.limits, kind):
                # It is refused where somebody has allowed as much in the meantime.
                with suppress(CommandRefused):
                    await self._house.send(session, RaiseBudget(by=SYSTEM, kind=kind, limit=limit))
        used = self._used(others)
        if used != state.elsewhere:
            await self._house.send(session, CountSpending(by=SYSTEM, usage=used.usage))

    async def settle(self, sessions: Sequence[SessionId]) -> None:
        """Count in each session that is at work what all of them used, where that is as much as it may use."""
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
        head = self._house.feed.head(session_stream(session))
        known = self._shares.get(session)
        if known is None or known.head != head:
            known = self._shares[session] = _read(head, self._state(session))
        return known


def _read(head: int, state: SessionState) -> _Share:
    if state.opened is None:
        return _Share(head, Spent(), {})
    began = state.opened.limits
    raised = {kind: float(getattr(state.limits, kind)) for kind in _SHARED if getattr(state.limits, kind) > getattr(began, kind)}
    return _Share(head, state.spent.copy(), raised)


DAY = 24 * 60 * 60 * 1000

Finish = Callable[[PeerAnswer], FinishCall | None]
"""Makes of an answer the outcome of the call that waits for it, where that is small enough to be written along with the answer."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever asks: the session in which it asks, and the team that this one speaks for."""

    session: SessionId
    team: str


@dataclass(frozen=True, slots=True)
class TalkTerms:
    """How long is waited, how long a message may wait, and when a pair counts as archived."""

    wait: float = 30.0
    notice_days: float = 30.0
    archive_after: int = 90 * DAY


@dataclass(frozen=True, slots=True)
class TeamCard:
    """What others are told of a team."""

    description: str = ""
    colour: str = ""


_MANY = 100_000
_NAMED = 5
_UNBOUNDED = Limits(tokens=NO_LIMIT, steps=NO_LIMIT, seconds=NO_LIMIT, dollars=NO_LIMIT)
"""What a pair may use where its team names no limit: whoever asks pays, and has limits."""

DefaultModel = Callable[[str], str]
"""Tells the model of an agent's new sessions."""

PassHooks = Callable[[SessionId, Place, str], Awaitable[None]]
"""Passes a message by the user's hooks; raises where they keep it away."""

HasHooks = Callable[[Place], bool]
"""Tells whether the user's hooks want to hear of messages in a place."""


@dataclass(frozen=True, slots=True)
class MessageHooks:
    """How messages pass by the user's hooks."""

    heard: PassHooks
    any_hooks: HasHooks


class PairSessions:
    """What talking to teams needs of one process's part of the house."""

    def __init__(
        self,
        house: SessionRegistry,
        home: Home,
        config: Callable[[], Config],
        protection: Protection,
        default_model: DefaultModel,
        ways: MessageHooks,
    ) -> None:
        self._house = house
        self._home = home
        self._config = config
        self._protection = protection
        self._default_model = default_model
        self._ways = ways
        self.budgets = SharedBudgets(house, self.state)
        self._opened: dict[Pair, Place] = {}
        self._opening = asyncio.Lock()
        self._settled: dict[SessionId, Usage] = {}
        self._teams: dict[SessionId, str] = {}

    async def open(self, pair: Pair, caller: Caller, text: str) -> SessionId:
        """Return the one session of a pair, opened where it was not yet; raise where the team may not be asked."""
        known = self._known(pair)
        if known is None:
            # Before anything is opened; what is delivered later is judged where it arrives, whatever has changed by then.
            workspace = self.workspace_of(pair.team)
            self._require_allowed(pair, caller, workspace)
            async with self._opening:
                self.require_room(pair)
                session = await self._open(pair, workspace)
            known = self._opened[pair] = Place(session=session, workspace=workspace, mode=self._team(pair.team).mode)
        if self._is_limited(pair.team):
            await self.budgets.share(known.session, self._threads(pair))
        await self._ways.heard(known.session, known, text)
        return known.session

    async def settle_budgets(self, session: SessionId) -> None:
        """Let what a conversation uses stop the asker's other ones with the same team, where it is used up together."""
        if not self._is_limited(self.team_of(session)):
            return
        spent = self.state(session).spent.usage
        if self._settled.get(session) != spent:
            self._settled[session] = spent
            pair = next((found for route in self._house.stores.index.routes_to(session) if (found := Pair.at(route))), None)
            if pair is not None:
                await self.budgets.settle(self._threads(pair))

    def _threads(self, pair: Pair) -> Sequence[SessionId]:
        """Return the sessions of all conversations of a pair's asker with its team."""
        return [session for it, session in self.pairs(pair.asker) if it.team == pair.team]

    def require_room(self, pair: Pair) -> None:
        """Raise where an asker has as many conversations with a team as may be in use at a time; one that is there goes on."""
        if self.session_of(pair) is not None:
            return
        peers = self._config().peers
        since = self._house.clock.now() - peers.archive_after * 1000
        threads = sorted(it.thread for it, _ in self._pairs(pair.asker, since) if it.team == pair.team)
        if len(threads) >= peers.threads:
            named = ", ".join(f"`{thread}`" for thread in threads[:_NAMED] if thread)
            go_on = f"go on without `thread`{f', or in one as {named}' if named else ''}"
            raise CommandRefused(
                f"`{pair.asker}` has {len(threads)} conversations with team `{pair.team}`, and no more may be in use at a time; {go_on}, "
                "or let a human delete one (`curtainwall teams list`, `curtainwall sessions delete ID`) or allow more (`peers.threads`)"
            )

    async def found(self, pair: Pair) -> SessionId:
        """Return the one session of a pair, opened where it was not yet, for whoever looks after the house: nobody is told anything."""
        return await self._open(pair, self.workspace_of(pair.team))

    def at_hand(self, pair: Pair) -> SessionId | None:
        """Return a pair's session where a message can go to it as it is, with nothing to be opened or asked before."""
        known = self._known(pair)
        return None if known is None or self._is_limited(pair.team) or self._ways.any_hooks(known) else known.session

    async def answer(self, session: SessionId, message: MessageId, finish: Finish) -> PeerAnswer:
        """Return the answer to a message of the session once it is durable, and with it what finishes the call that waited for it."""
        taken: list[PeerAnswer] = []

        def follow(_state: SessionState, events: Sequence[AnyEvent]) -> AnyCommand | None:
            for event in events:
                if isinstance(event, PeerAnswerTaken) and event.answer.message == message:
                    taken.append(event.answer)
                    return finish(event.answer)
            return None

        async with self._house.hold(session) as actor:
            with actor.followed_by(follow):
                while message in actor.state.sent:
                    await actor.grown()
        return taken[-1] if taken else self._answer_in_log(session, message)

    def _answer_in_log(self, session: SessionId, message: MessageId) -> PeerAnswer:
        for recorded in self._house.feed.read(session_stream(session)):
            if isinstance(recorded.event, PeerAnswerTaken) and recorded.event.answer.message == message:
                return recorded.event.answer
        raise NotFound(f"session `{session}` sent no message `{message}`")

    def _known(self, pair: Pair) -> Place | None:
        """Return where a pair talks, as far as it was seen here; a session that was deleted since is none."""
        known = self._opened.get(pair)
        return None if known is None or self._house.feed.head(session_stream(known.session)) == 0 else known

    def pairs(self, asker: str | None = None) -> Sequence[tuple[Pair, SessionId]]:
        """Return the pairs that somebody began, or all there are."""
        return self._pairs(asker)

    def _pairs(self, asker: str | None, since: Millis | None = None) -> Sequence[tuple[Pair, SessionId]]:
        index, found = self._house.stores.index, list[tuple[Pair, SessionId]]()
        for row in index.sessions(SessionQuery(channel=TEAMS, since=since, limit=_MANY)):
            for route in index.routes_to(row.session):
                pair = Pair.at(route)
                if pair is not None and asker in (None, pair.asker):
                    found.append((pair, row.session))
        return found

    def session_of(self, pair: Pair) -> SessionId | None:
        """Return the session of a pair where it has one, whoever opened it."""
        index = self._house.stores.index
        session = index.session_at(pair.route)
        there = session is not None and index.sessions(SessionQuery(channel=TEAMS, prefix=session, limit=1))
        return session if there else None

    async def send(self, session: SessionId, command: AnyCommand) -> int:
        """Have a command decided; raise its refusal."""
        return await self._house.send(session, command)

    def labels(self, session: SessionId) -> tuple[LabelSource, ...]:
        """Return what a session has touched."""
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
        known = self._house.peek(session)
        return known or fold(lift(entry) for entry in self._house.stores.log.read(session_stream(session)))

    def workspace_of(self, team: str) -> Workspace:
        """Return a team's project by its real path; raise where it could not be worked in."""
        written = Path(self._team(team).project).expanduser()
        try:
            real = canonical_path(str(written), PathRoots(workspace="/", home="/"))
            readable = any(True for _ in Path(real).iterdir()) or Path(real).is_dir()
        except (Unclear, OSError) as fault:
            why = fault.message if isinstance(fault, Unclear) else (fault.strerror or str(fault)).lower()
            raise CommandRefused(f"team `{team}` has no project: `{written}`: {why}; correct `teams.{team}.project`") from None
        workspace = Workspace(path=real, own=False)
        conflict = self._protection.conflict(workspace)
        if conflict is not None or not readable:
            raise CommandRefused(f"team `{team}` cannot work in `{real}`: it contains or lies in the protected path `{conflict}`")
        return workspace

    def limits_of(self, team: str) -> Limits:
        """Return what one asker may use of a team."""
        told = self._team(team)
        named = {"tokens": told.tokens, "dollars": told.dollars}
        return _UNBOUNDED.model_copy(update={key: value for key, value in named.items() if value is not None})

    def _is_limited(self, team: str) -> bool:
        """Tell whether a team bounds what one asker may use of it, whichever of their conversations it is used in."""
        told = self._config().teams.get(team)
        return told is not None and (told.tokens is not None or told.dollars is not None)

    def _team(self, name: str) -> TeamSection:
        found = self._config().teams.get(name)
        if found is None:
            known = ", ".join(f"`{team}`" for team in sorted(self._config().teams))
            raise NotFound(f"there is no team `{name}`; {f'there are: {known}' if known else 'none is configured'}")
        return found

    def _require_allowed(self, pair: Pair, caller: Caller, workspace: Workspace) -> None:
        rules = self._house.rules().of(team=pair.team)
        require_no_cycle(self.state(caller.session), pair.team, rules)
        verdict = may_receive(rules, pair.team, pair.asker, self.labels(caller.session), workspace)
        if verdict.effect is Effect.DENY:
            raise NotAllowed(refusal_text(verdict))

    async def _open(self, pair: Pair, workspace: Workspace) -> SessionId:
        team = self._team(pair.team)
        house, index = self._house, self._house.stores.index
        session = index.session_at(pair.route)
        if session is not None and self.state(session).closed is not None:
            session = await house.bind(pair.route, SessionId(house.mint()), SYSTEM, instead_of=session)
        elif session is None:
            session = await house.bind(pair.route, SessionId(house.mint()), SYSTEM)
        self._home.session(session).prepare()
        targets = (*(() if team.approval_target is None else (team.approval_target,)), *self._config().approvals.targets)

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
                policy=house.rules().of(team=pair.team).policy.version,
                routes=tuple(dict.fromkeys(map(parse_place, targets))),
                team=pair.team,
                channel=TEAMS,
            )

        await begin_once(house, session, SYSTEM, opening)
        return session


def team_cards(config: Config) -> dict[str, TeamCard]:
    """Return what others are told of each team."""
    return {name: TeamCard(team.description, team.colour or "") for name, team in config.teams.items()}


def talk_terms(config: Config) -> TalkTerms:
    """Return how long is waited, and when a pair counts as archived."""
    told = config.peers
    return TalkTerms(wait=float(told.wait), notice_days=told.notice_days, archive_after=told.archive_after * DAY // 86_400)
