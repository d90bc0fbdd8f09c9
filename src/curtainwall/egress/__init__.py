"""Network access for external agents: a proxy per session that inserts keys and enforces budgets and allowed endpoints."""

from curtainwall.egress.authority import Authority
from curtainwall.egress.client import ProxyCounters
from curtainwall.egress.ports import (
    CountedUsage,
    Decide,
    EgressBounds,
    Ending,
    Handling,
    HostDecision,
    Judge,
    Meter,
    ModelCall,
    ModelCallEnd,
    ProviderAction,
    ProviderActionKind,
    Unmetered,
    no_tunnels,
    remove_actions,
)
from curtainwall.egress.proxy import Egress, ProxyConfig, SessionProxy
from curtainwall.egress.refusals import Dialect, Refusal, Report
from curtainwall.egress.upstream.providers import ANTHROPIC, BEARER, GEMINI, OPENAI, Carrier, Provider, ProviderEndpoint, openai_compatible
from curtainwall.egress.upstream.sentinels import Access, Refreshing, mint

__all__ = [
    "ANTHROPIC",
    "BEARER",
    "GEMINI",
    "OPENAI",
    "Access",
    "Authority",
    "Carrier",
    "CountedUsage",
    "Decide",
    "Dialect",
    "Egress",
    "EgressBounds",
    "Ending",
    "Handling",
    "HostDecision",
    "Judge",
    "Meter",
    "ModelCall",
    "ModelCallEnd",
    "Provider",
    "ProviderAction",
    "ProviderActionKind",
    "ProviderEndpoint",
    "ProxyConfig",
    "ProxyCounters",
    "Refreshing",
    "Refusal",
    "Report",
    "SessionProxy",
    "Unmetered",
    "mint",
    "no_tunnels",
    "openai_compatible",
    "remove_actions",
]
