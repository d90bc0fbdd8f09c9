"""The breaker: the same changing subject, or asks, too often in too short a time."""

from collections import deque
from collections.abc import Mapping
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


def count_asks(asks: deque[Millis], now: Millis, limits: BreakerLimits) -> int:
    """Return how many asks there were within the window."""
    return sum(1 for at in asks if at > now - limits.window)


def remember_repeat(repeats: dict[Digest, tuple[Millis, ...]], digest: Digest, at: Millis) -> None:
    """Note a changing subject; only the newest are kept, so that memory stays flat."""
    times = repeats.pop(digest, ())
    repeats[digest] = (*times[-_TIMES_KEPT:], at)
    forget_oldest(repeats, DIGESTS_KEPT)


def remember_ask(asks: deque[Millis], at: Millis) -> None:
    """Note an ask."""
    asks.append(at)
    if len(asks) > ASKS_KEPT:
        asks.popleft()


def forget_oldest(held: dict[K, V], kept: int) -> None:
    """Cut to the newest once there are twice as many: one by one would leave holes that make every copy slow."""
    if len(held) >= 2 * kept:
        newest = dict(islice(held.items(), len(held) - kept, None))
        held.clear()
        held.update(newest)
