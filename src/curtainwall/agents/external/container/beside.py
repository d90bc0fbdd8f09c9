"""A context that is entered beside what else has to be done first, so that two slow beginnings take as long as the slower one."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def beside(context: AbstractAsyncContextManager[T]) -> AsyncGenerator[Callable[[], Awaitable[T]]]:
    """Enter a context in a task of its own and give what waits for it, or raises why it could not be entered; leave it with this one."""
    entered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    leave = asyncio.Event()

    async def hold() -> None:
        async with context as given:
            entered.set_result(given)
            await leave.wait()

    holding = asyncio.create_task(hold())

    async def wait() -> T:
        await asyncio.wait((holding, entered), return_when=asyncio.FIRST_COMPLETED)
        if holding.done():
            holding.result()
        return entered.result()

    try:
        yield wait
    finally:
        if entered.done():
            leave.set()
        else:
            holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
