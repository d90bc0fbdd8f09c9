"""From an instruction to steps: every part is followed, or none is claimed to be."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from curtainwall.agents.builtin.models.demo import beyond_files as reaching
from curtainwall.agents.builtin.models.demo import changes as changing
from curtainwall.agents.builtin.models.demo import views as looking
from curtainwall.agents.builtin.models.demo.clauses import ClauseWords, words_of
from curtainwall.agents.builtin.models.demo.names import NameReader
from curtainwall.agents.builtin.models.demo.steps import Step

LONGEST: Final = 1_000_000
_LONGEST_WORDS: Final = 4_000  # without what is quoted
_MOST_FRAGMENTS: Final = 80
_MOST_JOINED: Final = 20  # fragments that may be one wish, such as a list of files

# The order decides where two forms fit: a page before a file of the same name, a change before a look.
_RULES: Final = (*reaching.RULES, *changing.RULES, *looking.RULES)

_LEAD = re.compile(
    r"(?:(?:please|kindly|now|then|also|first(?:ly)?|second(?:ly)?|third(?:ly)?|next|finally|lastly|afterwards?|after that|ok(?:ay)?|so|"
    r"alright|well|hey|hi|hello|just|quickly|and|go ahead and|(?:can|could|would|will) you|i(?:'d|’d| would) like(?: you)? to|"
    r"i (?:want|need)(?: you)? to|you (?:should|must|can)|let(?:'s|’s| us)|help me(?: to)?|try to|do the following|your task is to|task)"
    r"(?:\s*[,:!]\s*|\s+))+",
    re.IGNORECASE,
)
_TAIL = re.compile(r"(?:[\s,]+(?:please|for me|thanks|thank you|now|if you (?:can|could|please)|too|as well))+$", re.IGNORECASE)
_STOP = re.compile(r"(?<=\S)[.!?:,]+$")
_SHORT_IS = re.compile(r"\b(what|where|who|there)['’]?s\b", re.IGNORECASE)
_POLITE = re.compile(
    r"(?:hi|hello|hey|hallo|good (?:morning|evening|afternoon|day)|greetings|please|thanks?|thank you|cheers|ok(?:ay)?|great|nice|sorry)"
    r"(?: (?:there|you|again|very much|so much|a lot|everyone|all|demo|in advance|now))*",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Understood:
    """The steps that an instruction asks for, and the parts of it that could not be followed."""

    steps: tuple[Step, ...] = ()
    lost: tuple[str, ...] = ()

    @property
    def may_be_done(self) -> bool:
        """Tell whether the steps are safe to take: what was not understood may have been a condition of a change."""
        return bool(self.steps) and not (self.lost and any(step.changes for step in self.steps))


def understand(text: str, it: str = "") -> Understood:
    """Return what an instruction asks for; `it` is the file that was spoken of before."""
    if len(text) > LONGEST:
        return Understood(lost=(text[:200],))
    words = words_of(text)
    fragments = words.fragments()
    if len(fragments) > _MOST_FRAGMENTS or len(words.text) > _LONGEST_WORDS:
        return Understood(lost=(words.source(words.text[:200]),))
    whole = _all_of(words, fragments, 0, it, {})
    return Understood(steps=whole) if whole is not None else _as_far_as_possible(words, fragments, it)


Spot = tuple[int, str]


def _all_of(
    words: ClauseWords, fragments: Sequence[tuple[int, int]], start: int, it: str, seen: dict[Spot, tuple[Step, ...] | None]
) -> tuple[Step, ...] | None:
    """Return the steps of all fragments from one on, each wish as short as it can be; None if that leaves something over."""
    if start == len(fragments):
        return ()
    if (start, it) in seen:
        return seen[start, it]
    found: tuple[Step, ...] | None = None
    for end in range(start + 1, min(len(fragments), start + _MOST_JOINED) + 1):
        first = _clause(words, fragments[start][0], fragments[end - 1][1], it)
        if first is None:
            continue
        rest = _all_of(words, fragments, end, last_path(first, it), seen)
        if rest is not None:
            found = (*first, *rest)
            break
    seen[start, it] = found
    return found


def _as_far_as_possible(words: ClauseWords, fragments: Sequence[tuple[int, int]], it: str) -> Understood:
    steps: list[Step] = []
    lost: list[str] = []
    start = 0
    while start < len(fragments):
        for end in range(min(len(fragments), start + _MOST_JOINED), start, -1):
            found = _clause(words, fragments[start][0], fragments[end - 1][1], it)
            if found is not None:
                steps += found
                it = last_path(found, it)
                start = end
                break
        else:
            lost.append(words.source(words.text[slice(*fragments[start])]))
            start += 1
    return Understood(tuple(steps), tuple(lost))


def _clause(words: ClauseWords, start: int, end: int, it: str) -> tuple[Step, ...] | None:
    clause = words.text[start:end].strip()
    if _POLITE.fullmatch(_STOP.sub("", clause)):
        return ()
    clause = _LEAD.sub("", clause, count=1) if _LEAD.match(clause) else clause
    clause = _STOP.sub("", _TAIL.sub("", _STOP.sub("", clause)))
    clause = _SHORT_IS.sub(r"\1 is", clause)
    reader = NameReader(words, it)
    return next((steps for rule in _RULES if (steps := rule.steps(reader, clause))), None)


def last_path(steps: Sequence[Step], it: str) -> str:
    """Return the file that steps speak of last, or the one that was spoken of before."""
    return next((step.path for step in reversed(steps) if step.path), it)


def spoken_of(texts: Sequence[str]) -> str:
    """Return the file that earlier instructions spoke of last."""
    it = ""
    for text in texts:
        it = last_path(understand(text, it).steps, it)
    return it
