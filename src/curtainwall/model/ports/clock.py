"""What the runtime wants of time and chance."""

from typing import Protocol

from curtainwall.model.ids import Millis


class Clock(Protocol):
    """Time and chance, so that tests can have their own."""

    def now(self) -> Millis:
        """Return the time of day."""
        ...

    def entropy(self, size: int) -> bytes:
        """Return random bytes."""
        ...

    async def sleep_until(self, at: Millis) -> None:
        """Return when that time has come."""
        ...
