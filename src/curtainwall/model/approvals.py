"""Asks and their answers: approvals, grants, permits."""

from enum import StrEnum
from typing import Final

from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import CallId, Digest, GrantId, Label, Millis, RuleId
from curtainwall.model.people import Who
from curtainwall.model.subjects import Role

BY_HOOK: Final = "hook:"
"""How the rule ids begin under which hooks ask."""


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

    @property
    def left_open(self) -> str:
        """Return what of an approved call role and resource do not say, in words that follow `given`; nothing where they say it all.

        The words of a command run something else in another directory or behind other commands, the name of a tool does not say what it
        is called with, and a hook may have asked about anything in the call.
        """
        if any(rule.startswith(BY_HOOK) for rule in self.rules):
            return "for a hook's question without the call itself"
        if self.role is Role.RUN_COMMAND:
            return "for a command without its directory and limits"
        return "for a tool without its arguments" if self.role is Role.USE_TOOL else ""


class Grant(Frozen):
    """A standing answer. With a digest it answers only that exact subject; `plan` names the plan whose step that is, once.

    Without one it answers for every call that asks about the same things, except where these leave open what is approved, and for none of
    an external tool.
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
        left_open = next((cover.left_open for cover in self.covers if cover.left_open), "") if self.digest is None else ""
        return f"it was given {left_open}; approve the call again" if left_open else ""


class LabelSource(Frozen):
    """What set a label: the call and the resource it touched, or another origin in words that can follow `was set by`."""

    label: Label
    call: CallId | None = None
    origin: str = ""
