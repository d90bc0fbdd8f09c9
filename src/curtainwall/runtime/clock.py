"""The real clock and the real dice."""

import asyncio
import os
import threading
import time

from curtainwall.model import Millis

_AT_ONCE = 4096


class SystemClock:
    """Time of day and chance from this machine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chance = b""
        self._given = 0
        self._owner = 0

    def now(self) -> Millis:
        """Return the time of day."""
        return time.time_ns() // 1_000_000

    def entropy(self, size: int) -> bytes:
        """Return random bytes, each given once. They are fetched many at a time: asking the system takes longer than its answer."""
        with self._lock:
            if len(self._chance) < self._given + size or self._owner != os.getpid():
                self._chance, self._given, self._owner = os.urandom(max(size, _AT_ONCE)), 0, os.getpid()
            start, self._given = self._given, self._given + size
            return self._chance[start : self._given]

    async def sleep_until(self, at: Millis) -> None:
        """Return when that time has come."""
        await asyncio.sleep(max(0, at - self.now()) / 1000)
