"""The interpreters that run agents' programs: confined processes, shared by all sessions, each lent for one stretch of one program."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from pydantic_monty import AsyncMonty, AsyncMontySession, MontyCrashedError, MontyError, ResourceLimits

from curtainwall.agents.builtin.checkers import LONGEST, Checkers
from curtainwall.model import record


@record
class CodeLimits:
    """The limits of one program. Time runs only while it computes, never while it waits for a call."""

    seconds: float = 30.0
    memory: int = 256 * 1024 * 1024
    recursion: int = 500
    calls: int = 20_000
    sleep: float = 300.0

    @property
    def resources(self) -> ResourceLimits:
        """Return the limits as the interpreter takes them."""
        return ResourceLimits(
            max_feed_duration_secs=self.seconds,
            max_turn_duration_secs=self.seconds,
            max_memory=self.memory,
            max_recursion_depth=self.recursion,
            max_suspensions=self.calls,
            max_total_sleep_secs=self.sleep,
        )


@record
class _Spare:
    """An unused interpreter, and the callback that returns it to the pool."""

    session: AsyncMontySession
    holds: AsyncExitStack


class Workers:
    """A pool that is opened on first use and closed once. A worker's death affects nothing else."""

    def __init__(
        self, find_launcher: Callable[[], Path | None], limits: CodeLimits, *, most: int = 8, longest_check: float = LONGEST
    ) -> None:
        self.limits = limits
        self._find_launcher = find_launcher
        self._most = most
        self._stack = AsyncExitStack()
        self._pool: AsyncMonty | None = None
        self._opening = asyncio.Lock()
        self._finding = asyncio.Lock()
        self._launchers: list[Path | None] = []
        self.checkers = Checkers(self._launcher, limits.resources, longest=longest_check)
        self._spare: asyncio.Task[_Spare] | None = None
        self._waiting = 0
        """How many wait for an interpreter. The pool does not serve them in order, so a spare one could overtake them and sit idle."""

    async def close(self) -> None:
        """End every worker."""
        await self.checkers.close()
        await self._give_spare_back()
        await self._stack.aclose()
        self._pool = None

    @asynccontextmanager
    async def lend(self) -> AsyncGenerator[AsyncMontySession]:
        """Lend a fresh interpreter; afterwards it is returned or replaced, whatever was done with it."""
        # The spare one may be the last in the pool.
        await self._give_spare_back()
        fresh = await self._fresh()
        try:
            yield fresh.session
        finally:
            await fresh.holds.aclose()

    @asynccontextmanager
    async def lend_with(self, prelude: str) -> AsyncGenerator[AsyncMontySession]:
        """Lend a fresh interpreter that has run this code of ours; one is kept ready, so that a program rarely waits."""
        fresh = await self._prepared(prelude)
        try:
            yield fresh.session
        finally:
            await fresh.holds.aclose()
            if self._spare is None and not self._waiting:
                self._spare = asyncio.create_task(self._fresh())

    async def _prepared(self, prelude: str) -> "_Spare":
        spare, self._spare = self._spare, None
        if spare is not None:
            # If it died while idle, that was before any code of an agent ran in it.
            with suppress(MontyCrashedError):
                return await _having_run(await spare, prelude)
        return await _having_run(await self._fresh(), prelude)

    async def _give_spare_back(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            with suppress(MontyError):
                await (await spare).holds.aclose()

    async def _fresh(self) -> "_Spare":
        pool, holds = await self._opened(), AsyncExitStack()
        session = await self._entered(holds, pool.checkout(limits=self.limits.resources, print_flush_interval=0.05))
        return _Spare(session, holds)

    async def _entered(self, holds: AsyncExitStack, checkout: AbstractAsyncContextManager[AsyncMontySession]) -> AsyncMontySession:
        self._waiting += 1
        try:
            return await holds.enter_async_context(checkout)
        finally:
            self._waiting -= 1

    async def _launcher(self) -> Path | None:
        """Return the command that starts a worker; it is looked up once."""
        async with self._finding:
            if not self._launchers:
                self._launchers.append(await asyncio.to_thread(self._find_launcher))
            return self._launchers[0]

    async def _opened(self) -> AsyncMonty:
        async with self._opening:
            if self._pool is None:
                launcher = await self._launcher()
                pool = AsyncMonty(binary_path=launcher, min_processes=1, max_processes=self._most, request_timeout=self.limits.seconds + 5)
                self._pool = await self._stack.enter_async_context(pool)
            return self._pool


async def _having_run(fresh: _Spare, prelude: str) -> _Spare:
    try:
        await fresh.session.feed_run(prelude)
    except BaseException:
        await fresh.holds.aclose()
        raise
    return fresh
