"""What the people of a session said themselves, for an automatic approver: no agent's, system's or stranger's words are among it."""

from typing import Final

from curtainwall.model import Feed, MessageAccepted, MessageWithdrawn, StreamId
from curtainwall.session import Rules

MOST_MESSAGES: Final = 20
MOST_LETTERS: Final = 64_000
_FIRST_LOOK: Final = 512


def human_words(feed: Feed, stream: StreamId, rules: Rules) -> tuple[str, ...]:
    """Return the last messages of people who may answer asks themselves, oldest first, as many whole ones as are few enough.

    The log is read backwards in growing pieces, so that a long one costs no more than finding the messages does.
    """
    head, window = feed.head(stream), _FIRST_LOOK
    while True:
        after = max(0, head - window)
        events = [recorded.event for recorded in feed.read(stream, after)]
        taken_back = {event.message for event in events if isinstance(event, MessageWithdrawn)}
        accepted = (event for event in events if isinstance(event, MessageAccepted) and event.message not in taken_back)
        own = [event.text for event in accepted if _is_own(event, rules)][-MOST_MESSAGES:]
        if after == 0 or len(own) == MOST_MESSAGES:
            return _few_enough(own)
        window *= 4


def _is_own(event: MessageAccepted, rules: Rules) -> bool:
    is_spoken = event.role == "human" and event.peer is None and event.proven
    return is_spoken and event.by.is_human and rules.may_control(event.by)


def _few_enough(messages: list[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for text in reversed(messages):
        if sum(map(len, kept)) + len(text) > MOST_LETTERS:
            break
        kept.append(text)
    return tuple(reversed(kept))
