"""The terminal: a conversation, or one task. Importing it does not load the terminal library; a conversation does."""

from curtainwall.channels.ports import ChannelPorts
from curtainwall.channels.terminal.asks import wait_until_settled
from curtainwall.channels.terminal.entry import converse, leave, one_shot
from curtainwall.channels.terminal.exit import on_end_signal
from curtainwall.channels.terminal.settings import ConversationSettings, OnAsk, OneShotSettings, OwnerWatch, Shape, wants_colour

__all__ = [
    "ChannelPorts",
    "ConversationSettings",
    "OnAsk",
    "OneShotSettings",
    "OwnerWatch",
    "Shape",
    "converse",
    "leave",
    "on_end_signal",
    "one_shot",
    "wait_until_settled",
    "wants_colour",
]
