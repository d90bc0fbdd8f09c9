"""What is common to foreign agents wherever they run: what is heard of them, how it is told, and what the log says of their past."""

from curtainwall.agents.foreign.claude import ClaudeEar, claude_key
from curtainwall.agents.foreign.hearing import (
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
    below,
    is_ours,
    read_event,
    text_below,
    tool_words,
)
from curtainwall.agents.foreign.lines import Lines
from curtainwall.agents.foreign.past import Past
from curtainwall.agents.foreign.telling import SaidTooMuch, Telling
from curtainwall.agents.foreign.watching import USED_UP, TurnWatch

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
    "below",
    "claude_key",
    "is_ours",
    "read_event",
    "text_below",
    "tool_words",
]
