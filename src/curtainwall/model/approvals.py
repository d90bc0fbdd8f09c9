"""Asks and their answers: approvals, grants, permits."""

from enum import StrEnum

from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import CallId, Digest, GrantId, Label, Millis, RuleId
from curtainwall.model.people import Who
from curtainwall.model.subjects import Role, is_external


class GrantScope(StrEnum):
    """How far an answer reaches."""

    ONCE = "once"
    SESSION = "session"
    PROJECT = "project"


class Settlement(StrEnum):
    """The four ends of an approval."""

    GRANTED = "granted"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


class Cover(Frozen):
    """One asked role on one resource, and the rules that asked: all of them were shown to the human."""

    role: Role
    value: str
    rules: tuple[RuleId, ...]


class Grant(Frozen):
    """A standing answer. With a digest it answers only that exact subject; `plan` names the plan whose step that is, once.

    Without one it answers for every call that asks about the same things, and for none of an external tool.
    """

    id: GrantId
    scope: GrantScope
    covers: tuple[Cover, ...]
    by: Who
    at: Millis
    digest: Digest | None = None
    plan: GrantId | None = None

    @property
    def lapsed(self) -> str:
        """Return why the grant answers nothing any more, in words that can follow a colon; nothing where it answers."""
        is_whole_tool = self.digest is None and any(cover.role is Role.USE_TOOL and is_external(cover.value) for cover in self.covers)
        return "it was given for a tool without its arguments; approve the call again" if is_whole_tool else ""


class LabelSource(Frozen):
    """What set a label: the call and the resource it touched, or another origin in words that can follow `was set by`."""

    label: Label
    call: CallId | None = None
    origin: str = ""
