"""The slash words, parsed and executed in one place for every text channel."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.channels.slash.control import Control, LogPlaces, SlashResult
    from curtainwall.channels.slash.lines import budget_lines, history_lines, why_lines
    from curtainwall.channels.slash.requests import Approve, Deny, Message, Request, SlashUsageError, Why
    from curtainwall.channels.slash.suggestions import Suggestion, SuggestionSource, suggest
    from curtainwall.channels.slash.words import WORDS, nearest, parse, read_budget
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "WORDS",
    "Approve",
    "Control",
    "Deny",
    "LogPlaces",
    "Message",
    "Request",
    "SlashResult",
    "SlashUsageError",
    "Suggestion",
    "SuggestionSource",
    "Why",
    "budget_lines",
    "history_lines",
    "nearest",
    "parse",
    "read_budget",
    "suggest",
    "why_lines",
]
