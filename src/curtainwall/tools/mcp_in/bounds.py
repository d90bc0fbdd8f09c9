"""How much one socket may cost us, whatever its peers do: bytes held, connections, calls at once, and time at the parser."""

import time
from dataclasses import dataclass

MIB = 1024 * 1024
# Parsing that took longer than a turn of the loop should is paid for: for every second at it, the socket rests this many.
_NOTICED = 0.005
_REST = 4


@dataclass(frozen=True, slots=True)
class McpBounds:
    """The limits of one socket; the defaults suit an agent that may be hostile."""

    line: int = 16 * MIB
    """The longest line."""
    parts: int = 50_000
    """The most values in one line; what stands inside strings does not count."""
    held: int = 64 * MIB
    """Bytes that all connections together may have us keep: half lines, waiting calls, calls in flight."""
    connections: int = 32
    in_flight: int = 64
    """Calls of one connection that run at once; more wait."""
    waiting: int = 256
    """Calls of one connection that wait; then nothing more is read."""
    unread: int = 8 * MIB
    """Bytes of replies that a peer may leave unread."""
    faults: int = 100
    """Frames of one connection that mean nothing, before it is closed."""
    patience: float = 30.0
    """Seconds until a peer that does not read its replies is cut."""
    slow: float = 0.25
    """Seconds after which a call is looked after: does it wait for a human?"""
    note_every: float = 15.0
    """Seconds between two notes about a call that waits."""


class SocketLoad:
    """What the connections of one socket cost right now."""

    def __init__(self, bounds: McpBounds) -> None:
        self.bounds = bounds
        self._held = 0
        self._rests_until = 0.0

    @property
    def held(self) -> int:
        """Return the bytes that are held."""
        return self._held

    def take(self, size: int) -> bool:
        """Count bytes in; False where they would be too many, and then they do not count."""
        if self._held + size > self.bounds.held:
            return False
        self._held += size
        return True

    def give_back(self, size: int) -> None:
        """Count bytes out."""
        self._held -= size

    def spent(self, seconds: float) -> None:
        """Count time at the parser: what hurts others makes this socket rest."""
        if seconds > _NOTICED:
            self._rests_until = time.monotonic() + seconds * _REST

    def rests_for(self) -> float:
        """Return how long nothing is to be read from this socket."""
        if not self._rests_until:
            return 0.0
        left = self._rests_until - time.monotonic()
        if left <= 0:
            self._rests_until = 0.0
        return max(0.0, left)
