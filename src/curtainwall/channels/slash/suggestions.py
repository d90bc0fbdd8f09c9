"""What somebody may want to write next: the slash words, and what each of them takes here and now."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from curtainwall.channels.asks.cards import call_in_words
from curtainwall.channels.plain import plain_line, short
from curtainwall.channels.slash.lines import MODES, reach_in_words
from curtainwall.channels.slash.words import WORDS
from curtainwall.model import GrantScope, SessionRow, SessionView


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A word that could stand in place of the last `length` characters, and what it means."""

    text: str
    length: int
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class SuggestionSource:
    """What suggestions are made of; both are only asked for when a word needs them."""

    view: Callable[[], SessionView]
    sessions: Callable[[], Sequence[SessionRow]]


def suggest(before: str, known: SuggestionSource) -> Iterator[Suggestion]:
    """Yield what the text before the cursor could go on with; only slash words on a line of their own do."""
    if not before.startswith("/") or before.startswith("//") or "\n" in before:
        return
    name, space, rest = before[1:].partition(" ")
    if not space:
        for word in WORDS.values():
            if word.name.startswith(name.casefold()):
                yield Suggestion(f"/{word.name}", len(before), word.does)
        return
    start, _, last = rest.rpartition(" ")
    for text, meaning in _takes(name.casefold(), start.split(), known):
        if text.casefold().startswith(last.casefold()) and text.casefold() != last.casefold():
            yield Suggestion(text, len(last), meaning)


def _takes(name: str, before: list[str], known: SuggestionSource) -> Iterable[tuple[str, str]]:
    match name, len(before):
        case "help", 0:
            return [(word.name, word.does) for word in WORDS.values()]
        case "mode", 0:
            return [(mode.value, meaning) for mode, meaning in MODES.items()]
        case (("approve" | "deny" | "pending" | "why"), 0):
            return [(str(ask.approval), call_in_words(ask.subject, 60)) for ask in known.view().pending]
        case "approve", 1:
            return [(scope.value, "") for scope in GrantScope]
        case "disable", 0:
            view = known.view()
            return [(plain_line(rule), "asks now") for ask in view.pending for rule in ask.because if rule not in view.disabled]
        case "enable", 0:
            return [(plain_line(rule), "disabled") for rule in known.view().disabled]
        case "revoke", 0:
            return [(str(grant.id), reach_in_words(grant)) for grant in known.view().grants]
        case "budget", 0:
            return [("tokens", "as 2m"), ("steps", "as 400"), ("seconds", "as 4h"), ("dollars", "as 10")]
        case "compact", 0:
            return [("at", "a share of the context, as 70%"), ("off", "never by itself")]
        case "resume", 0:
            return [(str(row.session), short(row.name, 60)) for row in known.sessions()]
        case _:
            return []
