"""Matrix: rooms that lead to sessions, end-to-end encrypted; nothing that a homeserver could forge counts."""

from curtainwall.channels.matrix.channel import MatrixChannel as MatrixChannel
from curtainwall.channels.matrix.channel import MatrixPorts as MatrixPorts
from curtainwall.channels.matrix.channel import MatrixSettings as MatrixSettings
from curtainwall.channels.matrix.homeserver import Account as Account
from curtainwall.channels.matrix.homeserver import LoginRefused as LoginRefused
from curtainwall.channels.matrix.inbox import People as People
from curtainwall.channels.matrix.inbox import RoomRouter as RoomRouter
from curtainwall.channels.matrix.memory import CHANNEL as CHANNEL
from curtainwall.channels.matrix.memory import Memory as Memory
from curtainwall.channels.matrix.replies import ReplyPace as ReplyPace
from curtainwall.channels.matrix.rooms import MatrixReport as MatrixReport
