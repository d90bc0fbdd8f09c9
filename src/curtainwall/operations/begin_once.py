"""Beginnings that several processes may want at once, or one left in the middle: made once, and completed by whoever comes next."""

from collections.abc import Callable

from curtainwall.model import OpenSession, ReadySession, SessionId, Undecided, Who, session_stream
from curtainwall.runtime import House


async def begin_once(house: House, session: SessionId, by: Who, opening: Callable[[], OpenSession]) -> None:
    """Open a session where nobody has, and see that it is ready.

    `Undecided` says that nothing was begun: to want it again is to want the same.
    """
    try:
        if house.feed.head(session_stream(session)) == 0:
            # The keys make one command of what several processes want at once.
            await house.send(session, opening(), "opening")
        await house.send(session, ReadySession(by=by), "ready")
    except Undecided as waits:
        raise _nothing_begun(waits) from None


async def take_up(house: House, session: SessionId, by: Who) -> None:
    """See that a session is ready that was opened before: where a process ended in the middle of that, whoever comes next completes it."""
    try:
        await house.send(session, ReadySession(by=by))
    except Undecided as waits:
        raise _nothing_begun(waits) from None


def _nothing_begun(waits: Undecided) -> Undecided:
    return Undecided(waits.session, waits.owner, "nothing was begun, so try again when it goes on or has ended")
