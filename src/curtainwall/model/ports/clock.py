"""What the runtime wants of time and chance."""

from typing import Protocol

from curtainwall.model.ids import Millis


class Clock(Protocol):
    """Time and chance, so that tests can have their own."""

    def now(self) -> Millis:
        """Return the time of day."""
        ...

    def elapsed(self) -> Millis:
        """Return the reading of a clock that nobody sets, and that goes on while the machine is asleep; only differences mean something."""
        ...

    def entropy(self, size: int) -> bytes:
        """Return random bytes."""
        ...

    async def sleep_until(self, at: Millis) -> None:
        """Return when that time has come; where the clock is set back, when as much time has passed as was left until then."""
        ...
