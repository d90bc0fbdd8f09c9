"""How a task or a conversation ends: signals, status and exit code, the result as JSON, and how to continue."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from typing import Final

from curtainwall.channels.asks.cards import call_in_words
from curtainwall.channels.asks.event_lines import doubled_limit
from curtainwall.channels.plain import counted
from curtainwall.model import (
    Basis,
    ModelFailed,
    ModelResponded,
    PendingAsk,
    Recorded,
    SessionId,
    SessionView,
    TurnStatus,
    Usage,
    encode_event,
    record,
)
from curtainwall.operations.activity import Change


class TaskStatus(StrEnum):
    """How a task ended."""

    DONE = "done"
    WAITING = "waiting"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


EXIT_CODES: Final = {TaskStatus.DONE: 0, TaskStatus.FAILED: 1, TaskStatus.WAITING: 3, TaskStatus.INTERRUPTED: 130}

_SURENESS = (Basis.MEASURED, Basis.ESTIMATED, Basis.UNKNOWN)


@record
class TaskEnd:
    """The end of a task, with the reason if it failed."""

    status: TaskStatus
    failure: str = ""

    @staticmethod
    def of(status: TurnStatus, failure: str) -> "TaskEnd":
        """Return the task end that corresponds to a turn's end."""
        return TaskEnd(TaskStatus(status.value), failure if status is TurnStatus.FAILED else "")


class UsageSum:
    """The total usage of a task's model requests; a total is only as certain as its least certain part."""

    def __init__(self) -> None:
        self._parts: list[Usage] = []

    def add(self, event: ModelResponded | ModelFailed) -> None:
        """Count one more request; a request that failed may have used something as well."""
        if isinstance(event, ModelResponded) or event.usage.input_tokens or event.usage.output_tokens:
            self._parts.append(event.usage)

    def total(self) -> Usage:
        """Return the total."""
        parts = self._parts
        return Usage(
            input_tokens=sum(usage.input_tokens for usage in parts),
            output_tokens=sum(usage.output_tokens for usage in parts),
            cached_tokens=sum(usage.cached_tokens for usage in parts),
            dollars=sum(usage.dollars for usage in parts),
            tokens_basis=max((usage.tokens_basis for usage in parts), key=_SURENESS.index, default=Basis.MEASURED),
            dollars_basis=max((usage.dollars_basis for usage in parts), key=_SURENESS.index, default=Basis.MEASURED),
        )


def document(end: TaskEnd, text: str, usage: Usage, view: SessionView, changes: Iterable[Change] = ()) -> dict[str, object]:
    """Return the result document of a task; paths of changed files are relative to the workspace where they lie in it."""
    content: dict[str, object] = {
        "session": view.session,
        "status": end.status.value,
        "text": text,
        "turns": view.turns,
        "files": [change.as_json(view.workspace.path) for change in changes],
        "usage": usage.model_dump(mode="json"),
        "pending": [{"id": ask.approval, "tool": ask.subject.tool, "because": list(ask.because)} for ask in view.pending],
    }
    return {**content, "failure": end.failure} if end.failure else content


def event_json(recorded: Recorded) -> str:
    """Return an event as one line of JSON."""
    kind, version, payload = encode_event(recorded.event)
    return json.dumps({"seq": recorded.seq, "event": kind, "version": version, **json.loads(payload)}, ensure_ascii=True)


def parting_words(view: SessionView) -> Iterator[str]:
    """Yield what stays open in a session that its user leaves, and how to continue it."""
    yield from open_words(view.pending)
    yield from budget_words(view)
    if view.queue:
        yield f"{counted(len(view.queue), 'queued message')} will be taken up when the session goes on"
    if view.status == "closed":
        yield f"the session is closed; {resume_words(view.session)} opens it again"
    else:
        state = "a turn is under way" if view.status in ("working", "waiting") else "nothing runs in it"
        yield f"the session stays open, and {state}; `curtainwall sessions close {view.session}` ends it"
        yield f"{resume_words(view.session)} goes on with this session"


def open_words(asks: tuple[PendingAsk, ...]) -> Iterator[str]:
    """Yield how each open ask can be answered from elsewhere."""
    for ask in asks:
        id_ = ask.approval
        yield f"{call_in_words(ask.subject)} waits for an answer: `curtainwall approve {id_}` or `curtainwall deny {id_}`"


def budget_words(view: SessionView) -> Iterator[str]:
    """Yield how to raise each exhausted budget, to twice its previous amount."""
    for figure in view.budget:
        if figure.kind in view.exhausted:
            amount = doubled_limit(figure.kind, figure.used, figure.limit)
            yield f"the budget of {figure.kind} is used up: `curtainwall sessions budget {view.session} {figure.kind} {amount}` allows more"


def silence_words(session: SessionId, owner: int, seconds: float, *, is_kept: bool) -> Iterator[str]:
    """Yield what to say if the process that works on a session is silent, and how to leave."""
    note = "; what you sent is kept and has its turn as soon as it goes on" if is_kept else ""
    yield f"process {owner or 'of somebody else'} works on this session and has said nothing for {seconds:.0f} seconds{note}"
    leaving = f"Ctrl-C, twice during a turn, leaves, and {resume_words(session)} comes back"
    yield f"if it was stopped, `kill -CONT {owner or 'PID'}` lets it go on; {leaving}"


def resume_words(session: SessionId, task: str = "") -> str:
    """Return the command that continues a session."""
    return f"`curtainwall start --resume {session}{f' {task}' if task else ''}`"


_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_INTERRUPTED: Final = 130


def on_end_signal(do: Callable[[int], None]) -> None:
    """Call `do` with the exit code when a terminating signal arrives, until the loop is closed.

    An ignored signal stays ignored, as `nohup` expects. Outside the main thread no signal arrives, and this does nothing.
    """
    loop = asyncio.get_running_loop()
    with suppress(ValueError, RuntimeError):
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, do, 128 + number)


def hold_interrupts() -> None:
    """Keep Ctrl-C from interrupting the shutdown, until the loop is closed; pressed twice more, it ends the process at once.

    An interrupt raised during shutdown can make the loop forget a task that others wait for, and the program would never end. Ending at
    once is safe: whatever is open is recovered as after any crash.
    """
    loop, presses = asyncio.get_running_loop(), 0

    def pressed() -> None:
        nonlocal presses
        presses += 1
        if presses > 1:
            os._exit(_INTERRUPTED)

    with suppress(ValueError, RuntimeError):
        loop.add_signal_handler(signal.SIGINT, pressed)
