"""Sessions of channels in the serving process: continues them, and watches the deadlines of their asks."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from curtainwall.model import (
    HOUSE_CHANNELS,
    MCP,
    TEAMS,
    ApprovalQuery,
    CurtainwallError,
    Feed,
    Index,
    SessionId,
    SessionQuery,
    SessionRow,
    SessionStatus,
    session_of,
    session_stream,
)
from curtainwall.runtime import Alarm, Deadline, Stores
from curtainwall.session import is_at_rest

Attend = Callable[[SessionId], None]
IsOwed = Callable[[SessionId], bool]
IsAttended = Callable[[SessionId], bool]

_MANY: Final = 1_000_000
_OTHERS: Final = (*HOUSE_CHANNELS, TEAMS, MCP)
"""Channels whose sessions others run: a person at a terminal, the process that runs the teams, and callers that only make calls."""
_REST: Final = 1.0
_UNDER_WAY: Final[tuple[SessionStatus, ...]] = ("opening", "working")
_AT_ONCE: Final = 64
"""How many sessions to load per second; each takes a file and memory until it has been idle for a while."""
_PAGES: Final = (32, 256, 2_048)
"""How many entries at a session's end to check before it is loaded as a whole."""


class ChannelSessions:
    """The service that runs every session of a channel, and leaves those of a terminal to the process there.

    A session without work is not loaded until something happens in it.
    """

    name = "sessions"

    def __init__(
        self, feed: Feed, stores: Stores, attend: Attend, is_owed_an_end: IsOwed, is_attended: IsAttended = lambda _: True
    ) -> None:
        self._feed = feed
        self._stores = stores
        self._attend = attend
        self._is_attended = is_attended
        self._foreign: set[SessionId] = set()
        """Sessions of channels whose sessions others run."""
        self._is_owed_an_end = is_owed_an_end
        self._seen: set[SessionId] = set()

    async def run(self) -> None:
        """Continue the existing sessions, and each one that is created or changes from now on."""
        async with asyncio.TaskGroup() as group:
            check = None
            async for names in self._feed.changes():
                if not names:
                    if check is not None:
                        check.cancel()
                    check = group.create_task(self._check_all(), name="sessions: a look at each")
                    # Everything is being checked; changes that arrive meanwhile are still reported.
                    await asyncio.sleep(_REST)
                self._check({session for name in names if (session := session_of(name)) is not None})

    def health(self) -> str:
        """Return "": if it fails, it ends, and the supervisor reports that."""
        return ""

    def take_up(self) -> int:
        """Continue every session that was left in the middle of work; return how many channel sessions have not ended."""
        rows = self._rows()
        for row in rows:
            if row.status in _UNDER_WAY:
                self._take(row.session)
        return sum(row.status != "closed" for row in rows)

    def _rows(self) -> list[SessionRow]:
        return [row for row in self._stores.index.sessions(SessionQuery(limit=_MANY)) if row.channel not in _OTHERS]

    async def _check_all(self) -> None:
        """Continue the sessions with work to do, with pauses so that others are served in between."""
        rows = await asyncio.to_thread(self._rows)
        self._seen.clear()
        ordered = {row.session for row in rows} & {session_of(stream) for stream in self._stores.inbox.streams_waiting()}
        count = 0
        for row in sorted(rows, key=lambda row: row.session not in ordered):
            if row.session not in self._seen and (row.session in ordered or self._has_work(row)):
                self._take(row.session)
                count += 1
                if count % _AT_ONCE == 0:
                    await asyncio.sleep(_REST)
            await asyncio.sleep(0)

    def _has_work(self, row: SessionRow) -> bool:
        """Tell whether a session has work left, judged by the end of its log; True if that is inconclusive."""
        if row.status == "closed":
            # If a process died between a session's end and its hooks, attending the session completes them.
            return self._is_owed_an_end(row.session)
        log, stream = self._stores.log, session_stream(row.session)
        # A session that cannot be read now is left to its attendant, which retries.
        with suppress(CurtainwallError):
            head = log.head(stream)
            for count in _PAGES:
                at_rest = is_at_rest(log.read(stream, head - count, count), is_whole=count >= head)
                if at_rest is not None:
                    return not at_rest
        return True

    def _row_of(self, session: SessionId) -> SessionRow | None:
        rows = self._stores.index.sessions(SessionQuery(prefix=session, limit=1))
        return rows[0] if rows else None

    def _take(self, session: SessionId) -> None:
        self._seen.add(session)
        self._attend(session)

    def _check(self, sessions: Collection[SessionId]) -> None:
        for session in sessions:
            # A session that ended is no longer attended; somebody may have opened it again since.
            if session in self._foreign or (session in self._seen and self._is_attended(session)):
                continue
            row = self._row_of(session)
            if row is None:
                continue
            self._seen.add(session)
            if row.channel in _OTHERS:
                self._foreign.add(session)
            elif row.status != "closed":
                self._attend(session)


_PAUSE = 1.0


class Deadlines:
    """The service that sets this process's alarm to every open deadline in the home."""

    name = "deadlines"

    def __init__(self, feed: Feed, index: Index, alarm: Alarm) -> None:
        self._feed = feed
        self._index = index
        self._alarm = alarm

    async def run(self) -> None:
        """Set the alarm to the open asks, and to those that are asked or settled from now on."""
        async for names in self._feed.changes():
            if not names:
                self._set(ApprovalQuery(with_deadline=True, limit=None, brief=True))
            for name in names:
                if (session := session_of(name)) is not None:
                    self._set(ApprovalQuery(session=session, with_deadline=True, limit=None, brief=True), session)
            # Busy sessions write many times a second; changes during the pause are reported together.
            await asyncio.sleep(_PAUSE)

    def health(self) -> str:
        """Return "": if this cannot run, the supervisor reports that."""
        return ""

    def _set(self, query: ApprovalQuery, *sessions: SessionId) -> None:
        by_session = defaultdict[SessionId, list[Deadline]](list, {session: [] for session in sessions})
        for row in self._index.approvals(query):
            if row.deadline is not None:
                by_session[row.session].append(Deadline(row.approval, row.asked, row.deadline))
        for session, deadlines in by_session.items():
            self._alarm.set(session_stream(session), deadlines)
