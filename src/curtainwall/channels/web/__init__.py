"""The web: sessions and their asks in a browser, rendered here, updated by event streams, and usable without scripts."""

from curtainwall.channels.web.guard import WebAccess
from curtainwall.channels.web.live.hubs import Hubs
from curtainwall.channels.web.ports import (
    CallTrial,
    CallTrialResult,
    HealthFinding,
    Jobs,
    NewSession,
    Records,
    RuleTrials,
    SessionStarter,
    Spending,
    TeamPairs,
    TeamSummary,
    WebPorts,
)
from curtainwall.channels.web.server import web_app
from curtainwall.channels.web.sign_ins import SignIns

__all__ = [
    "CallTrial",
    "CallTrialResult",
    "HealthFinding",
    "Hubs",
    "Jobs",
    "NewSession",
    "Records",
    "RuleTrials",
    "SessionStarter",
    "SignIns",
    "Spending",
    "TeamPairs",
    "TeamSummary",
    "WebAccess",
    "WebPorts",
    "web_app",
]
