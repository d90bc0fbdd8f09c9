"""What happened, in the past tense; each is stored for ever and carries its time and its schema's version."""

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Literal

from pydantic import JsonValue, NonNegativeFloat

from curtainwall.model.approvals import Cover, Grant, GrantScope, LabelSource
from curtainwall.model.blobs import BlobRef, Payload
from curtainwall.model.budgets import BudgetKind, Limits, Usage
from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import ApprovalId, CallId, Digest, GrantId, MessageId, Millis, PermitId, RuleId, SessionId, TurnId
from curtainwall.model.peers import Peer, PeerAnswer
from curtainwall.model.people import Route, Who
from curtainwall.model.subjects import Subject
from curtainwall.model.verdicts import Mode, Verdict


class Event(Frozen):
    """The common part of everything that happened."""

    VERSION: ClassVar[int] = 1
    at: Millis


class Workspace(Frozen):
    """The directory a session works in: its own, or a project that the user named. The path is real and absolute."""

    path: str
    own: bool


class SavedProgram(Frozen):
    """A program of the agent's that waits inside a call. Later steps stand for later places in the same program."""

    program: str
    step: int
    state: Payload


# The life of a session


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


class HistoryInherited(Event):
    """A fork or a reset took over what its parent knew, up to an entry of the parent's log."""

    parent: SessionId
    upto: int
    history: BlobRef | None
    how: Literal["fork", "reset"]


class SessionRenamed(Event):
    """Someone gave the session another name."""

    name: str
    by: Who


class SessionClosed(Event):
    """The session ended; its log and workspace stay."""

    reason: str
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


# Turns


class TurnStatus(StrEnum):
    """How a turn ended."""

    DONE = "done"
    WAITING = "waiting"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class MessageAccepted(Event):
    """A channel took a message; it is queued durably and in order."""

    message: MessageId
    text: str
    by: Who
    role: Literal["human", "context"] = "human"
    peer: Peer | None = None
    expires: Millis | None = None


class TurnStarted(Event):
    """The agent took up messages from the queue."""

    turn: TurnId
    messages: tuple[MessageId, ...]


class TurnResumed(Event):
    """A turn that waited goes on."""

    turn: TurnId


class TextStreamed(Event):
    """About a second of the agent's text, kept so that neither an interrupt nor a crash loses what was shown."""

    turn: TurnId
    text: str


class AgentSpoke(Event):
    """The agent's whole message; for the model it replaces the streamed pieces."""

    turn: TurnId
    text: str
    ours: bool = False
    """It is a note of ours about the agent, and no answer of its own."""


class TurnEnded(Event):
    """The agent stopped: done, waiting for an answer, interrupted or failed."""

    turn: TurnId
    status: TurnStatus
    failure: str = ""
    fault: str = ""
    """The name of what went wrong, for programs; `failure` has it in words."""
    waits_for: tuple[CallId, ...] = ()


class InterruptAsked(Event):
    """Someone wants the running turn to stop."""

    turn: TurnId
    by: Who


class MessageWithdrawn(Event):
    """A message that still waited in the queue was taken back."""

    message: MessageId
    by: Who


class ProgramSaved(Event):
    """A program of the agent's as it stood when it made this call; written together with the ask or the permit."""

    turn: TurnId
    call: CallId
    program: SavedProgram


class ProgramFinished(Event):
    """A program of the agent's came to its end; `shown` is what the model is told."""

    turn: TurnId
    program: str
    ok: bool
    shown: Payload


class ModelRequested(Event):
    """A request went to a provider: the request before it, plus what was added."""

    turn: TurnId
    request: str
    base: str | None
    added: Payload
    model: str
    purpose: Literal["turn", "summary"] = "turn"


class ModelResponded(Event):
    """What came back, raw and normalised."""

    turn: TurnId
    request: str
    raw: Payload
    normalised: Payload
    usage: Usage
    stop_reason: str = ""


class ModelFailed(Event):
    """A request came to nothing, or to a part; the failure says why. What it used all the same is at best an estimate."""

    turn: TurnId
    request: str
    failure: str
    usage: Usage = Usage()


class InstructionsPinned(Event):
    """What a workspace tells agents, as it stood when it was read; the agent goes by this, whatever becomes of the file."""

    path: str
    digest: Digest
    text: Payload


class ContextMeasured(Event):
    """How full the model's context is."""

    used: int
    size: int
    measured: bool


class CompactionAsked(Event):
    """Someone wants older messages to be replaced by a summary."""

    instructions: str
    by: Who


class CompactionSkipped(Event):
    """No summary came about; the history is as it was."""

    why: str


class CompactionSet(Event):
    """From here on, history is compacted when this share of the context is used; without one, never by itself."""

    threshold: float | None
    by: Who


class HistoryCompacted(Event):
    """Older messages were replaced, for the model, by a summary; the log keeps them."""

    trigger: Literal["threshold", "asked", "overflow"]
    before: int
    after: int
    upto: int
    summary: Payload


# The gate


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


# Messages between teams


class PeerMessageSent(Event):
    """A message left for another team's session; written together with the row in that one's inbox."""

    message: MessageId
    to: SessionId
    team: str
    text: str
    peer: Peer
    labels: tuple[LabelSource, ...] = ()
    expires: Millis | None = None


class PeerAnswered(Event):
    """The answer to a team's message left for the session that had sent it; written together with the row in that one's inbox."""

    peer: Peer
    answer: PeerAnswer


class PeerAnswerHeld(Event):
    """An answer is ready and waits for a yes before it leaves."""

    answer: PeerAnswer


class PeerAnswerTaken(Event):
    """The answer to a message of this session came, with the labels of what it was written from and what it cost."""

    team: str
    answer: PeerAnswer


# Budgets and the rest


class BudgetWarned(Event):
    """Most of a budget is used up."""

    kind: BudgetKind
    used: float
    limit: float


class BudgetExhausted(Event):
    """A budget is used up; the session parks."""

    kind: BudgetKind
    used: float
    limit: float


class BudgetRaised(Event):
    """Someone allowed more."""

    kind: BudgetKind
    limit: float
    by: Who


class WorkTimed(Event):
    """Seconds of work that count against the budget."""

    seconds: NonNegativeFloat


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


class LoopDetected(Event):
    """The breaker saw the same changing subject, or asks, too often."""

    call: CallId
    what: Literal["repeat", "ask-storm"]
    count: int


class ExtensionNoted(Event):
    """Something that an extension wrote; whoever does not know it may ignore it."""

    extension: str
    data: Mapping[str, JsonValue]


AnyEvent = (
    SessionOpened
    | SessionReady
    | HistoryInherited
    | SessionRenamed
    | SessionClosed
    | ModeChanged
    | ModelChanged
    | RuleDisabled
    | RuleEnabled
    | LabelsAdded
    | RouteAdded
    | RouteRemoved
    | MessageAccepted
    | TurnStarted
    | TurnResumed
    | TextStreamed
    | AgentSpoke
    | TurnEnded
    | InterruptAsked
    | MessageWithdrawn
    | ProgramSaved
    | ProgramFinished
    | ModelRequested
    | ModelResponded
    | ModelFailed
    | InstructionsPinned
    | ContextMeasured
    | CompactionAsked
    | CompactionSkipped
    | CompactionSet
    | HistoryCompacted
    | CallRequested
    | CallDenied
    | DenialsCounted
    | ApprovalAsked
    | ApprovalJoined
    | ApprovalAnswered
    | ApprovalExpired
    | ApprovalWithdrawn
    | GrantGiven
    | GrantUsed
    | GrantRevoked
    | CallPermitted
    | CallFinished
    | CallLost
    | CallDropped
    | PeerMessageSent
    | PeerAnswered
    | PeerAnswerHeld
    | PeerAnswerTaken
    | BudgetWarned
    | BudgetExhausted
    | BudgetRaised
    | WorkTimed
    | SessionDeleted
    | RouteSet
    | LoopDetected
    | ExtensionNoted
)

Progress = (
    TextStreamed
    | AgentSpoke
    | ModelRequested
    | ModelResponded
    | ModelFailed
    | ProgramFinished
    | InstructionsPinned
    | ContextMeasured
    | CompactionSkipped
    | HistoryCompacted
    | WorkTimed
    | ExtensionNoted
)
"""What an agent tells of its own work; nothing here is a decision."""
