"""The blobs that events refer to, and the size of entries including their blobs."""

from collections.abc import Iterable
from typing import assert_never

from curtainwall.model import (
    AnyEvent,
    BlobRef,
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallLost,
    CallPermitted,
    CallRequested,
    CompactionAsked,
    CompactionSet,
    CompactionSkipped,
    ContextEvent,
    ContextMeasured,
    Group,
    HistoryCompacted,
    HistoryInherited,
    InstructionsPinned,
    LifeEvent,
    ModelEvent,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    Payload,
    ProgramEvent,
    ProgramFinished,
    ProgramSaved,
    SessionClosed,
    SessionOpened,
    SessionReady,
    SessionRenamed,
    SessionReopened,
)

KeepingEvent = LifeEvent | CallEvent | ModelEvent | ProgramEvent | ContextEvent
"""The groups with members that can refer to blobs."""

_KEEPING = Group[KeepingEvent](KeepingEvent)


def logged_bytes(payloads: Iterable[bytes], events: Iterable[AnyEvent]) -> int:
    """Return how many bytes entries use of what a session may log, including their blobs."""
    return sum(map(len, payloads)) + sum(blob.size for event in events for blob in blobs_of(event))


def blobs_of(event: AnyEvent) -> tuple[BlobRef, ...]:
    """Return the blobs that an event refers to."""
    if not _KEEPING.holds(event):
        return ()
    refs: list[BlobRef | None] = []
    payloads: list[Payload | None] = []
    match event:
        case CallFinished():
            payloads += (event.result, event.shown)
        case ModelRequested():
            payloads.append(event.added)
        case ModelResponded():
            payloads += (event.raw, event.normalised)
        case HistoryCompacted():
            payloads.append(event.summary)
        case ProgramSaved():
            payloads.append(event.program.state)
        case ProgramFinished():
            payloads.append(event.shown)
        case InstructionsPinned():
            payloads.append(event.text)
        case HistoryInherited():
            refs.append(event.history)
        case SessionOpened() | SessionReady() | SessionRenamed() | SessionClosed() | SessionReopened() | ModelFailed():
            return ()
        case CallRequested() | CallDenied() | CallPermitted() | CallLost() | CallDropped():
            return ()
        case ContextMeasured() | CompactionAsked() | CompactionSkipped() | CompactionSet():
            return ()
        case _:
            assert_never(event)
    refs += (payload.blob for payload in payloads if payload is not None)
    return tuple(ref for ref in refs if ref is not None)
