"""The real clock and the real source of randomness."""

import os
import time

from curtainwall.model import Millis

# How soon we notice that the clock was set or the machine was asleep.
_LOOK_AGAIN = 1_000


class SystemClock:
    """Time of day and randomness from this machine."""

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
        """Return at that time of day, or once the time that was left until then has passed."""
        # Start-up time: a command that only looks something up never sleeps.
        import asyncio

        end = self.elapsed() + at - self.now()
        while (left := min(at - self.now(), end - self.elapsed())) > 0:  # noqa: ASYNC110 - no event signals that the clock was set
            # The loop's own clock stops while the machine is asleep.
            await asyncio.sleep(min(left, _LOOK_AGAIN) / 1000)
