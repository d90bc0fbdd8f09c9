"""Collects what the people of a session wrote themselves, for an automatic approver: nothing from agents, the system or strangers."""

from typing import Final

from curtainwall.model import Feed, MessageAccepted, MessageWithdrawn, StreamId
from curtainwall.session import Rules

MOST_MESSAGES: Final = 20
MOST_LETTERS: Final = 64_000
_FIRST_LOOK: Final = 512


def human_words(feed: Feed, stream: StreamId, rules: Rules) -> tuple[str, ...]:
    """Return the last messages of people who may answer asks, oldest first, as many whole ones as fit the limits.

    The log is read backwards in growing pieces, so that no more of a long log is read than it takes to find the messages.
    """
    head, count = feed.head(stream), _FIRST_LOOK
    while True:
        after = max(0, head - count)
        events = [recorded.event for recorded in feed.read(stream, after)]
        withdrawn = {event.message for event in events if isinstance(event, MessageWithdrawn)}
        accepted = (event for event in events if isinstance(event, MessageAccepted) and event.message not in withdrawn)
        own = [event.text for event in accepted if _is_own(event, rules)][-MOST_MESSAGES:]
        if after == 0 or len(own) == MOST_MESSAGES:
            return _within_limit(own)
        count *= 4


def _is_own(event: MessageAccepted, rules: Rules) -> bool:
    is_direct = event.role == "human" and event.peer is None and event.proven
    return is_direct and event.by.is_human and rules.may_control(event.by)


def _within_limit(messages: list[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for text in reversed(messages):
        if sum(map(len, kept)) + len(text) > MOST_LETTERS:
            break
        kept.append(text)
    return tuple(reversed(kept))
