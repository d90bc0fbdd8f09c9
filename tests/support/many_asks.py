"""More open asks than any page holds, written into a log at once: one session each, as a gate would have left them."""

from curtainwall.model import ApprovalId, Batch, Log, SessionId, SessionReady, Write, session_stream
from tests.support.stores import NOON, asked, opened, requested

_AT_ONCE = 300


async def ask_often(log: Log, count: int, before: int = 0) -> list[tuple[SessionId, ApprovalId]]:
    """Open so many sessions with an ask each, behind as many that are there, and return them, oldest first."""
    keys = [(SessionId(f"s{number:05}"), ApprovalId(f"a{number:05}")) for number in range(before, before + count)]
    for first in range(0, count, _AT_ONCE):
        writes = (
            Write(
                session_stream(session),
                0,
                (
                    opened(session, NOON + first, agent="nobody", channel="local"),
                    SessionReady(at=NOON + first),
                    requested(at=NOON + first),
                    asked(approval, at=NOON + before + first + place),
                ),
            )
            for place, (session, approval) in enumerate(keys[first : first + _AT_ONCE])
        )
        await log.append(Batch(tuple(writes)))
    return keys
