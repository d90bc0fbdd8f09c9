"""What a session is at one point of its log: what is still open, plus small totals. Only a cache ever stores it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from curtainwall import policy
from curtainwall.model import (
    BUILTIN_AGENT,
    ApprovalId,
    Basis,
    BudgetKind,
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
from curtainwall.session.open_work import CallStatus, OpenWork

_FROM_SURE_TO_UNSURE = (Basis.MEASURED, Basis.ESTIMATED, Basis.UNKNOWN)

SETTLED_KEPT = 128
"""How many settled approvals are remembered at least, so that a late answer is told by whom it was settled."""


class Phase(StrEnum):
    """Where a session stands."""

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


@dataclass(slots=True)
class Spent:
    """What the session has used of its budgets, and how sure we are."""

    tokens: int = 0
    steps: int = 0
    seconds: float = 0.0
    dollars: float = 0.0
    tokens_basis: Basis = Basis.MEASURED
    dollars_basis: Basis = Basis.MEASURED

    def add(self, usage: Usage) -> None:
        """Count what was used; a sum is as sure as its least sure part."""
        self.tokens += usage.input_tokens + usage.output_tokens
        self.dollars += usage.dollars
        self.tokens_basis = _weaker(self.tokens_basis, usage.tokens_basis)
        self.dollars_basis = _weaker(self.dollars_basis, usage.dollars_basis)

    def plus(self, other: "Spent") -> "Spent":
        """Return both together, where the other steps and seconds are its own affair; nothing used makes no sum less sure."""
        total = self.copy()
        if other.tokens or other.dollars:
            total.add(other.usage)
        return total

    @property
    def usage(self) -> Usage:
        """Return the tokens and dollars."""
        return Usage(input_tokens=self.tokens, dollars=self.dollars, tokens_basis=self.tokens_basis, dollars_basis=self.dollars_basis)

    def copy(self) -> "Spent":
        """Return the same figures, to go on from."""
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
        """Return the same sums, to go on from."""
        return Totals(self.events, self.turns, self.messages, self.calls, self.asks, self.denials, self.uncounted_denials)


@dataclass
class SessionState(OpenWork):
    """The fold of a session's log: what is open, and what the session runs under, has used and owes.

    INVARIANT: nobody but `evolve.apply` changes a state; everyone else is handed a copy that stays as it is. What a state holds is
    exchanged and never changed, but for the figures in `spent` and `totals`, so that a copy costs next to nothing.
    """

    opened: SessionOpened | None = None
    ready: bool = False
    closed: str | None = None
    reopened: int = 0
    """How often it was opened again after it had been closed."""
    once: bool = False
    """Whether the last message is a single task, with which the session ends."""
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
    """What the sessions that share this one's budget have used, as it was counted last."""
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
    """Messages of teams that have no answer yet, and who sent them."""
    expiries: Mapping[MessageId, Millis] = field(default_factory=dict[MessageId, Millis])
    owed: Mapping[MessageId, PeerAnswer] = field(default_factory=dict[MessageId, PeerAnswer])
    """Answers to teams that wait for a yes."""
    sent: Mapping[MessageId, str] = field(default_factory=dict[MessageId, str])
    """Messages to teams whose answers have not come."""
    turn_messages: tuple[MessageId, ...] = ()
    turn_began: Spent | None = None
    spoken: str = ""
    """Everything that the agent has said in this turn, if a team asked."""
    partial: str = ""
    """What it has said since, of a message that is not complete."""
    notes: tuple[str, ...] = ()
    """What we had to say about the agent in this turn, which goes out with its answer."""
    compacted_at: int = 0
    git_directory: str = ""
    """Where git works when a call names no path, as the agent set it last; empty for the workspace."""

    def copy(self) -> "SessionState":
        """Return a state that can go on without changing this one."""
        new = object.__new__(SessionState)
        new.__dict__ = self.__dict__.copy()
        new.spent, new.totals = self.spent.copy(), self.totals.copy()
        return new

    @property
    def phase(self) -> Phase:
        """Return where the session stands."""
        if self.closed is not None:
            return Phase.CLOSED
        if not self.ready:
            return Phase.OPENING
        if self.works:
            return Phase.WORKING
        return Phase.WAITING if self.turn is not None or self.approvals else Phase.READY

    @property
    def is_at_rest(self) -> bool:
        """Tell whether nothing is open: no turn, no call, no ask, no queued message, and no answer that a team waits for."""
        return not (self.turn or self.calls or self.approvals or self.queue or self.peers or self.owed or self.compaction_asked is not None)

    @property
    def can_go_on(self) -> bool:
        """Tell whether a turn that waits has something to go on with: an answer, a raised budget, or nothing to wait for."""
        if not self.turn_waits or self.exhausted:
            return False
        asked = (call in self.calls and self.calls[call].standing is CallStatus.ASKED for call in self.parked_on)
        return not self.parked_on or not all(asked)

    @property
    def is_held(self) -> bool:
        """Tell whether a foreign agent works, and every call that it has open waits for a human."""
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
        """Return what the meaning of a call depends on."""
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
        """Return what policy needs to know of the session."""
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


def _weaker(one: Basis, other: Basis) -> Basis:
    return one if one is other else max(one, other, key=_FROM_SURE_TO_UNSURE.index)
