"""Matrix: rooms that lead to sessions, end-to-end encrypted, with what a homeserver could forge kept from counting."""

from curtainwall.channels.matrix.account import Account
from curtainwall.channels.matrix.channel import House, Matrix, Report, Terms
from curtainwall.channels.matrix.hearing import People
from curtainwall.channels.matrix.memory import CHANNEL
from curtainwall.channels.matrix.replies import Pace
from curtainwall.channels.matrix.rooms import RoomDoors

__all__ = ["CHANNEL", "Account", "House", "Matrix", "Pace", "People", "Report", "RoomDoors", "Terms"]
