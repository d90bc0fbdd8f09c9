"""Spans that events make, given to a tracer that remembers them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, Tracer

from curtainwall.channels.traces import Traces
from curtainwall.model import (
    AnyEvent,
    CallId,
    CallRequested,
    MessageId,
    Recorded,
    StreamId,
    TurnEnded,
    TurnId,
    TurnStarted,
    TurnStatus,
)
from tests.support.given import read
from tests.support.houses import run, until

STREAM, TURN = StreamId("session:s1"), TurnId("t1")


class Span(NonRecordingSpan):
    """A span that tells what became of it."""

    def __init__(self, number: int, name: str, parent: Any, attributes: Any, start: int) -> None:
        super().__init__(SpanContext(1, number, is_remote=False))
        self.name, self.parent, self.attributes, self.start, self.finish, self.fault = name, parent, dict(attributes), start, 0, ""

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_status(self, status: Any, description: str | None = None) -> None:
        self.fault = status.description

    def end(self, end_time: int | None = None) -> None:
        self.finish = end_time or -1


class Remembering(Tracer):
    """A tracer that remembers its spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def start_span(self, name: str, context: Any = None, *args: Any, attributes: Any = None, start_time: Any = None, **_: Any) -> Span:
        parent = trace.get_current_span(context) if context is not None else None
        self.spans.append(Span(len(self.spans) + 1, name, parent, attributes, start_time))
        return self.spans[-1]

    def start_as_current_span(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


class Told:
    """A feed with one session, all of which is there."""

    def __init__(self, *events: AnyEvent) -> None:
        self._events = events

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Recorded]:
        return [Recorded(stream, seq, event) for seq, event in enumerate(self._events, 1) if seq > after][:limit]

    async def changes(self) -> AsyncIterator[frozenset[StreamId]]:
        yield frozenset()
        yield frozenset({STREAM})
        await asyncio.Event().wait()


def test_a_turn_and_the_call_in_it_are_spans_and_what_was_before_is_none() -> None:
    asked = read("/etc/hosts")
    events = (
        TurnStarted(at=1, turn=TurnId("old"), messages=(MessageId("m"),)),
        TurnStarted(at=10, turn=TURN, messages=(MessageId("m"),)),
        CallRequested(at=20, call=CallId("c1"), subject=asked, turn=TURN),
        TurnEnded(at=30, turn=TURN, status=TurnStatus.FAILED, failure="the provider is gone"),
    )
    tracer = Remembering()

    async def check() -> None:
        traces = asyncio.create_task(Traces(Told(*events), 5, tracer).run())  # type: ignore[arg-type] - the part of a feed that is used
        await until(lambda: tracer.spans and tracer.spans[0].finish)
        traces.cancel()

    run(check())
    turn, call = tracer.spans
    assert (turn.name, turn.start, turn.finish, turn.fault) == ("turn", 10_000_000, 30_000_000, "the provider is gone")
    assert (call.name, call.parent, call.attributes["tool"]) == ("call", turn, asked.tool)
    assert turn.attributes == {"session": "s1", "turn": "t1", "status": "failed"}
