"""Events in, spans out: turns, model requests and calls as OpenTelemetry tells them, from the log alone.

Where no SDK is configured the library does nothing, and so does this.
"""

from collections.abc import Mapping
from typing import assert_never

from opentelemetry import trace
from opentelemetry.trace import Span, Status, StatusCode, Tracer

from curtainwall.model import (
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallLost,
    CallPermitted,
    CallRequested,
    Feed,
    InterruptAsked,
    Millis,
    ModelEvent,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    Recorded,
    SessionId,
    StreamId,
    TurnEnded,
    TurnEvent,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    session_of,
)

_NANOS = 1_000_000
_MOST_OPEN = 10_000


class Traces:
    """The service that reads along; it begins with what happens after its start, and a crash loses what was open."""

    name = "traces"

    def __init__(self, feed: Feed, began: Millis, tracer: Tracer | None = None) -> None:
        self._feed = feed
        self._began = began
        self._tracer = tracer or trace.get_tracer("curtainwall")
        self._cursors: dict[StreamId, int] = {}
        self._open: dict[tuple[SessionId, str], Span] = {}

    async def run(self) -> None:
        """Read along for ever."""
        async for names in self._feed.changes():
            for stream in names or tuple(self._cursors):
                if (session := session_of(stream)) is not None:
                    self._read(stream, session)

    def health(self) -> str:
        """Return nothing: where spans go is the SDK's own concern."""
        return ""

    def _read(self, stream: StreamId, session: SessionId) -> None:
        for recorded in self._feed.read(stream, self._cursors.get(stream, 0)):
            self._cursors[stream] = recorded.seq
            if recorded.event.at >= self._began:
                self._take(session, recorded)

    def _take(self, session: SessionId, recorded: Recorded) -> None:
        event = recorded.event
        if not isinstance(event, TurnEvent | ModelEvent | CallEvent):
            return
        match event:
            case TurnStarted() | TurnResumed():
                self._begin(session, event.turn, "turn", event.at, {"turn": event.turn})
            case TurnEnded():
                fault = event.failure if event.status is TurnStatus.FAILED else ""
                self._end(session, event.turn, event.at, {"status": event.status.value}, fault)
            case ModelRequested():
                told = {"gen_ai.request.model": event.model, "purpose": event.purpose}
                self._begin(session, event.request, "model request", event.at, told, event.turn)
            case ModelResponded():
                usage = event.usage
                used = {"gen_ai.usage.input_tokens": usage.input_tokens, "gen_ai.usage.output_tokens": usage.output_tokens}
                self._end(session, event.request, event.at, used)
            case ModelFailed():
                self._end(session, event.request, event.at, {}, event.failure or "failed")
            case CallRequested():
                self._begin(session, event.call, "call", event.at, {"tool": event.subject.tool}, event.turn)
            case CallFinished():
                self._end(session, event.call, event.at, {"ok": event.ok})
            case CallDenied():
                self._end(session, event.call, event.at, {"denied_by": ", ".join(event.verdict.because)})
            case CallDropped() | CallLost():
                self._end(session, event.call, event.at, {"outcome": "dropped" if isinstance(event, CallDropped) else "unknown"})
            case InterruptAsked() | CallPermitted():
                pass
            case _:
                assert_never(event)

    def _begin(self, session: SessionId, name: str, kind: str, at: Millis, told: Mapping[str, str], within: str | None = None) -> None:
        parent = self._open.get((session, within)) if within is not None else None
        context = None if parent is None else trace.set_span_in_context(parent)
        span = self._tracer.start_span(kind, context, attributes={"session": session, **told}, start_time=at * _NANOS)
        if len(self._open) >= _MOST_OPEN:
            # Whoever never ended has been forgotten by everybody else.
            self._open.pop(next(iter(self._open))).end()
        self._open[session, name] = span

    def _end(self, session: SessionId, name: str, at: Millis, told: Mapping[str, str | int | bool], fault: str = "") -> None:
        span = self._open.pop((session, name), None)
        if span is None:
            return
        for key, value in told.items():
            span.set_attribute(key, value)
        if fault:
            span.set_status(Status(StatusCode.ERROR, fault[:200]))
        span.end(at * _NANOS)
