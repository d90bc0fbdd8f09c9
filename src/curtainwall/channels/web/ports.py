"""The ports of the pages besides those of a channel: lists, rules to try, new sessions, and records."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Literal, Protocol

from pydantic import JsonValue

from curtainwall.channels.asks.board import Board
from curtainwall.channels.cron import FiringRow, JobRow
from curtainwall.channels.ports import ChannelPorts
from curtainwall.model import DecidingRule, GrantId, Index, Millis, Mode, Opened, Payload, RuleStatus, SessionId, Who, record
from curtainwall.teams.chains import Chain
from curtainwall.teams.pairs import Pair, PairFigures


@record
class CallTrial:
    """A call to try against the rules, and the session imagined around it."""

    tool: str
    arguments: str
    project: str = ""
    mode: Mode = Mode.DEFAULT
    labels: tuple[str, ...] = ()


@record
class CallTrialResult:
    """The verdict of the rules about a call, in words."""

    effect: str
    reason: str
    resources: tuple[tuple[str, str], ...]
    rules: tuple[DecidingRule, ...]
    facts: tuple[str, ...]
    labels: tuple[str, ...]
    changes: tuple[str, ...]


@record
class NewSession:
    """A session to start; without a workspace it gets its own."""

    name: str = ""
    model: str = ""
    workspace: str = ""
    mode: Mode = Mode.DEFAULT
    agent: str = ""


@record
class Spending:
    """The usage of one day's model requests; `estimated` means that some figure was not measured."""

    day: str
    tokens_in: int = 0
    tokens_out: int = 0
    dollars: float = 0.0
    requests: int = 0
    estimated: bool = False


@record
class HealthFinding:
    """One health check and its result."""

    name: str
    standing: Literal["ok", "warn", "fail"]
    what: str
    todo: str = ""


@record
class TeamSummary:
    """A team as configured; without askers, only the rules decide who may ask."""

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
        """Return warnings about the rules for their readers."""
        ...

    def tools(self) -> Sequence[str]:
        """Return the names of all tools."""
        ...

    def try_call(self, trial: CallTrial) -> CallTrialResult:
        """Return what the rules say about a call, whatever it contains; nothing is run."""
        ...


class SessionStarter(Protocol):
    """Starts and continues sessions in this process."""

    async def begin(self, request: NewSession, by: Who) -> Opened:
        """Open a session whose agent works here; raise a refusal that says what is wrong with the request."""
        ...

    def attend(self, session: SessionId) -> None:
        """Let the session's agent continue here, unless another process already runs it."""
        ...

    def models(self) -> Sequence[str]:
        """Return the models to choose from, the default first."""
        ...

    def agents(self) -> Sequence[str]:
        """Return the agents to choose from, the default first."""
        ...

    def mode(self) -> Mode:
        """Return the mode that is chosen unless somebody says otherwise."""
        ...


class Records(Protocol):
    """Stored records, as the web shows them."""

    def audit(self, session: SessionId, until: str) -> Iterator[Mapping[str, JsonValue]]:
        """Yield a session's audit backwards, from its last line that is not later than a time."""
        ...

    def spending(self, since: Millis) -> Sequence[Spending]:
        """Return the usage of each day since a time, oldest first; days without usage are left out."""
        ...

    def health(self) -> Sequence[HealthFinding]:
        """Return the health checks."""
        ...

    def load(self, payload: Payload) -> JsonValue:
        """Return the value of a payload."""
        ...


class Jobs(Protocol):
    """The scheduled jobs."""

    def rows(self) -> Sequence[JobRow]:
        """Return the jobs: when each is due next, and what happened to its last firing."""
        ...

    def firings(self, most: int) -> Sequence[FiringRow]:
        """Return the latest firings, newest first."""
        ...

    async def run(self, job: str, by: Who) -> SessionId:
        """Fire a job now, with its session working here; raise `NotFound`."""
        ...


class TeamPairs(Protocol):
    """The teams, and who talks to them."""

    def teams(self) -> Sequence[TeamSummary]:
        """Return the configured teams."""
        ...

    def pairs(self) -> Sequence[PairFigures]:
        """Return the figures of every conversation, the most active first."""
        ...

    def chain(self, pair: Pair) -> Chain | None:
        """Return a pair's conversation with those that it waits for, if it has any messages."""
        ...


Revoke = Callable[[GrantId, Who], Awaitable[None]]
"""Revokes a standing approval, in whichever session or project it was given; raises `NotFound`."""


@record
class WebPorts:
    """Everything that the pages are made from."""

    line: ChannelPorts
    index: Index
    board: Board
    revoke: Revoke
    trials: RuleTrials
    starter: SessionStarter
    records: Records
    jobs: Jobs
    teams: TeamPairs
