"""The real clock and the real dice."""

import asyncio
import os
import time

from curtainwall.model import Millis

# How soon it is noticed that somebody set the clock, or that the machine was asleep.
_LOOK_AGAIN = 1_000


class SystemClock:
    """Time of day and chance from this machine."""

    def now(self) -> Millis:
        """Return the time of day."""
        return time.time_ns() // 1_000_000

    def elapsed(self) -> Millis:
        """Return how long this machine has been on, asleep or not."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    def entropy(self, size: int) -> bytes:
        """Return random bytes."""
        return os.urandom(size)

    async def sleep_until(self, at: Millis) -> None:
        """Return when that time has come, or as much time has passed as was left until then."""
        over = self.elapsed() + at - self.now()
        while (left := min(at - self.now(), over - self.elapsed())) > 0:  # noqa: ASYNC110 - no event tells that somebody set the clock
            # The loop's own clock stands still while the machine is asleep.
            await asyncio.sleep(min(left, _LOOK_AGAIN) / 1000)
