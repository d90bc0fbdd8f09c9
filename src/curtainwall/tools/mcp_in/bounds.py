"""Limits on what one socket may cost us: bytes held, connections, concurrent calls, and parsing time."""

import time

from curtainwall.model import record

MIB = 1024 * 1024
# A socket whose parsing blocks the loop noticeably must rest: this many seconds for each second of parsing.
_NOTICED = 0.005
_REST = 4


@record
class McpBounds:
    """The limits of one socket; the defaults suit an agent that may be hostile."""

    line: int = 16 * MIB
    """The longest line."""
    parts: int = 50_000
    """The most values in one line, not counting the contents of strings."""
    held: int = 64 * MIB
    """Bytes held for all connections together: incomplete lines, waiting calls, calls in flight."""
    connections: int = 32
    in_flight: int = 64
    """Calls of one connection that run at once; more wait."""
    waiting: int = 256
    """Calls of one connection that wait; then nothing more is read."""
    unread: int = 8 * MIB
    """Bytes of replies that a peer may leave unread."""
    faults: int = 100
    """Invalid frames on one connection before it is closed."""
    patience: float = 30.0
    """Seconds until a peer that does not read its replies is cut."""
    slow: float = 0.25
    """Seconds after which we check whether a call is waiting for a human."""
    note_every: float = 15.0
    """Seconds between two notes about a call that waits."""


class SocketLoad:
    """The current cost of the connections of one socket."""

    def __init__(self, bounds: McpBounds) -> None:
        self.bounds = bounds
        self._held = 0
        self._rests_until = 0.0

    @property
    def held(self) -> int:
        """Return the bytes that are held."""
        return self._held

    def take(self, size: int) -> bool:
        """Reserve bytes; return False and reserve none if they would exceed the limit."""
        if self._held + size > self.bounds.held:
            return False
        self._held += size
        return True

    def give_back(self, size: int) -> None:
        """Release bytes."""
        self._held -= size

    def spent(self, seconds: float) -> None:
        """Count parsing time; noticeable delays make this socket rest."""
        if seconds > _NOTICED:
            self._rests_until = time.monotonic() + seconds * _REST

    def rests_for(self) -> float:
        """Return how long this socket must not be read."""
        if not self._rests_until:
            return 0.0
        left = self._rests_until - time.monotonic()
        if left <= 0:
            self._rests_until = 0.0
        return max(0.0, left)
