"""A wait that ends at once, and what it has in common with every other future."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from curtainwall.host.network.wires import Wait
from tests.support.houses import run

WHOSE: ContextVar[str] = ContextVar("WHOSE", default="nobody")


async def _waiter(wait: Wait, said: list[str]) -> None:
    WHOSE.set("the waiter")
    await wait
    said.append(WHOSE.get())


def test_whoever_waits_goes_on_before_the_end_returns_and_within_its_own_context() -> None:
    async def story() -> None:
        loop, said = asyncio.get_running_loop(), list[str]()
        wait = Wait(loop)
        task = asyncio.ensure_future(_waiter(wait, said))

        def end() -> None:
            wait.end_now()
            said.append("ended")
            said.append(WHOSE.get())

        loop.call_soon(end)
        await task
        assert said == ["the waiter", "ended", "nobody"]

    run(story())


def test_no_task_goes_on_in_the_middle_of_another() -> None:
    async def story() -> None:
        said = list[str]()
        wait = Wait(asyncio.get_running_loop())
        task = asyncio.ensure_future(_waiter(wait, said))
        await asyncio.sleep(0)
        wait.end_now()
        assert said == []
        await task
        assert said == ["the waiter"]

    run(story())


@pytest.mark.parametrize("ends", [Wait.end, Wait.end_now])
def test_one_that_ended_before_anybody_waited_holds_nobody_up(ends: Callable[[Wait], None]) -> None:
    async def story() -> None:
        wait = Wait(asyncio.get_running_loop())
        asyncio.get_running_loop().call_soon(ends, wait)
        await asyncio.sleep(0)
        await wait
        ends(wait)

    run(story())


def test_a_task_that_is_cancelled_while_it_waits_is_cancelled_once_whatever_comes_then() -> None:
    async def story() -> None:
        loop, said = asyncio.get_running_loop(), list[str]()
        wait = Wait(loop)
        task = asyncio.ensure_future(_waiter(wait, said))
        await asyncio.sleep(0)
        assert task.cancel()
        loop.call_soon(wait.end_now)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert wait.cancelled()
        assert not wait.cancel()
        assert said == []

    run(story())


def test_a_timeout_ends_it() -> None:
    async def story() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await Wait(asyncio.get_running_loop())

    run(story())
