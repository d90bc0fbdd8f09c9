"""The pool of interpreters: nobody waits while one of them rests."""

import asyncio

from curtainwall.agents.builtin.workers import CodeLimits, Workers
from tests.support.covers import covers
from tests.support.talking import run

ROUNDS = 20
"""The pool serves whoever is quickest, so that one round alone proves little."""


@covers("agents.a-slow-call-holds-no-worker")
def test_whoever_waits_for_an_interpreter_is_not_overtaken_by_a_spare_one() -> None:
    async def lent(workers: Workers, is_lent: asyncio.Event) -> None:
        async with workers.lend_with(""):
            is_lent.set()

    async def story() -> None:
        workers = Workers(lambda: None, CodeLimits(), most=1)
        for _ in range(ROUNDS):
            is_lent = asyncio.Event()
            async with workers.lend_with(""):
                waiting = asyncio.create_task(lent(workers, is_lent))
                for _ in range(100):
                    await asyncio.sleep(0)
            await asyncio.wait_for(is_lent.wait(), 60)
            await waiting
        await workers.close()

    run(story())
