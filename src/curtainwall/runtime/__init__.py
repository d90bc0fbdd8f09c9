"""The async shell: one actor per session, the gate, the feed. It knows no adapter."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.runtime.clock import SystemClock
    from curtainwall.runtime.gate.gate import SessionGate
    from curtainwall.runtime.no_hooks import NoHooks
    from curtainwall.runtime.sessions.actor import Actor, HomeStores, SideStores, Stores
    from curtainwall.runtime.sessions.alarm import Alarm, Deadline
    from curtainwall.runtime.sessions.decider import RulesNow
    from curtainwall.runtime.sessions.feed import LogFeed
    from curtainwall.runtime.sessions.journal import SessionJournal
    from curtainwall.runtime.sessions.registry import SessionRegistry
    from curtainwall.runtime.turns import AgentOf, LastWords, Lifetimes, Turns
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "Actor",
    "AgentOf",
    "Alarm",
    "Deadline",
    "HomeStores",
    "LastWords",
    "Lifetimes",
    "LogFeed",
    "NoHooks",
    "RulesNow",
    "SessionGate",
    "SessionJournal",
    "SessionRegistry",
    "SideStores",
    "Stores",
    "SystemClock",
    "Turns",
]
