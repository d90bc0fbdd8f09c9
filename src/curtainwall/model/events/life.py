"""A session from its opening to its end, the settings it runs under, and the house log's record of it."""

from typing import Literal

from pydantic import Field

from curtainwall.model.approvals import LabelSource
from curtainwall.model.blobs import BlobRef
from curtainwall.model.budgets import Limits
from curtainwall.model.events.event import Event
from curtainwall.model.ids import Digest, RuleId, SessionId
from curtainwall.model.people import Route, Who
from curtainwall.model.verdicts import Mode
from curtainwall.model.workspaces import Workspace


class SessionOpened(Event):
    """A session began; holds everything that is fixed for its life and its initial settings."""

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
    """The job that this session, or the one before it, is a firing of."""
    hook: str = ""
    """The webhook that this session, or the one before it, is a delivery to."""


class SessionReady(Event):
    """The agent and the tools are ready; the session takes messages."""


def _is_empty(path: str) -> bool:
    # Most sessions have none, and their events are stored as by earlier versions.
    return not path


class HistoryInherited(Event):
    """A fork or a reset inherited its parent's history, up to an entry of the parent's log."""

    parent: SessionId
    upto: int
    history: BlobRef | None
    how: Literal["fork", "reset"]
    git_directory: str = Field(default="", exclude_if=_is_empty)
    """Where git works when a call names no path, taken over from the parent; empty for the workspace."""


class SessionRenamed(Event):
    """The session was renamed."""

    name: str
    by: Who


class SessionClosed(Event):
    """The session ended; its log and workspace remain."""

    reason: str
    by: Who


class SessionReopened(Event):
    """A closed session was reopened, with its history, its labels and its grants."""

    by: Who


class ModeChanged(Event):
    """The session was switched to another mode."""

    mode: Mode
    by: Who


class ModelChanged(Event):
    """The session was switched to another model."""

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
    """The session touched something other than by a call: an inherited history, an untrusted message."""

    labels: tuple[LabelSource, ...]


class RouteAdded(Event):
    """The session's asks are shown at this place too."""

    route: Route
    by: Who


class RouteRemoved(Event):
    """The session's asks are no longer shown at a place."""

    route: Route
    by: Who


LifeEvent = SessionOpened | SessionReady | HistoryInherited | SessionRenamed | SessionClosed | SessionReopened
"""The life of a session: opened, inherited, renamed, closed, reopened."""

SettingEvent = ModeChanged | ModelChanged | RuleDisabled | RuleEnabled | LabelsAdded | RouteAdded | RouteRemoved
"""The settings that a session runs under."""


class SessionDeleted(Event):
    """A session's log was deleted on purpose; the house remembers what it was and where it ended."""

    session: SessionId
    name: str
    entries: int
    head: str
    by: Who


class RouteSet(Event):
    """A place now leads to this session, or to none. Only in the house log."""

    route: Route
    session: SessionId | None
    by: Who


HouseEvent = SessionDeleted | RouteSet
"""Events of the house log alone."""
