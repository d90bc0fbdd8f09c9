"""What the pages are given besides a channel's ports: lists, rules to try, new sessions, and records."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import JsonValue

from curtainwall.channels.asks.board import Board
from curtainwall.channels.cron import FiringRow, JobRow
from curtainwall.channels.ports import ChannelPorts
from curtainwall.model import DecidingRule, GrantId, Index, Millis, Mode, Opened, Payload, RuleStatus, SessionId, Who
from curtainwall.teams.chains import Chain
from curtainwall.teams.pairs import Pair, PairFigures


@dataclass(frozen=True, slots=True)
class CallTrial:
    """A call that somebody wonders about, and the session that is imagined around it."""

    tool: str
    arguments: str
    project: str = ""
    mode: Mode = Mode.DEFAULT
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallTrialResult:
    """What the rules say of a call, in words."""

    effect: str
    reason: str
    resources: tuple[tuple[str, str], ...]
    rules: tuple[DecidingRule, ...]
    facts: tuple[str, ...]
    labels: tuple[str, ...]
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session that somebody wants to begin; without a workspace it gets one of its own."""

    name: str = ""
    model: str = ""
    workspace: str = ""
    mode: Mode = Mode.DEFAULT
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Spending:
    """What model requests of one day used; `estimated` tells that some figure was not measured."""

    day: str
    tokens_in: int = 0
    tokens_out: int = 0
    dollars: float = 0.0
    requests: int = 0
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """One thing that was looked at, and whether it is well."""

    name: str
    standing: Literal["ok", "warn", "fail"]
    what: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class TeamSummary:
    """A team, as the configuration has it; without askers, the rules alone say who may ask."""

    name: str
    agent: str
    mode: Mode
    project: str
    description: str
    askers: tuple[str, ...] | None
    colour: str = ""


class RuleTrials(Protocol):
    """The rules in force, and verdicts without a session."""

    def rules(self) -> Sequence[RuleStatus]:
        """Return every rule in force, structural ones first."""
        ...

    def warnings(self) -> Sequence[str]:
        """Return what the reader of the rules should know about them."""
        ...

    def tools(self) -> Sequence[str]:
        """Return the names of the tools there are."""
        ...

    def try_call(self, trial: CallTrial) -> CallTrialResult:
        """Return what the rules say of a call, whatever is in it; nothing is run."""
        ...


class SessionStarter(Protocol):
    """How sessions begin and go on in this process."""

    async def begin(self, wish: NewSession, by: Who) -> Opened:
        """Open a session whose agent works here; raise a refusal that says what is wrong with the wish."""
        ...

    def attend(self, session: SessionId) -> None:
        """Let the session's agent go on here, where nobody else does."""
        ...

    def models(self) -> Sequence[str]:
        """Return the names of models that could be chosen, the usual one first."""
        ...

    def agents(self) -> Sequence[str]:
        """Return the names of agents that could be chosen, the usual one first."""
        ...


class Records(Protocol):
    """What was kept, as the web shows it."""

    def audit(self, session: SessionId, until: str) -> Iterator[Mapping[str, JsonValue]]:
        """Go back through a session's audit, from its last line that is no later than a time."""
        ...

    def spending(self, since: Millis) -> Sequence[Spending]:
        """Return what was used on each day since a time, oldest first; days without use are left out."""
        ...

    def health(self) -> Sequence[HealthFinding]:
        """Return how this house is."""
        ...

    def load(self, payload: Payload) -> JsonValue:
        """Return the value of a payload."""
        ...


class Jobs(Protocol):
    """What is done at certain times."""

    def rows(self) -> Sequence[JobRow]:
        """Return the jobs: when each is due next, and what became of its last firing."""
        ...

    def firings(self, most: int) -> Sequence[FiringRow]:
        """Return the last firings, the last first."""
        ...

    async def run(self, job: str, by: Who) -> SessionId:
        """Let a job fire now, and its session work here; raise `NotFound`."""
        ...


class TeamPairs(Protocol):
    """The teams, and who talks to them."""

    def teams(self) -> Sequence[TeamSummary]:
        """Return the teams of the configuration."""
        ...

    def pairs(self) -> Sequence[PairFigures]:
        """Return the figures of every conversation, the most active first."""
        ...

    def chain(self, pair: Pair) -> Chain | None:
        """Return a pair's conversation with those that it waits for, where it has talked."""
        ...


Revoke = Callable[[GrantId, Who], Awaitable[None]]
"""Takes a standing answer back, in whichever session or project it stands; raises `NotFound`."""


@dataclass(frozen=True, slots=True)
class WebPorts:
    """Everything that the pages are made from."""

    line: ChannelPorts
    index: Index
    board: Board
    revoke: Revoke
    judging: RuleTrials
    beginnings: SessionStarter
    records: Records
    jobs: Jobs
    pairing: TeamPairs
