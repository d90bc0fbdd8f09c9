"""The slash words, parsed and executed in one place for every text channel."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.channels.slash.control import Control as Control
    from curtainwall.channels.slash.control import LogPlaces as LogPlaces
    from curtainwall.channels.slash.control import SlashResult as SlashResult
    from curtainwall.channels.slash.lines import budget_lines as budget_lines
    from curtainwall.channels.slash.lines import history_lines as history_lines
    from curtainwall.channels.slash.lines import why_lines as why_lines
    from curtainwall.channels.slash.requests import Approve as Approve
    from curtainwall.channels.slash.requests import Deny as Deny
    from curtainwall.channels.slash.requests import Message as Message
    from curtainwall.channels.slash.requests import Request as Request
    from curtainwall.channels.slash.requests import SlashUsageError as SlashUsageError
    from curtainwall.channels.slash.requests import Why as Why
    from curtainwall.channels.slash.suggestions import Suggestion as Suggestion
    from curtainwall.channels.slash.suggestions import SuggestionSource as SuggestionSource
    from curtainwall.channels.slash.suggestions import suggest as suggest
    from curtainwall.channels.slash.words import WORDS as WORDS
    from curtainwall.channels.slash.words import nearest as nearest
    from curtainwall.channels.slash.words import parse as parse
    from curtainwall.channels.slash.words import read_budget as read_budget
else:
    __getattr__ = lazy_names(__name__)
