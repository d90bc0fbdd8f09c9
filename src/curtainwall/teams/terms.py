"""What talking to teams goes by: who asks, how long is waited, what others are told of a team."""

from collections.abc import Callable
from dataclasses import dataclass

from curtainwall.model import FinishCall, PeerAnswer, SessionId

DAY = 24 * 60 * 60 * 1000

Finish = Callable[[PeerAnswer], FinishCall | None]
"""Makes of an answer the outcome of the call that waits for it, where that is small enough to be written along with the answer."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever asks: the session in which it asks, and the team that this one speaks for."""

    session: SessionId
    team: str


@dataclass(frozen=True, slots=True)
class Terms:
    """How long is waited, how long a message may wait, and when a pair counts as archived."""

    wait: float = 30.0
    notice_days: float = 30.0
    archive_after: int = 90 * DAY


@dataclass(frozen=True, slots=True)
class Card:
    """What others are told of a team."""

    description: str = ""
    colour: str = ""
