"""Work in threads, a few at once for each session: what one of them wants must not use up the threads of all."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from curtainwall.model import SessionId

AT_ONCE: Final = 3
"""Threads that one session has at most; the smallest machine has five for all."""

_Done = TypeVar("_Done")

_TURNS: WeakValueDictionary[SessionId, asyncio.Semaphore] = WeakValueDictionary()


async def in_turn(session: SessionId, work: Callable[[], _Done]) -> _Done:
    """Do work in a thread once the session has one free; one that nobody waits for any more counts until it has ended."""
    turn = _TURNS.setdefault(session, asyncio.Semaphore(AT_ONCE))
    await turn.acquire()
    try:
        running = asyncio.get_running_loop().run_in_executor(None, partial(copy_context().run, work))
    except BaseException:
        turn.release()
        raise
    running.add_done_callback(lambda _: turn.release())
    return await asyncio.shield(running)
