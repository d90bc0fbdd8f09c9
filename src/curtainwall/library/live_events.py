"""The live events of a session, for programs: text as it arrives, calls, asks, the context, turns and diagnostics."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal, assert_never

from curtainwall.model import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalId,
    ApprovalJoined,
    ApprovalWithdrawn,
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallId,
    CallLost,
    CallPermitted,
    CallRequested,
    CompactionAsked,
    CompactionSet,
    CompactionSkipped,
    ContextEvent,
    ContextMeasured,
    HistoryCompacted,
    InstructionsPinned,
    InterruptAsked,
    Live,
    PendingAsk,
    Recorded,
    SessionClosed,
    TurnEnded,
    TurnEvent,
    TurnId,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    record,
)
from curtainwall.session import Diagnostic, DiagnosticLog

_MOST_WAITING = 10_000


@record
class LiveSpeech:
    """A piece of the agent's text, as it arrives."""

    text: str
    turn: TurnId | None


@record
class LiveActivity:
    """The agent's current activity, or a failure that is retried; it is not in the log."""

    text: str
    is_retry: bool = False


@record
class LiveTool:
    """A step in the life of a call. The preview is the beginning of its arguments, of its result, or of the reason."""

    call: CallId
    tool: str
    status: Literal["requested", "permitted", "denied", "finished", "failed", "lost", "dropped"]
    preview: str = ""


@record
class LiveAsk:
    """An ask that waits for an answer, or how it was settled; `ask` is None if it is settled already."""

    approval: ApprovalId
    status: Literal["open", "granted", "denied", "expired", "withdrawn"]
    ask: PendingAsk | None = None


@record
class LiveContext:
    """How full the model's context is: estimated before a request, measured after the reply, smaller after a summary."""

    used: int
    size: int
    measured: bool


@record
class LiveTurn:
    """A turn began, went on, or stopped."""

    turn: TurnId
    status: Literal["started", "resumed"] | TurnStatus
    failure: str = ""


@record
class LiveDiagnostic:
    """A diagnostic, with the tool that it is about and a preview."""

    diagnostic: Diagnostic


LiveEvent = LiveSpeech | LiveActivity | LiveTool | LiveAsk | LiveContext | LiveTurn | LiveDiagnostic
"""Something that happens in a session."""

LiveUpdate = tuple[int, tuple[LiveEvent, ...]]
"""The events of one entry of the log, after the entry's number; the number is 0 for events that are not in the log."""


class LiveView:
    """Turns the live text and the log of one session into live events."""

    def __init__(self, pending: Callable[[], Sequence[PendingAsk]], diagnostics: DiagnosticLog, context_size: int) -> None:
        self._pending = pending
        self._diagnostics = diagnostics
        self._context_size = context_size

    async def updates(self, live: AsyncIterator[Live], entries: AsyncIterator[Recorded]) -> AsyncGenerator[LiveUpdate]:
        """Yield live events with their place in the log, until the session is closed or deleted."""
        queue = asyncio.Queue[LiveUpdate | None](_MOST_WAITING)

        async def take_live() -> None:
            async for piece in live:
                await queue.put((0, (_of_live(piece),)))

        async def take_entries() -> None:
            async for recorded in entries:
                await queue.put((recorded.seq, tuple(self._of_entry(recorded.event))))
                if isinstance(recorded.event, SessionClosed):
                    break
            await queue.put(None)

        tasks = (asyncio.create_task(take_live()), asyncio.create_task(take_entries()))
        try:
            while (update := await queue.get()) is not None:
                yield update
        finally:
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)

    def _of_entry(self, event: AnyEvent) -> Iterator[LiveEvent]:
        # First, because it learns which tool a call is about.
        diagnostic = self._diagnostics.take(event)
        if isinstance(event, CallEvent):
            tool, preview = self._diagnostics.describe(event)
            yield LiveTool(event.call, tool, _status_of(event), preview)
        elif isinstance(event, ApprovalEvent):
            yield from self._of_ask(event)
        elif isinstance(event, ContextEvent):
            yield from self._of_context(event)
        elif isinstance(event, TurnEvent):
            yield from _of_turn(event)
        if diagnostic is not None:
            yield LiveDiagnostic(diagnostic)

    def _of_ask(self, event: ApprovalEvent) -> Iterator[LiveAsk]:
        match event:
            case ApprovalAsked():
                ask = next((ask for ask in self._pending() if ask.approval == event.approval), None)
                yield LiveAsk(event.approval, "open", ask)
            case ApprovalAnswered():
                yield LiveAsk(event.approval, "granted" if event.granted else "denied")
            case ApprovalExpired():
                yield LiveAsk(event.approval, "expired")
            case ApprovalWithdrawn():
                yield LiveAsk(event.approval, "withdrawn")
            case ApprovalJoined():
                pass
            case _:
                assert_never(event)

    def _of_context(self, event: ContextEvent) -> Iterator[LiveContext]:
        match event:
            case ContextMeasured():
                self._context_size = event.size
                yield LiveContext(event.used, event.size, event.measured)
            case HistoryCompacted():
                yield LiveContext(event.after, self._context_size, measured=False)
            case InstructionsPinned() | CompactionAsked() | CompactionSkipped() | CompactionSet():
                pass
            case _:
                assert_never(event)


def _of_turn(event: TurnEvent) -> Iterator[LiveTurn]:
    match event:
        case TurnStarted():
            yield LiveTurn(event.turn, "started")
        case TurnResumed():
            yield LiveTurn(event.turn, "resumed")
        case TurnEnded():
            yield LiveTurn(event.turn, event.status, event.failure)
        case InterruptAsked():
            pass
        case _:
            assert_never(event)


async def events_until(
    updates: AsyncGenerator[LiveUpdate], stop: "asyncio.Future[Any]", last: Callable[[], int] = lambda: 0
) -> AsyncGenerator[LiveEvent]:
    """Yield events until there are no more; or until `stop` is done, and the log is shown up to the entry that is the last one then."""
    end: int | None = None
    seq = 0
    upcoming: asyncio.Task[LiveUpdate | None] | None = None
    try:
        while end is None or seq < end:
            upcoming = upcoming or asyncio.create_task(_next(updates))
            await asyncio.wait((upcoming, stop) if end is None else (upcoming,), return_when=asyncio.FIRST_COMPLETED)
            if end is None and stop.done():
                end = last()
            if not upcoming.done():
                continue
            update, upcoming = upcoming.result(), None
            if update is None:
                return
            seq = max(seq, update[0])
            for event in update[1]:
                yield event
    finally:
        if upcoming is not None:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)


async def _next(updates: AsyncGenerator[LiveUpdate]) -> LiveUpdate | None:
    return await anext(updates, None)


def _of_live(piece: Live) -> LiveSpeech | LiveActivity:
    return LiveSpeech(piece.text, piece.turn) if piece.kind == "text" else LiveActivity(piece.text, is_retry=piece.kind == "again")


def _status_of(event: CallEvent) -> Literal["requested", "permitted", "denied", "finished", "failed", "lost", "dropped"]:
    match event:
        case CallRequested():
            return "requested"
        case CallPermitted():
            return "permitted"
        case CallDenied():
            return "denied"
        case CallFinished():
            return "finished" if event.ok else "failed"
        case CallLost():
            return "lost"
        case CallDropped():
            return "dropped"
        case _:
            assert_never(event)
