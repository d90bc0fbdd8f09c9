"""The async shell: one actor per session, the gate, the feed. Does not know any adapter."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.runtime.clock import SystemClock
    from curtainwall.runtime.gate.gate import SessionGate
    from curtainwall.runtime.no_hooks import NoHooks
    from curtainwall.runtime.sessions.actor import Actor
    from curtainwall.runtime.sessions.alarm import Alarm, Deadline
    from curtainwall.runtime.sessions.decider import RulesNow
    from curtainwall.runtime.sessions.feed import LogFeed
    from curtainwall.runtime.sessions.folds import SessionFolds
    from curtainwall.runtime.sessions.journal import SessionJournal
    from curtainwall.runtime.sessions.registry import SessionRegistry
    from curtainwall.runtime.sessions.stores import HomeStores, SideStores, Stores
    from curtainwall.runtime.turns import LastWords, Lifetimes, Turns
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "Actor",
    "Alarm",
    "Deadline",
    "HomeStores",
    "LastWords",
    "Lifetimes",
    "LogFeed",
    "NoHooks",
    "RulesNow",
    "SessionFolds",
    "SessionGate",
    "SessionJournal",
    "SessionRegistry",
    "SideStores",
    "Stores",
    "SystemClock",
    "Turns",
]
