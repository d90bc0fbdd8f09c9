"""The breaker: the same changing subject, or asks, too often in too short a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from curtainwall.model import Digest, Millis

DIGESTS_KEPT = 128
ASKS_KEPT = 128
_TIMES_KEPT = 64

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """How often is too often."""

    repeats: int = 20
    asks: int = 30
    window: Millis = 60_000


def count_repeats(repeats: Mapping[Digest, tuple[Millis, ...]], digest: Digest, now: Millis, limits: BreakerLimits) -> int:
    """Return how often the subject was requested within the window."""
    return sum(1 for at in repeats.get(digest, ()) if at > now - limits.window)


def count_asks(asks: Sequence[Millis], now: Millis, limits: BreakerLimits) -> int:
    """Return how many asks there were within the window."""
    return sum(1 for at in asks if at > now - limits.window)


def remember_repeat(repeats: Mapping[Digest, tuple[Millis, ...]], digest: Digest, at: Millis) -> Mapping[Digest, tuple[Millis, ...]]:
    """Return the changing subjects with one more; only the newest are kept, so that memory stays flat."""
    held = dict(repeats)
    times = held.pop(digest, ())
    held[digest] = (*times[-_TIMES_KEPT:], at)
    return newest(held, DIGESTS_KEPT)


def remember_ask(asks: tuple[Millis, ...], at: Millis) -> tuple[Millis, ...]:
    """Return the asks with one more."""
    return (*asks[1 - ASKS_KEPT :], at)


def newest(held: Mapping[K, V], kept: int) -> Mapping[K, V]:
    """Return the newest once there are twice as many: to cut one by one would cost more than it saves."""
    return held if len(held) < 2 * kept else dict(islice(held.items(), len(held) - kept, None))
