"""Matrix: rooms that lead to sessions, end-to-end encrypted, with what a homeserver could forge kept from counting."""

from curtainwall.channels.matrix.account import Account, NotLetIn
from curtainwall.channels.matrix.channel import House, Matrix, Terms
from curtainwall.channels.matrix.inbox import Doors, People
from curtainwall.channels.matrix.left import Report
from curtainwall.channels.matrix.memory import CHANNEL, Memory
from curtainwall.channels.matrix.replies import Pace

__all__ = ["CHANNEL", "Account", "Doors", "House", "Matrix", "Memory", "NotLetIn", "Pace", "People", "Report", "Terms"]
