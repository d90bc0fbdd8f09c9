"""The terminal: a conversation, or one task. Importing it loads no terminal library; holding a conversation does."""

from curtainwall.channels.line import Line
from curtainwall.channels.terminal.entry import converse, leave, one_shot
from curtainwall.channels.terminal.first_ask import until_settled
from curtainwall.channels.terminal.settings import Conversing, Holding, OnAsk, Shape, Telling, wants_colour
from curtainwall.channels.terminal.signals import on_end_signal

__all__ = [
    "Conversing",
    "Holding",
    "Line",
    "OnAsk",
    "Shape",
    "Telling",
    "converse",
    "leave",
    "on_end_signal",
    "one_shot",
    "until_settled",
    "wants_colour",
]
