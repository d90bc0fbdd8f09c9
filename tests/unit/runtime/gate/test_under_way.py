"""What is under way may finish, what waits for a human is not waited for, and nothing more begins."""

import asyncio

import pytest

from curtainwall.runtime.gate.gate import CallsUnderWay

LONG, SHORT = 60.0, 0.01


def test_whoever_works_is_waited_for() -> None:
    async def main() -> None:
        under_way, go = CallsUnderWay(), asyncio.Event()

        async def work() -> None:
            async with under_way:
                await go.wait()

        working = asyncio.create_task(work())
        await asyncio.sleep(0)
        ending = asyncio.create_task(under_way.finish(LONG))
        await asyncio.sleep(0)
        assert not ending.done()
        go.set()
        await asyncio.wait_for(ending, LONG)
        await working

    asyncio.run(main())


def test_nobody_is_waited_for_without_end() -> None:
    async def main() -> None:
        under_way = CallsUnderWay()
        async with under_way:
            await asyncio.wait_for(under_way.finish(SHORT), LONG)

    asyncio.run(main())


def test_nobody_who_waits_for_a_human_is_waited_for() -> None:
    async def main() -> None:
        under_way = CallsUnderWay()
        async with under_way:
            with under_way.waiting():
                await asyncio.wait_for(under_way.finish(LONG * 10), LONG)

    asyncio.run(main())


def test_whoever_comes_later_is_kept_until_they_are_sent_away() -> None:
    async def main() -> None:
        under_way = CallsUnderWay()
        await under_way.finish(LONG)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(under_way.__aenter__(), SHORT)

    asyncio.run(main())
