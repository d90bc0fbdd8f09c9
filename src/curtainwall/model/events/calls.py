"""The gate: what an agent wanted from outside, who was asked, and what came of it."""

from typing import Literal

from pydantic import Field

from curtainwall.model.approvals import Cover, Grant, GrantScope, LabelSource
from curtainwall.model.blobs import Payload
from curtainwall.model.events.event import Event
from curtainwall.model.ids import ApprovalId, CallId, Digest, GrantId, Millis, PermitId, TurnId
from curtainwall.model.people import Who
from curtainwall.model.subjects import Subject
from curtainwall.model.verdicts import Verdict


def _is_none(value: Who | None) -> bool:
    # What is written where nobody was asked stays as it was.
    return value is None


class CallRequested(Event):
    """An agent wants something from outside."""

    call: CallId
    subject: Subject
    turn: TurnId | None = None


class CallDenied(Event):
    """The call will not run; the verdict says because of which rules."""

    call: CallId
    verdict: Verdict


class DenialsCounted(Event):
    """Past the session's budget of logged calls, denials are counted instead of told one by one."""

    count: int


class ApprovalAsked(Event):
    """A human is asked. `covers` are the asked roles, resources and rules, all of which are shown."""

    approval: ApprovalId
    call: CallId
    digest: Digest
    covers: tuple[Cover, ...]
    shown: str
    policy: Digest
    deadline: Millis | None = None


class ApprovalJoined(Event):
    """The same subject was asked again while its approval was open."""

    approval: ApprovalId
    call: CallId


class ApprovalAnswered(Event):
    """The first valid answer settled the approval."""

    approval: ApprovalId
    granted: bool
    by: Who
    scope: GrantScope = GrantScope.ONCE
    reason: str = ""


class ApprovalExpired(Event):
    """Nobody answered in time; its calls are denied."""

    approval: ApprovalId


class ApprovalWithdrawn(Event):
    """The question no longer stands: the call is gone, or it means something else by now."""

    approval: ApprovalId
    why: str


class GrantGiven(Event):
    """An answer stands from here on, for a session or a project, or once for one exact subject."""

    grant: Grant


class GrantUsed(Event):
    """A once-only grant answered its subject and is gone."""

    grant: GrantId


class GrantRevoked(Event):
    """A standing answer was taken back."""

    grant: GrantId
    by: Who


class CallPermitted(Event):
    """Single-use proof that this exact subject may run, with the labels that running it brings."""

    call: CallId
    permit: PermitId
    digest: Digest
    verdict: Verdict
    answered_by: tuple[str, ...] = ()
    labels: tuple[LabelSource, ...] = ()
    approved_by: Who | None = Field(default=None, exclude_if=_is_none)
    """Who said yes to this very call; nobody did where a rule, a mode or an answer to other calls let it pass."""

    @property
    def is_approved_by_human(self) -> bool:
        """Tell whether a person saw this very call and said yes; only then may anything of it be trusted later on."""
        return self.approved_by is not None and self.approved_by.is_human


class CallFinished(Event):
    """The call ran; this is what came of it."""

    call: CallId
    permit: PermitId
    ok: bool
    result: Payload
    shown: Payload | None = None


class CallLost(Event):
    """The call was permitted and we do not know whether it ran; we never run it again by ourselves."""

    call: CallId


class CallDropped(Event):
    """The agent no longer waits for this call, and it never ran; it may share the outcome of the call it had joined."""

    call: CallId
    why: str
    shares: CallId | None = None


class LoopDetected(Event):
    """The breaker saw the same changing subject, or asks, too often."""

    call: CallId
    what: Literal["repeat", "ask-storm"]
    count: int


CallEvent = CallRequested | CallDenied | CallPermitted | CallFinished | CallLost | CallDropped
"""Where a call is between its request and its outcome."""

ApprovalEvent = ApprovalAsked | ApprovalJoined | ApprovalAnswered | ApprovalExpired | ApprovalWithdrawn
"""Where an approval is between the ask and its settlement."""

GrantEvent = GrantGiven | GrantUsed | GrantRevoked
"""Standing answers come and go."""

BreakerEvent = LoopDetected | DenialsCounted
"""An agent wanted too much in too short a time."""
