"""The way to the network for agents that are not ours: a proxy per session where keys are put in, and budgets and endpoints hold."""

from curtainwall.egress.authority import Authority
from curtainwall.egress.client import Counters
from curtainwall.egress.proxy import Egress, SessionProxy, Terms
from curtainwall.egress.refusal import Dialect
from curtainwall.egress.refusals import Refusal, Report
from curtainwall.egress.terms import (
    Bounds,
    Counted,
    Decide,
    Ended,
    Ending,
    Handling,
    Judge,
    Meter,
    ModelCall,
    Reach,
    ReachKind,
    Ruling,
    Unmetered,
    no_tunnels,
    remove_what_can_be,
)
from curtainwall.egress.upstream.providers import ANTHROPIC, BEARER, GEMINI, OPENAI, Carrier, Endpoint, Provider, openai_compatible
from curtainwall.egress.upstream.sentinels import Access, Refreshing, mint

__all__ = [
    "ANTHROPIC",
    "BEARER",
    "GEMINI",
    "OPENAI",
    "Access",
    "Authority",
    "Bounds",
    "Carrier",
    "Counted",
    "Counters",
    "Decide",
    "Dialect",
    "Egress",
    "Ended",
    "Ending",
    "Endpoint",
    "Handling",
    "Judge",
    "Meter",
    "ModelCall",
    "Provider",
    "Reach",
    "ReachKind",
    "Refreshing",
    "Refusal",
    "Report",
    "Ruling",
    "SessionProxy",
    "Terms",
    "Unmetered",
    "mint",
    "no_tunnels",
    "openai_compatible",
    "remove_what_can_be",
]
