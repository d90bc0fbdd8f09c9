"""Progress notifications: when a call starts to wait for a human, periodically while it waits, and as a tool reports progress.

Most calls end before a client would need one. Only slow calls are tracked, by one follower of the feed.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

from pydantic import JsonValue

from curtainwall.model import ApprovalAsked, ApprovalJoined, CallId, Feed, StreamId
from curtainwall.tools.mcp_in.frames import notification_line

WAITING = "waiting for a human to answer"
# The maximum age of a cursor that a new call is tracked from.
_FRESH = 0.1

# A tool that reports every byte must not fill its client's socket.
_MOST = 1_000

Send = Callable[[bytes], None]


class ProgressReporter:
    """Reports the progress of one call to its client, always increasing: small steps while waiting, then the tool's own."""

    def __init__(self, token: JsonValue, send: Send) -> None:
        self._token = token
        self._send = send
        self._waited = 0
        self._sent = 0
        self._last = -1.0

    def wait(self) -> None:
        """Report again that a human was asked."""
        self._waited += 1
        self._tell(self._waited / 1_000, {"message": WAITING})

    def report(self, progress: float, total: float | None, _words: str | None) -> None:
        """Forward the tool's progress without its message, which is not masked."""
        if self._sent < _MOST and isfinite(progress):
            self._tell(progress, {"total": total} if total is not None and isfinite(total) else {})

    def _tell(self, progress: float, more: dict[str, JsonValue]) -> None:
        if progress > self._last:
            self._sent += 1
            self._last = progress
            self._send(notification_line("notifications/progress", {"progressToken": self._token, "progress": progress, **more}))


@dataclass(slots=True, eq=False)
class WatchedCall:
    """A call whose client wants progress notifications."""

    call: CallId
    since: int
    teller: ProgressReporter
    timer: asyncio.TimerHandle | None = None


class ProgressNotes:
    """The tracked calls of one session."""

    def __init__(self, feed: Feed, stream: StreamId, *, slow: float, every: float) -> None:
        self._feed = feed
        self._stream = stream
        self._slow = slow
        self._every = every
        self._cursor = 0
        self._taken = -_FRESH
        self._pending: dict[CallId, WatchedCall] = {}
        self._follower: asyncio.Task[None] | None = None

    def watch(self, call: CallId, teller: ProgressReporter) -> WatchedCall:
        """Track a call that is about to reach the gate."""
        now = time.monotonic()
        if now - self._taken >= _FRESH:
            self._cursor, self._taken = self._feed.head(self._stream), now
        watched = WatchedCall(call, self._cursor, teller)
        watched.timer = asyncio.get_running_loop().call_later(self._slow, self._track, watched)
        return watched

    def forget(self, watched: WatchedCall) -> None:
        """Stop tracking a call that is over."""
        if watched.timer is not None:
            watched.timer.cancel()
        self._untrack(watched.call)

    def close(self) -> None:
        """Stop tracking all calls."""
        for call in tuple(self._pending):
            self._untrack(call)

    def _track(self, watched: WatchedCall) -> None:
        self._pending[watched.call] = watched
        if self._follower is None:
            self._follow_from(watched.since)
        elif watched.since < self._from:
            self._follower.cancel()
            self._follow_from(watched.since)

    def _follow_from(self, cursor: int) -> None:
        self._from = cursor
        self._follower = asyncio.create_task(self._follow(cursor), name=f"notes of {self._stream}")

    async def _follow(self, cursor: int) -> None:
        async for recorded in self._feed.follow(self._stream, cursor):
            if isinstance(recorded.event, ApprovalAsked | ApprovalJoined):
                watched = self._pending.get(recorded.event.call)
                if watched is not None:
                    self._tell(watched)
                    self._untrack(watched.call)

    def _tell(self, watched: WatchedCall) -> None:
        watched.teller.wait()
        watched.timer = asyncio.get_running_loop().call_later(self._every, self._tell, watched)

    def _untrack(self, call: CallId) -> None:
        self._pending.pop(call, None)
        if not self._pending and self._follower is not None:
            self._follower.cancel()
            self._follower = None
