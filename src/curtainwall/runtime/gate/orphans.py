"""Asks whose agent has gone: they stay open for the human, and the answer is kept for when the agent comes back."""

import asyncio
from contextlib import suppress
from typing import assert_never

from curtainwall.model import (
    SYSTEM,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalId,
    ApprovalJoined,
    ApprovalWithdrawn,
    CallDropped,
    CallId,
    CurtainwallError,
    DropCall,
    SessionId,
    session_stream,
)
from curtainwall.runtime.sessions.house import House

GONE = "the agent was gone when the answer came"
_MANY = 64


class Orphans:
    """Calls that nobody waits for: dropped when the answer comes (which leaves a grant for one use) or when another takes their place."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._tasks: set[asyncio.Task[None]] = set()

    def keep(self, session: SessionId, call: CallId, approval: ApprovalId, cursor: int) -> bool:
        """Look after a call from here on; False where there are too many already."""
        if len(self._tasks) >= _MANY:
            return False
        task = self._house.spawn(self._look_after(session, call, approval, cursor), f"orphan {call}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _look_after(self, session: SessionId, call: CallId, approval: ApprovalId, cursor: int) -> None:
        async for recorded in self._house.feed.follow(session_stream(session), cursor):
            event = recorded.event
            if isinstance(event, CallDropped) and event.call == call:
                return
            if not isinstance(event, ApprovalEvent) or event.approval != approval:
                continue
            match event:
                case ApprovalAnswered():
                    if event.granted:
                        break
                    return
                case ApprovalJoined():
                    if event.call != call:
                        break
                case ApprovalExpired() | ApprovalWithdrawn():
                    return
                case ApprovalAsked():
                    pass
                case _:
                    assert_never(event)
        with suppress(CurtainwallError):
            await self._house.send(session, DropCall(by=SYSTEM, call=call, why=GONE))
