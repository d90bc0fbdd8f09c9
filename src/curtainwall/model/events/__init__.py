"""The events, named in the past tense; each is stored for ever and carries its time and its schema's version.

An event is declared in one of the modules here, joins a group there, and is exported by `curtainwall.model`. This file lists only groups.
"""

from curtainwall.model.events.calls import ApprovalEvent, BreakerEvent, CallEvent, GrantEvent
from curtainwall.model.events.event import Group
from curtainwall.model.events.life import HouseEvent, LifeEvent, SettingEvent
from curtainwall.model.events.turns import AgentSpoke, MessageEvent, PeerEvent, SpeechEvent, TextStreamed, TurnEvent
from curtainwall.model.events.work import (
    BudgetEvent,
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
    RequestsRefused,
    ToolUsesReported,
    WorkEvent,
    WorkTimed,
)

__all__ = [
    "AnyEvent",
    "ApprovalEvent",
    "BreakerEvent",
    "BudgetEvent",
    "CallEvent",
    "ConfinedEvent",
    "ContextEvent",
    "GrantEvent",
    "Group",
    "HouseEvent",
    "LifeEvent",
    "MessageEvent",
    "ModelEvent",
    "PeerEvent",
    "ProgramEvent",
    "Progress",
    "SettingEvent",
    "SpeechEvent",
    "TurnEvent",
    "WorkEvent",
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
"""Every event: the union of all groups. A projection declares which groups it reads, and names each of their members."""


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
"""Events of an agent's own work, reported or observed; none of them is a decision."""
