"""The web: sessions and their asks in a browser, drawn here, live by event streams, and usable without scripts."""

from curtainwall.channels.web.guard import Doors
from curtainwall.channels.web.house import Beginnings, Finding, House, Judging, Records, Rule, Spending, Trial, Tried, Wish
from curtainwall.channels.web.hubs import Hubs
from curtainwall.channels.web.server import Bind, WebServer, web_app
from curtainwall.channels.web.sign_ins import SignIns

__all__ = [
    "Beginnings",
    "Bind",
    "Doors",
    "Finding",
    "House",
    "Hubs",
    "Judging",
    "Records",
    "Rule",
    "SignIns",
    "Spending",
    "Trial",
    "Tried",
    "WebServer",
    "Wish",
    "web_app",
]
