"""The web: sessions and their asks in a browser, drawn here, live by event streams, and usable without scripts."""

from curtainwall.channels.web.guard import Doors
from curtainwall.channels.web.house import (
    Beginnings,
    Finding,
    House,
    Jobs,
    Judging,
    Pairing,
    Records,
    Spending,
    TeamTold,
    Trial,
    Tried,
    Wish,
)
from curtainwall.channels.web.live.hubs import Hubs
from curtainwall.channels.web.server import web_app
from curtainwall.channels.web.sign_ins import SignIns

__all__ = [
    "Beginnings",
    "Doors",
    "Finding",
    "House",
    "Hubs",
    "Jobs",
    "Judging",
    "Pairing",
    "Records",
    "SignIns",
    "Spending",
    "TeamTold",
    "Trial",
    "Tried",
    "Wish",
    "web_app",
]
