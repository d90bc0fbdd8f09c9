"""The events, named in the past tense; each is stored for ever and carries its time and its schema's version.

An event is declared in one of the modules here, joins a group there, and is exported by `curtainwall.model`. This file lists only groups.
"""

from curtainwall.model.events.calls import ApprovalEvent as ApprovalEvent
from curtainwall.model.events.calls import BreakerEvent as BreakerEvent
from curtainwall.model.events.calls import CallEvent as CallEvent
from curtainwall.model.events.calls import GrantEvent as GrantEvent
from curtainwall.model.events.event import Group as Group
from curtainwall.model.events.life import HouseEvent as HouseEvent
from curtainwall.model.events.life import LifeEvent as LifeEvent
from curtainwall.model.events.life import SettingEvent as SettingEvent
from curtainwall.model.events.turns import AgentSpoke, TextStreamed
from curtainwall.model.events.turns import MessageEvent as MessageEvent
from curtainwall.model.events.turns import PeerEvent as PeerEvent
from curtainwall.model.events.turns import SpeechEvent as SpeechEvent
from curtainwall.model.events.turns import TurnEvent as TurnEvent
from curtainwall.model.events.work import BudgetEvent as BudgetEvent
from curtainwall.model.events.work import (
    CompactionSkipped,
    ContextMeasured,
    ExtensionNoted,
    HistoryCompacted,
    InstructionsPinned,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    ProgramFinished,
    RequestsRefused,
    ToolUsesReported,
    WorkTimed,
)
from curtainwall.model.events.work import ConfinedEvent as ConfinedEvent
from curtainwall.model.events.work import ContextEvent as ContextEvent
from curtainwall.model.events.work import ModelEvent as ModelEvent
from curtainwall.model.events.work import ProgramEvent as ProgramEvent
from curtainwall.model.events.work import WorkEvent as WorkEvent

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
