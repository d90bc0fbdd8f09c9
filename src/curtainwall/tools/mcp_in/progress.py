"""Progress notes: for calls that wait for a human one as soon as the human is asked, then one now and then; and how far a tool is.

Most calls are over before anyone would want to hear of them. Only those that take longer are looked after, by one follower of the feed.
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
# How old a cursor may be that a new call is looked for from.
_FRESH = 0.1

# A tool that tells of every byte must not fill its client's socket.
_MOST = 1_000

Send = Callable[[bytes], None]


class ProgressReporter:
    """Tells one client of one call's progress, which only ever grows: first of waiting, by small steps, then of what the tool does."""

    def __init__(self, token: JsonValue, send: Send) -> None:
        self._token = token
        self._send = send
        self._waited = 0
        self._told = 0
        self._last = -1.0

    def wait(self) -> None:
        """Say once more that a human is asked."""
        self._waited += 1
        self._tell(self._waited / 1_000, {"message": WAITING})

    def hear(self, progress: float, total: float | None, _words: str | None) -> None:
        """Pass on how far the tool is; its words stay here, because nobody has masked them."""
        if self._told < _MOST and isfinite(progress):
            self._tell(progress, {"total": total} if total is not None and isfinite(total) else {})

    def _tell(self, progress: float, more: dict[str, JsonValue]) -> None:
        if progress > self._last:
            self._told += 1
            self._last = progress
            self._send(notification_line("notifications/progress", {"progressToken": self._token, "progress": progress, **more}))


@dataclass(slots=True, eq=False)
class WatchedCall:
    """A call that its client wants to hear of."""

    call: CallId
    since: int
    teller: ProgressReporter
    timer: asyncio.TimerHandle | None = None


class ProgressNotes:
    """The calls of one session that are looked after."""

    def __init__(self, feed: Feed, stream: StreamId, *, slow: float, every: float) -> None:
        self._feed = feed
        self._stream = stream
        self._slow = slow
        self._every = every
        self._cursor = 0
        self._taken = -_FRESH
        self._looked_for: dict[CallId, WatchedCall] = {}
        self._follower: asyncio.Task[None] | None = None

    def watch(self, call: CallId, teller: ProgressReporter) -> WatchedCall:
        """Look after a call from before it comes to the gate."""
        now = time.monotonic()
        if now - self._taken >= _FRESH:
            self._cursor, self._taken = self._feed.head(self._stream), now
        watched = WatchedCall(call, self._cursor, teller)
        watched.timer = asyncio.get_running_loop().call_later(self._slow, self._look_for, watched)
        return watched

    def forget(self, watched: WatchedCall) -> None:
        """Let go of a call that is over."""
        if watched.timer is not None:
            watched.timer.cancel()
        self._found(watched.call)

    def close(self) -> None:
        """Look after nothing any more."""
        for call in tuple(self._looked_for):
            self._found(call)

    def _look_for(self, watched: WatchedCall) -> None:
        self._looked_for[watched.call] = watched
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
                watched = self._looked_for.get(recorded.event.call)
                if watched is not None:
                    self._tell(watched)
                    self._found(watched.call)

    def _tell(self, watched: WatchedCall) -> None:
        watched.teller.wait()
        watched.timer = asyncio.get_running_loop().call_later(self._every, self._tell, watched)

    def _found(self, call: CallId) -> None:
        self._looked_for.pop(call, None)
        if not self._looked_for and self._follower is not None:
            self._follower.cancel()
            self._follower = None
