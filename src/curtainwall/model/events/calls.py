"""The gate: what an agent requested from outside, who was asked, and the outcome."""

from typing import Final, Literal

from pydantic import Field

from curtainwall.model.approvals import Cover, Grant, GrantScope, LabelSource
from curtainwall.model.blobs import Payload
from curtainwall.model.events.event import Event
from curtainwall.model.ids import ApprovalId, CallId, Digest, GrantId, Millis, PermitId, TurnId
from curtainwall.model.people import Who
from curtainwall.model.subjects import Subject
from curtainwall.model.verdicts import Verdict


def _is_none(value: object) -> bool:
    # Left out by default, so that permits without an ask are stored as by earlier versions.
    return value is None


def _is_false(value: bool) -> bool:
    return not value


class CallRequested(Event):
    """An agent requested something from outside."""

    call: CallId
    subject: Subject
    turn: TurnId | None = None


class CallDenied(Event):
    """The call will not run; the verdict names the rules."""

    call: CallId
    verdict: Verdict


class DenialsCounted(Event):
    """Denials past the session's budget of logged calls, counted instead of logged one by one."""

    count: int


class ApprovalAsked(Event):
    """A human was asked. `covers` has the asked roles, resources and rules, all of which are shown."""

    approval: ApprovalId
    call: CallId
    digest: Digest
    covers: tuple[Cover, ...]
    shown: str
    policy: Digest
    deadline: Millis | None = None


class ApprovalJoined(Event):
    """The same subject was requested again while its approval was open."""

    approval: ApprovalId
    call: CallId


class ApprovalAnswered(Event):
    """The first valid answer settled the approval."""

    approval: ApprovalId
    granted: bool
    by: Who
    scope: GrantScope = GrantScope.ONCE
    reason: str = ""
    only: tuple[str, ...] | None = Field(default=None, exclude_if=_is_none)
    """The only changes of a change set that were accepted; None for all."""
    discard: bool = Field(default=False, exclude_if=_is_false)
    """A change set was denied and is to be forgotten."""


class ApprovalExpired(Event):
    """The approval was not answered in time; its calls are denied."""

    approval: ApprovalId


class ApprovalWithdrawn(Event):
    """The question is obsolete: the call is gone, or its meaning has changed."""

    approval: ApprovalId
    why: str


class GrantGiven(Event):
    """An answer was kept, for a session, for a project, or once for one exact subject."""

    grant: Grant


class GrantUsed(Event):
    """A one-time grant was used up by its subject."""

    grant: GrantId


class GrantRevoked(Event):
    """A standing answer was revoked."""

    grant: GrantId
    by: Who


class CallPermitted(Event):
    """A single-use proof that this exact subject may run, with the labels that running it sets."""

    call: CallId
    permit: PermitId
    digest: Digest
    verdict: Verdict
    answered_by: tuple[str, ...] = ()
    labels: tuple[LabelSource, ...] = ()
    approved_by: Who | None = Field(default=None, exclude_if=_is_none)
    """Who approved this very call; None if a rule, a mode or the answer to another call permitted it."""
    only: tuple[str, ...] | None = Field(default=None, exclude_if=_is_none)
    """The only changes of a change set that may be applied; None for all."""

    @property
    def is_approved_by_human(self) -> bool:
        """Tell whether a person saw and approved this very call; only then may its content be trusted later."""
        return self.approved_by is not None and self.approved_by.is_human


NOT_KEPT: Final = "it could not be kept"
"""Stands for a result that the disk did not take; what was shown of it is in the log all the same."""


class CallFinished(Event):
    """The call ran, with this outcome."""

    call: CallId
    permit: PermitId
    ok: bool
    result: Payload
    shown: Payload | None = None

    @property
    def complete(self) -> Payload:
        """The whole result, or what was shown of it if the rest could not be kept."""
        return self.shown if self.shown is not None and self.result.inline == NOT_KEPT else self.result


class CallLost(Event):
    """The call was permitted, and whether it ran is unknown; it is never rerun automatically."""

    call: CallId


class CallDropped(Event):
    """The agent no longer waits for this call, which never ran; it may share the outcome of the call it had joined."""

    call: CallId
    why: str
    shares: CallId | None = None


class LoopDetected(Event):
    """The same subject with effects, or an ask, came up too often for the breaker."""

    call: CallId
    what: Literal["repeat", "ask-storm"]
    count: int


CallEvent = CallRequested | CallDenied | CallPermitted | CallFinished | CallLost | CallDropped
"""The life of a call from its request to its outcome."""

ApprovalEvent = ApprovalAsked | ApprovalJoined | ApprovalAnswered | ApprovalExpired | ApprovalWithdrawn
"""The life of an approval from the ask to its settlement."""

GrantEvent = GrantGiven | GrantUsed | GrantRevoked
"""The life of a standing answer."""

BreakerEvent = LoopDetected | DenialsCounted
"""An agent exceeded a rate limit."""
