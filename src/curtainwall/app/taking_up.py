"""Who goes on with sessions that were born on a channel: this process, from its start, and whichever process opened them."""

import asyncio
from collections.abc import Callable, Collection

from curtainwall.model import HOUSE_CHANNELS, MCP, TEAMS, Feed, Index, SessionId, SessionQuery, session_of

Attend = Callable[[SessionId], None]
IsOwed = Callable[[SessionId], bool]

_MANY = 1_000_000
_OTHERS = (*HOUSE_CHANNELS, TEAMS, MCP)
"""Whose sessions others look after: whoever sits at a terminal, whichever process keeps the teams, and callers that only call."""
_REST = 1.0


class TakingUp:
    """The service that looks after every session of a channel, and leaves those of a terminal to whoever sits there."""

    name = "sessions"

    def __init__(self, feed: Feed, index: Index, attend: Attend, is_owed_an_end: IsOwed) -> None:
        self._feed = feed
        self._index = index
        self._attend = attend
        self._is_owed_an_end = is_owed_an_end
        self._known: set[SessionId] = set()

    async def run(self) -> None:
        """Take up what is there, and whatever is born from then on."""
        async for names in self._feed.changes():
            if not names:
                self.take_up()
                # Everything was looked at; what happens meanwhile is told all the same.
                await asyncio.sleep(_REST)
            self._look_at({session for name in names if (session := session_of(name)) is not None})

    def health(self) -> str:
        """Return nothing: it has no way to be unwell that its end would not tell."""
        return ""

    def take_up(self) -> int:
        """Look after every session that was born on a channel and has not ended; return how many these are."""
        rows = self._index.sessions(SessionQuery(limit=_MANY))
        ours = [row.session for row in rows if row.channel not in _OTHERS and row.status != "closed"]
        self._known = {row.session for row in rows}
        # Where a process died between a session's end and telling of it, whoever attends to it does that.
        unheard = [row.session for row in rows if row.status == "closed" and self._is_owed_an_end(row.session)]
        for session in (*ours, *unheard):
            self._attend(session)
        return len(ours)

    def _look_at(self, sessions: Collection[SessionId]) -> None:
        for session in sessions:
            if session in self._known:
                continue
            rows = self._index.sessions(SessionQuery(prefix=session, limit=1))
            if rows:
                self._known.add(session)
                if rows[0].channel not in _OTHERS and rows[0].status != "closed":
                    self._attend(session)
