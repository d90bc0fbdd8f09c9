"""The real clock and the real dice."""

import asyncio
import os
import time

from curtainwall.model import Millis


class SystemClock:
    """Time of day and chance from this machine."""

    def now(self) -> Millis:
        """Return the time of day."""
        return time.time_ns() // 1_000_000

    def entropy(self, size: int) -> bytes:
        """Return random bytes."""
        return os.urandom(size)

    async def sleep_until(self, at: Millis) -> None:
        """Return when that time has come."""
        await asyncio.sleep(max(0, at - self.now()) / 1000)
