"""The protocol for time and chance."""

from typing import Protocol

from curtainwall.model.ids import Millis


class Clock(Protocol):
    """Time and chance; tests have their own."""

    def now(self) -> Millis:
        """Return the time of day."""
        ...

    def elapsed(self) -> Millis:
        """Return the reading of a monotonic clock that also runs while the machine is asleep; only differences mean something."""
        ...

    def entropy(self, size: int) -> bytes:
        """Return random bytes."""
        ...

    async def sleep_until(self, at: Millis) -> None:
        """Wait until a time of day; if the clock is set back meanwhile, until the remaining time has passed."""
        ...
