"""What is common to foreign agents wherever they run: what is heard of them, how it is told, and what the log says of their past."""

from curtainwall.agents.external.claude_stream import ClaudeEar, claude_key
from curtainwall.agents.external.lines import Lines
from curtainwall.agents.external.live_text import SaidTooMuch, Telling
from curtainwall.agents.external.past import Past
from curtainwall.agents.external.reports import (
    MOST_WORDS,
    SERVER,
    Does,
    Ear,
    Event,
    Failed,
    Finished,
    Heard,
    JsonEar,
    Lost,
    Named,
    Said,
    Spoke,
    Used,
    below,
    is_ours,
    read_event,
    text_below,
)
from curtainwall.agents.external.turn_watch import USED_UP, TurnWatch

__all__ = [
    "MOST_WORDS",
    "SERVER",
    "USED_UP",
    "ClaudeEar",
    "Does",
    "Ear",
    "Event",
    "Failed",
    "Finished",
    "Heard",
    "JsonEar",
    "Lines",
    "Lost",
    "Named",
    "Past",
    "Said",
    "SaidTooMuch",
    "Spoke",
    "Telling",
    "TurnWatch",
    "Used",
    "below",
    "claude_key",
    "is_ours",
    "read_event",
    "text_below",
]
