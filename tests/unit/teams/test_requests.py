"""Wishes to whoever works for the teams, and what becomes of them where nobody does any more."""

import asyncio

import pytest

from curtainwall.model import SessionId, TryLater
from curtainwall.teams.conversations import KeeperRequests
from tests.support.houses import run, until

SESSION = SessionId("s")


def test_where_nobody_works_for_the_teams_a_wish_is_refused_at_once() -> None:
    async def story() -> None:
        with pytest.raises(TryLater, match="lets no agent work"):
            await KeeperRequests().wake(SESSION)

    run(story())


def test_whoever_waits_hears_of_the_end_of_the_one_who_fulfils_wishes() -> None:
    async def story() -> None:
        wishes = KeeperRequests()
        async with wishes.taking() as queue:
            begun, queued = asyncio.create_task(wishes.wake(SESSION)), asyncio.create_task(wishes.sleep(SESSION))
            await until(lambda: queue.qsize() == 2)
            assert (await queue.get()).what == "wake"
        for waiting in (begun, queued):
            with pytest.raises(TryLater, match="try again"):
                await asyncio.wait_for(waiting, 30)
        async with wishes.taking() as queue:
            assert queue.empty(), "nobody waits for it any more"

    run(story())
