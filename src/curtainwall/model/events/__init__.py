"""What happened, in the past tense; each is stored for ever and carries its time and its schema's version."""

from curtainwall.model.events.budgets import BudgetExhausted, BudgetRaised, BudgetWarned, SpendingCounted, WorkTimed
from curtainwall.model.events.calls import (
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalExpired,
    ApprovalJoined,
    ApprovalWithdrawn,
    CallDenied,
    CallDropped,
    CallFinished,
    CallLost,
    CallPermitted,
    CallRequested,
    DenialsCounted,
    GrantGiven,
    GrantRevoked,
    GrantUsed,
    LoopDetected,
)
from curtainwall.model.events.house import RouteSet, SessionDeleted
from curtainwall.model.events.life import (
    HistoryInherited,
    LabelsAdded,
    ModeChanged,
    ModelChanged,
    RouteAdded,
    RouteRemoved,
    RuleDisabled,
    RuleEnabled,
    SessionClosed,
    SessionOpened,
    SessionReady,
    SessionRenamed,
)
from curtainwall.model.events.peers import PeerAnswered, PeerAnswerHeld, PeerAnswerTaken, PeerMessageSent
from curtainwall.model.events.turns import (
    AgentSpoke,
    InterruptAsked,
    MessageAccepted,
    MessageWithdrawn,
    TextStreamed,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from curtainwall.model.events.work import (
    CompactionAsked,
    CompactionSet,
    CompactionSkipped,
    ContextMeasured,
    ExtensionNoted,
    HistoryCompacted,
    InstructionsPinned,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    ProgramFinished,
    ProgramSaved,
)

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
    | SpendingCounted
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
