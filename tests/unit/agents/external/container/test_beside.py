"""A context that is entered beside the rest: both at once, and neither stays where one fails."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from curtainwall.agents.external.container.agent import enter_beside
from tests.support.covers import covers
from tests.support.talking import run


class Slow:
    """A context that takes as long as it is told to, and writes down what happens to it."""

    def __init__(self, *, fails: bool = False) -> None:
        self.go_on = asyncio.Event()
        self.happened: list[str] = []
        self._fails = fails

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[str]:
        self.happened.append("begun")
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.happened.append("given up")
            raise
        if self._fails:
            raise OSError("no room")
        try:
            yield "here"
        finally:
            self.happened.append("left")


@covers("container.beside")
def test_the_caller_goes_on_meanwhile_and_gets_what_was_entered() -> None:
    async def story() -> None:
        slow = Slow()
        async with enter_beside(slow.open()) as entered:
            await asyncio.sleep(0)
            assert slow.happened == ["begun"]
            slow.go_on.set()
            assert await entered() == "here"
        assert slow.happened == ["begun", "left"]

    run(story())


@covers("container.beside")
def test_a_caller_that_fails_meanwhile_leaves_nothing_behind() -> None:
    async def story() -> None:
        slow = Slow()

        async def fail() -> None:
            async with enter_beside(slow.open()):
                await asyncio.sleep(0)
                raise ValueError("meanwhile")

        with pytest.raises(ValueError, match="meanwhile"):
            await fail()
        assert slow.happened == ["begun", "given up"]

    run(story())


@covers("container.beside")
def test_whoever_waits_hears_why_it_could_not_be_entered() -> None:
    async def story() -> None:
        slow = Slow(fails=True)
        slow.go_on.set()

        async def wait() -> str:
            async with enter_beside(slow.open()) as entered:
                return await entered()

        with pytest.raises(OSError, match="no room"):
            await wait()
        assert slow.happened == ["begun"]

    run(story())
