"""Another process that says nothing: it is looked for only where something is awaited of it."""

import asyncio

from curtainwall.channels.terminal import OwnerWatch
from curtainwall.channels.terminal.settings import SilenceTimer
from curtainwall.model import SessionId
from tests.support.covers import covers

SESSION = SessionId("s")


@covers("session.nobody-waits-for-a-stopped-owner")
def test_nobody_is_looked_for_while_nothing_is_awaited_and_until_somebody_is_found() -> None:
    awaited, owners, looked = [False, False, True, True], [None, 4711], list[SessionId]()

    def holder(session: SessionId) -> int | None:
        looked.append(session)
        return owners[len(looked) - 1]

    async def work() -> int:
        return await asyncio.wait_for(SilenceTimer(OwnerWatch(holder, 0.001)).wait_for_silent_owner(SESSION, lambda: awaited.pop(0)), 60)

    assert asyncio.run(work()) == 4711
    assert (awaited, looked) == ([], [SESSION, SESSION])
