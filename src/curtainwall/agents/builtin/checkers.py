"""Type checkers for programs, in separate processes, so that one session's checks do not delay another's.

A check helps the model but protects nothing, since a comment in the program turns it off. So a check that takes too long is abandoned.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic_monty import AsyncMonty, AsyncMontySession, MontyError, MontyTypingError, ResourceLimits

_HEAD = "async def _program():\n"
_INDENT = "    "
_PLACE = re.compile(r"^[\w<>.-]+:(\d+):(\d+): (?:error|warning)\[([\w-]+)\] (.*)$")
_MOST_COMPLAINTS = 10

MORE_BUILTINS = """\
from typing import Any
class OSError(Exception): ...
class PermissionError(OSError): ...
class FileExistsError(OSError): ...
class FileNotFoundError(OSError): ...
class IsADirectoryError(OSError): ...
class NotADirectoryError(OSError): ...
class ImportError(Exception): ...
class ModuleNotFoundError(ImportError): ...
class UnboundLocalError(NameError): ...
class UnicodeDecodeError(ValueError): ...
class UnicodeEncodeError(ValueError): ...
def filter(function: Any, values: Any) -> list[Any]: ...
def format(value: Any, how: str = "") -> str: ...
def getattr(value: Any, name: str, default: Any = None) -> Any: ...
def hasattr(value: Any, name: str) -> bool: ...
def map(function: Any, *values: Any) -> list[Any]: ...
def setattr(value: Any, name: str, new: Any) -> None: ...
"""
"""Names that programs can use at run time but that the checker does not know."""


def as_function(code: str) -> str:
    """Return the program as the body of a function, which is checked completely but runs only when called."""
    body = "".join(f"{_INDENT}{line}" if line.strip() else line for line in code.splitlines(keepends=True))
    return f"{_HEAD}{_INDENT}pass\n{body}\n"


def relocate_complaints(complaints: str) -> str:
    """Return the checker's complaints, one per line, with the positions of the original program."""
    relocated: list[str] = []
    for line in complaints.splitlines():
        match = _PLACE.match(line)
        if match is not None:
            relocated.append(f"line {int(match[1]) - 2}, column {max(1, int(match[2]) - len(_INDENT))}: {match[4]} [{match[3]}]")
    rest = len(relocated) - _MOST_COMPLAINTS
    return "\n".join((*relocated[:_MOST_COMPLAINTS], *((f"… and {rest} more",) if rest > 0 else ()))) or complaints.strip()


T = TypeVar("T")

LONGEST = 5.0
"""The most seconds that a program waits for its check; ordinary checks take milliseconds."""

_MOST = 4
_MANY_CHECKS = 50
_A_MOMENT = 0.5


@dataclass(slots=True)
class _Checker:
    """One checker process that has loaded the stubs of some tools."""

    session: AsyncMontySession
    holds: AsyncExitStack
    stubs: str
    checked: int = 0


@dataclass(slots=True)
class _Queue:
    """The checks of one session, one after the other."""

    turn: asyncio.Lock
    length: int = 0


class Checkers:
    """A small pool. A session has at most one checker, and waiting sessions take turns."""

    def __init__(
        self, launcher: Callable[[], Awaitable[Path | None]], resources: ResourceLimits, *, most: int = _MOST, longest: float = LONGEST
    ) -> None:
        self._launcher = launcher
        self._resources = resources
        self._most = most
        self._longest = longest
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._pool: AsyncMonty | None = None
        self._free = asyncio.Semaphore(most)
        self._queues: dict[str, _Queue] = {}
        self._idle: list[_Checker] = []
        self._living = self._waiting = 0
        self._checks: set[asyncio.Task[str]] = set()
        self._drops: set[asyncio.Task[None]] = set()

    def start(self, session: str, code: str, stubs: str) -> "asyncio.Task[str]":
        """Start to check a program of a session; cancelling the task ends the check."""
        return _kept(self.check(session, code, stubs), self._checks)

    def leave(self, check: "asyncio.Task[str]") -> None:
        """End a check that nobody waits for. Most finish in a moment, and then their checker can be reused."""
        if not check.done():
            asyncio.get_running_loop().call_later(_A_MOMENT, check.cancel)

    async def check(self, session: str, code: str, stubs: str) -> str:
        """Return a program's type errors with their lines and columns; nothing if there are none or the check takes too long.

        The program is checked as the body of a function that is never called, so none of it runs.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self._longest), self._turn_of(session), self._slot():
                return await self._check(code, stubs)
        return ""

    async def close(self) -> None:
        """End every checker, even in the middle of a check."""
        for task in self._checks:
            task.cancel()
        await asyncio.gather(*self._checks, return_exceptions=True)
        while self._idle:
            self._drop(self._idle.pop())
        await asyncio.gather(*self._drops, return_exceptions=True)
        await self._stack.aclose()
        self._pool = None

    @asynccontextmanager
    async def _turn_of(self, session: str) -> AsyncGenerator[None]:
        queue = self._queues.setdefault(session, _Queue(asyncio.Lock()))
        queue.length += 1
        try:
            async with queue.turn:
                yield
        finally:
            queue.length -= 1
            if not queue.length:
                del self._queues[session]

    @asynccontextmanager
    async def _slot(self) -> AsyncGenerator[None]:
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._free.release()

    async def _check(self, code: str, stubs: str) -> str:
        checker = await self._take(stubs)
        checker.checked += 1
        is_whole = False
        try:
            await checker.session.feed_run(as_function(code))
            is_whole = True
        except MontyTypingError as fault:
            is_whole = True
            return relocate_complaints(fault.display())
        except MontyError:
            # Not a type error: running the program will give a better message. The checker may have died with it.
            pass
        finally:
            # A checker abandoned in the middle of a check would run on, so it is ended. Of the others, one stays idle.
            if is_whole and checker.checked < _MANY_CHECKS and len(self._idle) < max(1, self._waiting):
                self._idle.append(checker)
            else:
                self._drop(checker)
        return ""

    async def _take(self, stubs: str) -> _Checker:
        """Return a checker that has loaded these stubs."""
        for checker in self._idle:
            if checker.stubs == stubs:
                self._idle.remove(checker)
                return checker
        if self._idle and self._living >= self._most:
            self._drop(self._idle.pop(0))
        pool, holds = await self._opened(), AsyncExitStack()
        checkout = pool.checkout(
            limits=self._resources, type_check=True, type_check_stubs=MORE_BUILTINS + stubs, type_check_format="concise"
        )
        session = await holds.enter_async_context(checkout)
        self._living += 1
        return _Checker(session, holds, stubs)

    def _drop(self, checker: _Checker) -> None:
        """End a checker, even if the caller is cancelled."""

        async def drop() -> None:
            try:
                await checker.holds.aclose()
            finally:
                self._living -= 1

        _kept(drop(), self._drops)

    async def _opened(self) -> AsyncMonty:
        async with self._opening:
            if self._pool is None:
                launcher = await self._launcher()
                pool = AsyncMonty(
                    binary_path=launcher,
                    min_processes=1,
                    max_processes=self._most,
                    request_timeout=self._longest + 1,
                    max_checkouts_per_worker=1,
                )
                self._pool = await self._stack.enter_async_context(pool)
            return self._pool


def _kept(work: Coroutine[None, None, T], among: "set[asyncio.Task[T]]") -> "asyncio.Task[T]":
    """Start a background task, and track it until it is over; nobody has to retrieve its result."""
    task = asyncio.create_task(work)
    among.add(task)

    def forget(done: "asyncio.Task[T]") -> None:
        among.discard(done)
        if not done.cancelled():
            done.exception()

    task.add_done_callback(forget)
    return task
