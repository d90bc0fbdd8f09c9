"""Rows for lists and searches: projections of the log, never read by a decision."""

from collections.abc import Mapping
from typing import Literal

from curtainwall.model.approvals import Cover, Grant
from curtainwall.model.ids import ApprovalId, Digest, Millis, SessionId
from curtainwall.model.records import record

SessionStatus = Literal["opening", "ready", "working", "waiting", "closed"]

TurnEnding = Literal["done", "failed", "interrupted"]
"""How a turn ended."""


@record
class SessionRow:
    """One session in a list."""

    session: SessionId
    name: str
    agent: str
    model: str
    channel: str
    status: SessionStatus
    mode: str
    workspace: str
    own_workspace: bool
    created: Millis
    changed: Millis
    turns: int
    pending: int
    labels: tuple[str, ...]
    parent: SessionId | None
    ending: TurnEnding = "done"
    """How the last turn ended, unless something happened after it."""

    @property
    def stands(self) -> str:
        """The session's state in one word: its status, unless it is ready only because its last turn failed or was interrupted."""
        return self.ending if self.status == "ready" and self.ending != "done" else self.status


@record
class ApprovalRow:
    """One approval in a list, open or settled."""

    approval: ApprovalId
    session: SessionId
    tool: str
    shown: str
    covers: tuple[Cover, ...]
    digest: Digest
    asked: Millis
    deadline: Millis | None
    status: Literal["open", "granted", "denied", "expired", "withdrawn"]
    settled: Millis | None
    settled_by: str
    reason: str


@record
class GrantRow:
    """One standing answer in a list, with the stream that holds it."""

    grant: Grant
    stream: str
    revoked: Millis | None


@record
class ShownAt:
    """A place where asks are shown; without a reference, anywhere on the channel."""

    channel: str
    reference: str | None = None


@record
class SessionQuery:
    """Which sessions to list, newest first; with `by_activity`, those that changed last come first."""

    status: SessionStatus | None = None
    agent: str | None = None
    channel: str | None = None
    since: Millis | None = None
    before: Millis | None = None
    prefix: str | None = None
    text: str | None = None
    workspace: str | None = None
    """Only those that work in exactly this directory."""
    labels_beyond: frozenset[str] | None = None
    """Only those with a label other than these."""
    without_agent: str | None = None
    """Leave out the sessions of an agent, unless they have an open ask."""
    shown_at: ShownAt | None = None
    """Only those whose asks are shown at this place."""
    by_activity: bool = False
    limit: int = 50


@record
class ApprovalQuery:
    """Which approvals to list, newest first."""

    session: SessionId | None = None
    approval: ApprovalId | None = None
    shown_at: ShownAt | None = None
    open_only: bool = True
    with_deadline: bool = False
    """Only those with a deadline."""
    limit: int | None = 200
    """How many at most; None for all of them."""
    brief: bool = False
    """Leave out the shown text and the covered resources, which take longest to read."""


@record
class Tally:
    """The number of sessions and approvals in each state."""

    sessions: Mapping[str, int]
    asks: Mapping[str, int]
    oldest_ask: Millis | None
    """When the open ask that waits longest was asked."""
