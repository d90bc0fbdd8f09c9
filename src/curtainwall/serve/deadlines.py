"""The deadlines of every ask of a home, for the process that serves it: also of sessions that no process has open."""

import asyncio
from collections import defaultdict

from curtainwall.model import ApprovalQuery, Feed, Index, SessionId, session_of, session_stream
from curtainwall.runtime import Alarm, Deadline

_REST = 1.0


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
            await asyncio.sleep(_REST)

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
