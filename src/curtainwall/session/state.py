"""A session's state at one point of its log: its open work and small totals. Only a cache ever stores it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from curtainwall import policy
from curtainwall.model import (
    APPLY_CHANGES,
    BUILTIN_AGENT,
    ApprovalId,
    Basis,
    BudgetKind,
    CallId,
    Digest,
    Grant,
    GrantId,
    Label,
    LabelSource,
    Limits,
    MessageId,
    Millis,
    Mode,
    Peer,
    PeerAnswer,
    Place,
    Route,
    RuleId,
    SessionOpened,
    Settlement,
    TurnId,
    Usage,
    Workspace,
)
from curtainwall.session.open_work import CallStatus, OpenCall, OpenWork

_FROM_SURE_TO_UNSURE = (Basis.MEASURED, Basis.ESTIMATED, Basis.UNKNOWN)

SETTLED_KEPT = 128
"""The minimum number of settled approvals to remember, so that the refusal of a late answer can name who settled it."""


class Phase(StrEnum):
    """The status of a session."""

    OPENING = "opening"
    READY = "ready"
    WORKING = "working"
    WAITING = "waiting"
    CLOSED = "closed"


class Settled(NamedTuple):
    """How an approval ended."""

    how: Settlement
    by: str
    at: Millis


class ChangeProposal(NamedTuple):
    """The last change set that was presented: its call, its turn, and its answer so far.

    `only` are the paths that were accepted, if not all were. `comment` is what the agent is told with a denial.
    """

    call: CallId
    changes: str
    turn: TurnId | None
    is_over: bool = False
    is_accepted: bool = False
    is_denied: bool = False
    only: tuple[str, ...] | None = None
    comment: str = ""
    discards: bool = False


@dataclass(slots=True)
class Spent:
    """How much of its budgets the session has used, and how certain the figures are."""

    tokens: int = 0
    steps: int = 0
    seconds: float = 0.0
    dollars: float = 0.0
    tokens_basis: Basis = Basis.MEASURED
    dollars_basis: Basis = Basis.MEASURED

    def add(self, usage: Usage) -> None:
        """Add usage; a sum is only as certain as its least certain part."""
        self.tokens += usage.input_tokens + usage.output_tokens
        self.dollars += usage.dollars
        self.tokens_basis = _weaker(self.tokens_basis, usage.tokens_basis)
        self.dollars_basis = _weaker(self.dollars_basis, usage.dollars_basis)

    def plus(self, other: "Spent") -> "Spent":
        """Return the sum of both; the other's steps and seconds are not counted, and zero usage does not make a sum less certain."""
        total = self.copy()
        if other.tokens or other.dollars:
            total.add(other.usage)
        return total

    @property
    def usage(self) -> Usage:
        """Return the tokens and dollars."""
        return Usage(input_tokens=self.tokens, dollars=self.dollars, tokens_basis=self.tokens_basis, dollars_basis=self.dollars_basis)

    def copy(self) -> "Spent":
        """Return a copy of the figures."""
        return Spent(self.tokens, self.steps, self.seconds, self.dollars, self.tokens_basis, self.dollars_basis)


@dataclass(slots=True)
class Totals:
    """Small sums over the whole log."""

    events: int = 0
    turns: int = 0
    messages: int = 0
    calls: int = 0
    asks: int = 0
    denials: int = 0
    uncounted_denials: int = 0

    def copy(self) -> "Totals":
        """Return a copy of the sums."""
        return Totals(self.events, self.turns, self.messages, self.calls, self.asks, self.denials, self.uncounted_denials)


@dataclass
class SessionState(OpenWork):
    """The fold of a session's log: open work, settings, usage and what the session owes others.

    INVARIANT: only `evolve.apply` changes a state; everyone else gets a copy that never changes. The values in a state are replaced and not
    mutated, except for the figures in `spent` and `totals`, so a copy costs next to nothing.
    """

    opened: SessionOpened | None = None
    ready: bool = False
    closed: str | None = None
    reopened: int = 0
    """How often it was reopened."""
    once: bool = False
    """Whether the last message is a single task, after which the session ends."""
    name: str = ""
    model: str = ""
    mode: Mode = Mode.DEFAULT
    limits: Limits = field(default_factory=Limits)
    compaction: float | None = None
    compaction_set: bool = False
    compaction_asked: str | None = None
    context_used: int = 0
    context_size: int = 0
    context_measured: bool = False
    spent: Spent = field(default_factory=Spent)
    elsewhere: Spent = field(default_factory=Spent)
    """The latest usage of the sessions that share this one's budget."""
    totals: Totals = field(default_factory=Totals)
    labels: Mapping[Label, LabelSource] = field(default_factory=dict[Label, LabelSource])
    disabled: frozenset[RuleId] = frozenset()
    routes: tuple[Route, ...] = ()
    queue: tuple[MessageId, ...] = ()
    settled: Mapping[ApprovalId, Settled] = field(default_factory=dict[ApprovalId, Settled])
    grants: Mapping[GrantId, Grant] = field(default_factory=dict[GrantId, Grant])
    requests: Mapping[str, TurnId] = field(default_factory=dict[str, TurnId])
    repeats: Mapping[Digest, tuple[Millis, ...]] = field(default_factory=dict[Digest, tuple[Millis, ...]])
    recent_asks: tuple[Millis, ...] = ()
    warned: frozenset[BudgetKind] = frozenset()
    exhausted: frozenset[BudgetKind] = frozenset()
    peers: Mapping[MessageId, Peer] = field(default_factory=dict[MessageId, Peer])
    """Messages from teams without an answer yet, and their senders."""
    expiries: Mapping[MessageId, Millis] = field(default_factory=dict[MessageId, Millis])
    owed: Mapping[MessageId, PeerAnswer] = field(default_factory=dict[MessageId, PeerAnswer])
    """Answers to teams that wait for approval."""
    sent: Mapping[MessageId, str] = field(default_factory=dict[MessageId, str])
    """Messages to teams that have not answered yet."""
    turn_messages: tuple[MessageId, ...] = ()
    turn_began: Spent | None = None
    spoken: str = ""
    """The agent's whole messages in this turn, if a team asked."""
    partial: str = ""
    """The streamed part of its current message."""
    notes: tuple[str, ...] = ()
    """Our notes about the agent in this turn, which are sent with its answer."""
    compacted_at: int = 0
    git_directory: str = ""
    """Where git works when a call names no path, as last set by the agent; empty for the workspace."""
    proposal: ChangeProposal | None = None

    def copy(self) -> "SessionState":
        """Return a copy that can evolve without changing this state."""
        new = object.__new__(SessionState)
        new.__dict__ = self.__dict__.copy()
        new.spent, new.totals = self.spent.copy(), self.totals.copy()
        return new

    @property
    def phase(self) -> Phase:
        """Return the session's status."""
        if self.closed is not None:
            return Phase.CLOSED
        if not self.ready:
            return Phase.OPENING
        if self.works:
            return Phase.WORKING
        return Phase.WAITING if self.turn is not None or self.approvals else Phase.READY

    @property
    def is_at_rest(self) -> bool:
        """Tell whether nothing is open: no turn, call, ask or queued message, and no answer that a team waits for."""
        return not (self.turn or self.calls or self.approvals or self.queue or self.peers or self.owed or self.compaction_asked is not None)

    @property
    def can_go_on(self) -> bool:
        """Tell whether a waiting turn can continue: it has an answer or a raised budget, or nothing to wait for."""
        if not self.turn_waits or self.exhausted:
            return False
        asked = (call in self.calls and self.calls[call].standing is CallStatus.ASKED for call in self.parked_on)
        return not self.parked_on or not all(asked)

    @property
    def applying(self) -> CallId | None:
        """Return the call that may apply accepted changes and has no outcome yet."""
        return next((call for call, it in self.calls.items() if is_application(it)), None)

    @property
    def is_held(self) -> bool:
        """Tell whether an external agent is at work, and all its open calls wait for a human."""
        if self.opened is None or self.opened.agent == BUILTIN_AGENT or self.turn is None or self.turn_waits:
            return False
        standings = {call.standing for call in self.calls.values() if call.turn == self.turn}
        return standings == {CallStatus.ASKED}

    @property
    def workspace(self) -> Workspace:
        """Return the workspace of an opened session."""
        assert self.opened is not None
        return self.opened.workspace

    @property
    def place(self) -> Place:
        """Return the part of the session on which the meaning of a call depends."""
        opened = self.opened
        assert opened is not None
        return Place(
            session=opened.session,
            workspace=opened.workspace,
            mode=self.mode,
            git_directory=self.git_directory,
            agent=opened.agent,
            team=opened.team,
        )

    @property
    def facts(self) -> "policy.SessionFacts":
        """Return the facts about the session that policy needs."""
        assert self.opened is not None
        return policy.SessionFacts(
            session=self.opened.session,
            agent=self.opened.agent,
            workspace=self.opened.workspace,
            mode=self.mode,
            channel=self.opened.channel,
            labels=frozenset(self.labels),
            team=self.opened.team,
        )


def is_application(call: OpenCall) -> bool:
    """Tell whether a call may apply accepted changes. Applying may be repeated, so a crash does not make its outcome unknown."""
    return call.subject.tool == APPLY_CHANGES and call.standing is CallStatus.PERMITTED


def _weaker(one: Basis, other: Basis) -> Basis:
    return one if one is other else max(one, other, key=_FROM_SURE_TO_UNSURE.index)
