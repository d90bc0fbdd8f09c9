"""Matrix: rooms that lead to sessions, end-to-end encrypted; nothing that a homeserver could forge counts."""

from curtainwall.channels.matrix.channel import MatrixChannel, MatrixPorts, MatrixSettings
from curtainwall.channels.matrix.homeserver import Account, LoginRefused
from curtainwall.channels.matrix.inbox import People, RoomRouter
from curtainwall.channels.matrix.memory import CHANNEL, Memory
from curtainwall.channels.matrix.replies import ReplyPace
from curtainwall.channels.matrix.rooms import MatrixReport

__all__ = [
    "CHANNEL",
    "Account",
    "LoginRefused",
    "MatrixChannel",
    "MatrixPorts",
    "MatrixReport",
    "MatrixSettings",
    "Memory",
    "People",
    "ReplyPace",
    "RoomRouter",
]
