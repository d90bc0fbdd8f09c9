"""Completions for the input line: the slash words, and the arguments that each accepts at the moment."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from curtainwall.channels.asks.cards import call_in_words
from curtainwall.channels.plain import plain_line, short
from curtainwall.channels.slash.lines import MODES, reach_in_words
from curtainwall.channels.slash.words import WORDS
from curtainwall.model import GrantScope, SessionRow, SessionView, record


@record
class Suggestion:
    """A word that could replace the last `length` characters, and its meaning."""

    text: str
    length: int
    meaning: str = ""


@record
class SuggestionSource:
    """The sources of suggestions; each is queried only when a word needs it."""

    view: Callable[[], SessionView]
    sessions: Callable[[], Sequence[SessionRow]]


def suggest(before: str, source: SuggestionSource) -> Iterator[Suggestion]:
    """Yield completions for the text before the cursor; only a line that starts with a slash word has any."""
    if not before.startswith("/") or before.startswith("//") or "\n" in before:
        return
    name, space, rest = before[1:].partition(" ")
    if not space:
        for word in WORDS.values():
            if word.name.startswith(name.casefold()):
                yield Suggestion(f"/{word.name}", len(before), word.does)
        return
    start, _, last = rest.rpartition(" ")
    for text, meaning in _arguments_for(name.casefold(), start.split(), source):
        if text.casefold().startswith(last.casefold()) and text.casefold() != last.casefold():
            yield Suggestion(text, len(last), meaning)


def _arguments_for(name: str, before: list[str], source: SuggestionSource) -> Iterable[tuple[str, str]]:
    match name, len(before):
        case "help", 0:
            return [(word.name, word.does) for word in WORDS.values()]
        case "mode", 0:
            return [(mode.value, meaning) for mode, meaning in MODES.items()]
        case (("approve" | "deny" | "pending" | "why"), 0):
            return [(str(ask.approval), call_in_words(ask.subject, 60)) for ask in source.view().pending]
        case "approve", 1:
            return [(scope.value, "") for scope in GrantScope]
        case "disable", 0:
            view = source.view()
            return [(plain_line(rule), "asks now") for ask in view.pending for rule in ask.because if rule not in view.disabled]
        case "enable", 0:
            return [(plain_line(rule), "disabled") for rule in source.view().disabled]
        case "revoke", 0:
            return [(str(grant.id), reach_in_words(grant)) for grant in source.view().grants]
        case "budget", 0:
            return [("tokens", "as 2m"), ("steps", "as 400"), ("seconds", "as 4h"), ("dollars", "as 10")]
        case "compact", 0:
            return [("at", "a share of the context, as 70%"), ("off", "never by itself")]
        case "resume", 0:
            return [(str(row.session), short(row.name, 60)) for row in source.sessions()]
        case _:
            return []
