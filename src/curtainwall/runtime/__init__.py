"""The async shell: one actor per session, the gate, the feed. It knows no adapter."""

from curtainwall.runtime.actor import (
    Actor,
)
from curtainwall.runtime.alarm import (
    Alarm,
    Deadline,
)
from curtainwall.runtime.clock import (
    SystemClock,
)
from curtainwall.runtime.deciding import (
    RulesNow,
)
from curtainwall.runtime.feed import (
    LogFeed,
)
from curtainwall.runtime.gate import (
    SessionGate,
)
from curtainwall.runtime.house import (
    House,
)
from curtainwall.runtime.journal import (
    HouseJournal,
)
from curtainwall.runtime.no_hooks import (
    NoHooks,
)
from curtainwall.runtime.stores import (
    Stores,
)
from curtainwall.runtime.turns import (
    AgentOf,
    LastWords,
    Lifetimes,
    Turns,
)

__all__ = [
    "Actor",
    "AgentOf",
    "Alarm",
    "Deadline",
    "House",
    "HouseJournal",
    "LastWords",
    "Lifetimes",
    "LogFeed",
    "NoHooks",
    "RulesNow",
    "SessionGate",
    "Stores",
    "SystemClock",
    "Turns",
]
