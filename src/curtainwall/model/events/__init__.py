"""What happened, in the past tense; each is stored for ever and carries its time and its schema's version."""

from curtainwall.model.events.calls import (
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalJoined,
    ApprovalWithdrawn,
    BreakerEvent,
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallLost,
    CallPermitted,
    CallRequested,
    DenialsCounted,
    GrantEvent,
    GrantGiven,
    GrantRevoked,
    GrantUsed,
    LoopDetected,
)
from curtainwall.model.events.event import Group
from curtainwall.model.events.life import (
    HistoryInherited,
    HouseEvent,
    LabelsAdded,
    LifeEvent,
    ModeChanged,
    ModelChanged,
    RouteAdded,
    RouteRemoved,
    RouteSet,
    RuleDisabled,
    RuleEnabled,
    SessionClosed,
    SessionDeleted,
    SessionOpened,
    SessionReady,
    SessionRenamed,
    SettingEvent,
)
from curtainwall.model.events.turns import (
    AgentSpoke,
    InterruptAsked,
    MessageAccepted,
    MessageEvent,
    MessageWithdrawn,
    PeerAnswered,
    PeerAnswerHeld,
    PeerAnswerTaken,
    PeerEvent,
    PeerMessageSent,
    SpeechEvent,
    TextStreamed,
    TurnEnded,
    TurnEvent,
    TurnResumed,
    TurnStarted,
)
from curtainwall.model.events.work import (
    BudgetEvent,
    BudgetExhausted,
    BudgetRaised,
    BudgetWarned,
    CompactionAsked,
    CompactionSet,
    CompactionSkipped,
    ConfinedEvent,
    ContextEvent,
    ContextMeasured,
    ExtensionNoted,
    HistoryCompacted,
    InstructionsPinned,
    ModelEvent,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    ProgramEvent,
    ProgramFinished,
    ProgramSaved,
    RequestsRefused,
    SpendingCounted,
    ToolUsesReported,
    WorkEvent,
    WorkTimed,
)

__all__ = [
    "AgentSpoke",
    "AnyEvent",
    "ApprovalAnswered",
    "ApprovalAsked",
    "ApprovalEvent",
    "ApprovalExpired",
    "ApprovalJoined",
    "ApprovalWithdrawn",
    "BreakerEvent",
    "BudgetEvent",
    "BudgetExhausted",
    "BudgetRaised",
    "BudgetWarned",
    "CallDenied",
    "CallDropped",
    "CallEvent",
    "CallFinished",
    "CallLost",
    "CallPermitted",
    "CallRequested",
    "CompactionAsked",
    "CompactionSet",
    "CompactionSkipped",
    "ConfinedEvent",
    "ContextEvent",
    "ContextMeasured",
    "DenialsCounted",
    "ExtensionNoted",
    "GrantEvent",
    "GrantGiven",
    "GrantRevoked",
    "GrantUsed",
    "Group",
    "HistoryCompacted",
    "HistoryInherited",
    "HouseEvent",
    "InstructionsPinned",
    "InterruptAsked",
    "LabelsAdded",
    "LifeEvent",
    "LoopDetected",
    "MessageAccepted",
    "MessageEvent",
    "MessageWithdrawn",
    "ModeChanged",
    "ModelChanged",
    "ModelEvent",
    "ModelFailed",
    "ModelRequested",
    "ModelResponded",
    "PeerAnswerHeld",
    "PeerAnswerTaken",
    "PeerAnswered",
    "PeerEvent",
    "PeerMessageSent",
    "ProgramEvent",
    "ProgramFinished",
    "ProgramSaved",
    "Progress",
    "RequestsRefused",
    "RouteAdded",
    "RouteRemoved",
    "RouteSet",
    "RuleDisabled",
    "RuleEnabled",
    "SessionClosed",
    "SessionDeleted",
    "SessionOpened",
    "SessionReady",
    "SessionRenamed",
    "SettingEvent",
    "SpeechEvent",
    "SpendingCounted",
    "TextStreamed",
    "ToolUsesReported",
    "TurnEnded",
    "TurnEvent",
    "TurnResumed",
    "TurnStarted",
    "WorkEvent",
    "WorkTimed",
]

AnyEvent = (
    LifeEvent
    | SettingEvent
    | MessageEvent
    | TurnEvent
    | SpeechEvent
    | CallEvent
    | ApprovalEvent
    | GrantEvent
    | BreakerEvent
    | WorkEvent
    | PeerEvent
    | BudgetEvent
    | HouseEvent
    | ConfinedEvent
)
"""Every event, as the sum of its groups. A projection says which groups it reads, and names each member of them."""


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
    | RequestsRefused
    | ToolUsesReported
    | ExtensionNoted
)
"""What an agent tells of its own work, and what is seen of it; nothing here is a decision."""
