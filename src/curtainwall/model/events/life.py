"""A session from its opening to its end, what it runs under, and what the log of the house keeps of it."""

from typing import Literal

from pydantic import Field

from curtainwall.model.approvals import LabelSource
from curtainwall.model.blobs import BlobRef
from curtainwall.model.budgets import Limits
from curtainwall.model.events.event import Event
from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import Digest, RuleId, SessionId
from curtainwall.model.people import Route, Who
from curtainwall.model.verdicts import Mode


class Workspace(Frozen):
    """The directory a session works in: its own, or a project that the user named. The path is real and absolute."""

    path: str
    own: bool


class SessionOpened(Event):
    """A session began, with everything that is fixed for its life or starts it off."""

    session: SessionId
    name: str
    agent: str
    model: str
    channel: str
    workspace: Workspace
    mode: Mode
    limits: Limits
    policy: Digest
    by: Who
    parent: SessionId | None = None
    team: str = ""
    job: str = ""
    """The job that it is a firing of, or that a session before it was."""
    hook: str = ""
    """The webhook that it is a delivery to, or that a session before it was."""


class SessionReady(Event):
    """Agent and tools are there; the session takes messages."""


def _is_empty(path: str) -> bool:
    # Most sessions have none, and what they write into the log stays as it was.
    return not path


class HistoryInherited(Event):
    """A fork or a reset took over what its parent knew, up to an entry of the parent's log."""

    parent: SessionId
    upto: int
    history: BlobRef | None
    how: Literal["fork", "reset"]
    git_directory: str = Field(default="", exclude_if=_is_empty)
    """Where git works from here on when a call names no path, as in the parent; empty for the workspace."""


class SessionRenamed(Event):
    """Someone gave the session another name."""

    name: str
    by: Who


class SessionClosed(Event):
    """The session ended; its log and workspace stay."""

    reason: str
    by: Who


class SessionReopened(Event):
    """A closed session is open again, with everything that it knew, had touched and was granted."""

    by: Who


class ModeChanged(Event):
    """The session runs in another mode from here on."""

    mode: Mode
    by: Who


class ModelChanged(Event):
    """The session uses another model from here on."""

    model: str
    by: Who


class RuleDisabled(Event):
    """An operator switched off the asks of one rule for this session."""

    rule: RuleId
    by: Who


class RuleEnabled(Event):
    """An operator switched the asks of a rule on again."""

    rule: RuleId
    by: Who


class LabelsAdded(Event):
    """The session touched something by another way than a call: an inherited history, an untrusted message."""

    labels: tuple[LabelSource, ...]


class RouteAdded(Event):
    """The session's asks are shown at this place too."""

    route: Route
    by: Who


class RouteRemoved(Event):
    """The session's asks are no longer shown at this place."""

    route: Route
    by: Who


LifeEvent = SessionOpened | SessionReady | HistoryInherited | SessionRenamed | SessionClosed | SessionReopened
"""A session begins, goes on from another, changes its name, ends, is opened again."""

SettingEvent = ModeChanged | ModelChanged | RuleDisabled | RuleEnabled | LabelsAdded | RouteAdded | RouteRemoved
"""What a session runs under changes."""


class SessionDeleted(Event):
    """A session's log was deleted on purpose; the house keeps what it was and where it ended."""

    session: SessionId
    name: str
    entries: int
    head: str
    by: Who


class RouteSet(Event):
    """In the house's log: from here on a place leads to this session; without one, to none."""

    route: Route
    session: SessionId | None
    by: Who


HouseEvent = SessionDeleted | RouteSet
"""What is written in the log of the house alone."""
