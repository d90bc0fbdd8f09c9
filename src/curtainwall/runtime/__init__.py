"""The async shell: one actor per session, the gate, the feed. Does not know any adapter."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.runtime.clock import SystemClock as SystemClock
    from curtainwall.runtime.gate.gate import SessionGate as SessionGate
    from curtainwall.runtime.no_hooks import NoHooks as NoHooks
    from curtainwall.runtime.sessions.actor import Actor as Actor
    from curtainwall.runtime.sessions.alarm import Alarm as Alarm
    from curtainwall.runtime.sessions.alarm import Deadline as Deadline
    from curtainwall.runtime.sessions.decider import RulesNow as RulesNow
    from curtainwall.runtime.sessions.feed import LogFeed as LogFeed
    from curtainwall.runtime.sessions.folds import SessionFolds as SessionFolds
    from curtainwall.runtime.sessions.journal import SessionJournal as SessionJournal
    from curtainwall.runtime.sessions.registry import SessionRegistry as SessionRegistry
    from curtainwall.runtime.sessions.stores import HomeStores as HomeStores
    from curtainwall.runtime.sessions.stores import SideStores as SideStores
    from curtainwall.runtime.sessions.stores import Stores as Stores
    from curtainwall.runtime.turns import ChangeReviews as ChangeReviews
    from curtainwall.runtime.turns import LastWords as LastWords
    from curtainwall.runtime.turns import Lifetimes as Lifetimes
    from curtainwall.runtime.turns import Turns as Turns
else:
    __getattr__ = lazy_names(__name__)
