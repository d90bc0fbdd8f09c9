"""Asks whose agent has gone: they stay open for the human, and the answer is kept for when the agent comes back."""

import asyncio
from contextlib import suppress

from curtainwall.model import (
    SYSTEM,
    ApprovalAnswered,
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
from curtainwall.runtime.house import House

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
            match recorded.event:
                case ApprovalAnswered(granted=True) as answered if answered.approval == approval:
                    break
                case ApprovalJoined() as joined if joined.approval == approval and joined.call != call:
                    break
                case ApprovalAnswered() | ApprovalExpired() | ApprovalWithdrawn() as settled if settled.approval == approval:
                    return
                case CallDropped() as dropped if dropped.call == call:
                    return
                case _:
                    continue
        with suppress(CurtainwallError):
            await self._house.send(session, DropCall(by=SYSTEM, call=call, why=GONE))
