"""The terminal: a conversation, or one task. Importing it does not load the terminal library; a conversation does."""

from curtainwall.channels.ports import ChannelPorts as ChannelPorts
from curtainwall.channels.terminal.asks import wait_until_settled as wait_until_settled
from curtainwall.channels.terminal.entry import converse as converse
from curtainwall.channels.terminal.entry import leave as leave
from curtainwall.channels.terminal.entry import one_shot as one_shot
from curtainwall.channels.terminal.exit import on_end_signal as on_end_signal
from curtainwall.channels.terminal.settings import ConversationSettings as ConversationSettings
from curtainwall.channels.terminal.settings import OnAsk as OnAsk
from curtainwall.channels.terminal.settings import OneShotSettings as OneShotSettings
from curtainwall.channels.terminal.settings import OwnerWatch as OwnerWatch
from curtainwall.channels.terminal.settings import Shape as Shape
from curtainwall.channels.terminal.settings import wants_colour as wants_colour
