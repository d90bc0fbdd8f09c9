"""What is under way when a process should end: it may finish, and nothing more begins."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress


class UnderWay:
    """Counts who works: `async with` it."""

    def __init__(self) -> None:
        self._many = 0
        self._is_ending = False
        self._none = asyncio.Event()

    async def __aenter__(self) -> None:
        """Begin; where everything ends, stay here until sent away."""
        if self._is_ending:
            await asyncio.get_running_loop().create_future()
        self._many += 1

    async def __aexit__(self, *_: object) -> None:
        """Be done."""
        self._done()

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Count as done while a human is waited for; what comes after the answer may finish, too."""
        self._done()
        try:
            yield
        finally:
            self._many += 1

    async def finish(self, within: float) -> None:
        """Let nothing more begin, and wait until everybody is done, but no longer than so many seconds."""
        self._is_ending = True
        self._none.clear()
        if self._many:
            with suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self._none.wait()

    def _done(self) -> None:
        self._many -= 1
        if not self._many:
            self._none.set()
