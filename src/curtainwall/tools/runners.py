"""What every tool runs with: the shape of a runner, its error, refined calls, progress, and threads in turn."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from pydantic import JsonValue

from curtainwall.facts import Masker
from curtainwall.model import (
    CallPermitted,
    CurtainwallError,
    Place,
    Prepared,
    Resource,
    Role,
    SessionId,
    ToolEffect,
    ToolFacts,
    ToolResult,
    subject_digest,
)

Runner = Callable[[Prepared, CallPermitted, Place], Awaitable[ToolResult]]


class CannotDo(CurtainwallError):
    """The tool ran into something that the agent can be told; the message is its result."""


Refiner = Callable[[Prepared, Place], Prepared]
"""Looks closer at a call that is well formed; reads, never changes, and raises `BadCall`."""


def refined(prepared: Prepared, more: Mapping[str, JsonValue], resources: tuple[Resource, ...], masker: Masker) -> Prepared:
    """Return a call with what else it means, in its canonical form, its resources and its digest."""
    subject = prepared.subject
    canonical = {**prepared.arguments, **more}
    shown = {key: masker.mask_json(value) for key, value in more.items()}
    every = (*subject.resources, *resources)
    told = {
        "canonical": {**subject.canonical, **shown},
        "resources": every,
        "digest": subject_digest(subject.kind, subject.tool, canonical, every),
        "masked": subject.masked or shown != dict(more),
        "hidden": {**subject.hidden, **masker.outlines(dict(more), shown)},
    }
    return Prepared(subject=subject.model_copy(update=told), arguments=canonical)


def extra_resource(tool: str, effect: ToolEffect) -> Resource:
    """Return what a call is besides its tool, under a name of its own that rules can ask about."""
    return Resource(role=Role.USE_TOOL, value=tool, facts=ToolFacts(server=tool.partition(".")[0], effect=effect))


ProgressListener = Callable[[float, float | None, str | None], None]
"""Takes how far it is, how far it goes where that is known, and words."""

_LISTENER: ContextVar[ProgressListener | None] = ContextVar("listener", default=None)


@contextmanager
def progress_to(listener: ProgressListener) -> Generator[None]:
    """Hear of the progress of every call that is made inside, by this task and those it starts."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def progress_listener() -> ProgressListener | None:
    """Return who hears of the present call's progress."""
    return _LISTENER.get()


THREADS_AT_ONCE: Final = 3
"""Threads that one session has at most; the smallest machine has five for all."""

_Done = TypeVar("_Done")

_SLOTS: WeakValueDictionary[SessionId, asyncio.Semaphore] = WeakValueDictionary()


async def run_in_thread(session: SessionId, work: Callable[[], _Done]) -> _Done:
    """Do work in a thread once the session has one free; one that nobody waits for any more counts until it has ended."""
    turn = _SLOTS.setdefault(session, asyncio.Semaphore(THREADS_AT_ONCE))
    await turn.acquire()
    try:
        running = asyncio.get_running_loop().run_in_executor(None, partial(copy_context().run, work))
    except BaseException:
        turn.release()
        raise
    running.add_done_callback(lambda _: turn.release())
    return await asyncio.shield(running)
