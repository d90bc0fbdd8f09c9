"""Sessions of channels, for the process that serves a home: it goes on with them, and minds the deadlines of their asks."""

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

_MANY: Final = 1_000_000
_OTHERS: Final = (*HOUSE_CHANNELS, TEAMS, MCP)
"""Whose sessions others look after: whoever sits at a terminal, whichever process keeps the teams, and callers that only call."""
_REST: Final = 1.0
_UNDER_WAY: Final[tuple[SessionStatus, ...]] = ("opening", "working")
_AT_ONCE: Final = 64
"""How many sessions are loaded in one second; each takes a file and memory until it has been idle for a while."""
_PAGES: Final = (32, 256, 2_048)
"""How many entries of a session's end are looked at, before it is loaded as a whole."""


class ChannelSessions:
    """The service that looks after every session of a channel, and leaves those of a terminal to whoever sits there.

    A session in which there is nothing to do is not loaded: it is looked after from the first news of it on.
    """

    name = "sessions"

    def __init__(self, feed: Feed, stores: Stores, attend: Attend, is_owed_an_end: IsOwed) -> None:
        self._feed = feed
        self._stores = stores
        self._attend = attend
        self._is_owed_an_end = is_owed_an_end
        self._known: set[SessionId] = set()

    async def run(self) -> None:
        """Take up what is there, and whatever is born or changes from then on."""
        async with asyncio.TaskGroup() as group:
            look = None
            async for names in self._feed.changes():
                if not names:
                    if look is not None:
                        look.cancel()
                    look = group.create_task(self._look_at_all(), name="sessions: a look at each")
                    # Everything is looked at; what happens meanwhile is told all the same.
                    await asyncio.sleep(_REST)
                self._look_at({session for name in names if (session := session_of(name)) is not None})

    def health(self) -> str:
        """Return nothing: it has no way to be unwell that its end would not tell."""
        return ""

    def take_up(self) -> int:
        """Go on with every session that somebody left in the middle of something; return how many sessions of channels have not ended."""
        rows = self._rows()
        for row in rows:
            if row.status in _UNDER_WAY:
                self._take(row.session)
        return sum(row.status != "closed" for row in rows)

    def _rows(self) -> list[SessionRow]:
        return [row for row in self._stores.index.sessions(SessionQuery(limit=_MANY)) if row.channel not in _OTHERS]

    async def _look_at_all(self) -> None:
        """Take up the sessions in which there is something to do, with pauses, so that others are served in between."""
        rows = await asyncio.to_thread(self._rows)
        self._known.clear()
        ordered = {row.session for row in rows} & {session_of(stream) for stream in self._stores.inbox.streams_waiting()}
        taken = 0
        for row in sorted(rows, key=lambda row: row.session not in ordered):
            if row.session not in self._known and (row.session in ordered or self._has_work(row)):
                self._take(row.session)
                taken += 1
                if taken % _AT_ONCE == 0:
                    await asyncio.sleep(_REST)
            await asyncio.sleep(0)

    def _has_work(self, row: SessionRow) -> bool:
        """Tell whether something is left to do in a session, by the end of its log; where that does not say, there may be."""
        if row.status == "closed":
            # Where a process died between a session's end and telling of it, whoever attends to it does that.
            return self._is_owed_an_end(row.session)
        log, stream = self._stores.log, session_stream(row.session)
        # A session that cannot be read now is left to whoever attends to it, who tries again.
        with suppress(CurtainwallError):
            head = log.head(stream)
            for many in _PAGES:
                at_rest = is_at_rest(log.read(stream, head - many, many), is_whole=many >= head)
                if at_rest is not None:
                    return not at_rest
        return True

    def _row_of(self, session: SessionId) -> SessionRow | None:
        rows = self._stores.index.sessions(SessionQuery(prefix=session, limit=1))
        return rows[0] if rows else None

    def _take(self, session: SessionId) -> None:
        self._known.add(session)
        self._attend(session)

    def _look_at(self, sessions: Collection[SessionId]) -> None:
        for session in sessions:
            if session in self._known:
                continue
            row = self._row_of(session)
            if row is not None:
                self._known.add(session)
                if row.channel not in _OTHERS and row.status != "closed":
                    self._attend(session)


_PAUSE = 1.0


class Deadlines:
    """The service that sets this process's alarm to what is open anywhere in the home."""

    name = "deadlines"

    def __init__(self, feed: Feed, index: Index, alarm: Alarm) -> None:
        self._feed = feed
        self._index = index
        self._alarm = alarm

    async def run(self) -> None:
        """Set the alarm to what is open, and to what is asked or settled from then on."""
        async for names in self._feed.changes():
            if not names:
                self._set(ApprovalQuery(with_deadline=True, limit=None, brief=True))
            for name in names:
                if (session := session_of(name)) is not None:
                    self._set(ApprovalQuery(session=session, with_deadline=True, limit=None, brief=True), session)
            # Sessions at work write many times a second; what changes meanwhile is named together.
            await asyncio.sleep(_PAUSE)

    def health(self) -> str:
        """Return nothing: if this cannot run, the supervisor reports that."""
        return ""

    def _set(self, query: ApprovalQuery, *sessions: SessionId) -> None:
        found = defaultdict[SessionId, list[Deadline]](list, {session: [] for session in sessions})
        for row in self._index.approvals(query):
            if row.deadline is not None:
                found[row.session].append(Deadline(row.approval, row.asked, row.deadline))
        for session, deadlines in found.items():
            self._alarm.set(session_stream(session), deadlines)
