"""The common part of all tools: the type of a runner, its error, refined calls, progress, and bounded threads."""

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
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
    view_use,
    working_in,
)

if TYPE_CHECKING:
    # Start-up time: judging a call runs nothing.
    import asyncio

Runner = Callable[[Prepared, CallPermitted, Place], Awaitable[ToolResult]]


class CannotDo(CurtainwallError):
    """The tool failed for a reason that the agent may see; the message is the result of the call."""


Refiner = Callable[[Prepared, Place], Prepared]
"""Adds details to a valid call; it only reads, and raises `BadCall`."""


def refined(prepared: Prepared, more: Mapping[str, JsonValue], resources: tuple[Resource, ...], masker: Masker) -> Prepared:
    """Return a call with more canonical arguments and resources, and a new digest."""
    subject = prepared.subject
    canonical = {**prepared.arguments, **more}
    shown = {key: masker.mask_json(value) for key, value in more.items()}
    all_resources = (*subject.resources, *resources)
    update = {
        "canonical": {**subject.canonical, **shown},
        "resources": all_resources,
        "digest": subject_digest(subject.kind, subject.tool, canonical, all_resources),
        "masked": subject.masked or shown != dict(more),
        "hidden": {**subject.hidden, **masker.outlines(dict(more), shown)},
    }
    return Prepared(subject=subject.model_copy(update=update), arguments=canonical)


def extra_resource(tool: str, effect: ToolEffect) -> Resource:
    """Return an extra resource of a call, under a separate tool name that rules can match."""
    return Resource(role=Role.USE_TOOL, value=tool, facts=ToolFacts(server=tool.partition(".")[0], effect=effect))


ProgressListener = Callable[[float, float | None, str | None], None]
"""Takes the progress, the total if known, and a message."""

_LISTENER: ContextVar[ProgressListener | None] = ContextVar("listener", default=None)


@contextmanager
def progress_to(listener: ProgressListener) -> Generator[None]:
    """Send the progress of every call inside the block to a listener, in this task and those it starts."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def progress_listener() -> ProgressListener | None:
    """Return the listener of the current call's progress."""
    return _LISTENER.get()


THREADS_AT_ONCE: Final = 3
"""The most threads of one session; the smallest machine has five in all."""

_Done = TypeVar("_Done")

_SLOTS: "WeakValueDictionary[SessionId, asyncio.Semaphore]" = WeakValueDictionary()


async def run_in_thread(session: SessionId, work: Callable[[], _Done], undo: Callable[[_Done], None] | None = None) -> _Done:
    """Run work in a thread once the session has a free one; an abandoned thread counts until it ends, and keeps its view mounted.

    If nobody waits for the result any more, it is undone.
    """
    import asyncio

    turn = _SLOTS.setdefault(session, asyncio.Semaphore(THREADS_AT_ONCE))
    await turn.acquire()
    use = view_use()
    kept = None if use is None else use.again()

    def end(_: object = None) -> None:
        turn.release()
        if kept is not None:
            kept.close()

    try:
        with working_in(kept, closing=False):
            running = asyncio.get_running_loop().run_in_executor(None, partial(copy_context().run, work))
    except BaseException:
        end()
        raise
    running.add_done_callback(end)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if undo is not None:
            running.add_done_callback(lambda done: None if done.cancelled() or done.exception() is not None else undo(done.result()))
        raise
