"""Asks and their answers: approvals, grants, permits."""

from enum import StrEnum
from typing import Final

from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import CallId, Digest, GrantId, Label, Millis, RuleId
from curtainwall.model.people import Who
from curtainwall.model.subjects import Role

BY_HOOK: Final = "hook:"
"""The prefix of the rule ids of hooks that ask."""


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
    """One asked role on one resource, and the rules that asked; the human was shown all of them."""

    role: Role
    value: str
    rules: tuple[RuleId, ...]

    @property
    def left_open(self) -> str:
        """Return what the role and the resource leave unsaid about an approved call, in words that follow `given`; "" if nothing.

        The same command runs something else in another directory or after other commands, a tool's name does not include its arguments,
        and a hook may have asked about anything in the call.
        """
        if any(rule.startswith(BY_HOOK) for rule in self.rules):
            return "for a hook's question without the call itself"
        if self.role is Role.RUN_COMMAND:
            return "for a command without its directory and limits"
        return "for a tool without its arguments" if self.role is Role.USE_TOOL else ""


class Grant(Frozen):
    """A standing answer. With a digest it covers only that exact subject; with `plan`, one step of that plan, once.

    Without a digest it covers every call that asks about the same things, unless these leave open what is approved, but no call of an
    external tool.
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
        """Return why the grant no longer covers any call, in words that can follow a colon; "" if it still does."""
        left_open = next((cover.left_open for cover in self.covers if cover.left_open), "") if self.digest is None else ""
        return f"it was given {left_open}; approve the call again" if left_open else ""


class LabelSource(Frozen):
    """The origin of a label: the call and the resource it touched, or words that can follow `was set by`."""

    label: Label
    call: CallId | None = None
    origin: str = ""
