"""Spans that events make, also where an earlier process wrote the first of them."""

from collections.abc import Sequence

from curtainwall.channels.measures import MEASURES, Measures
from curtainwall.channels.traces import Operation, Traces
from curtainwall.model import (
    AnyEvent,
    CallId,
    CallLost,
    CallRequested,
    MessageId,
    Millis,
    Recorded,
    StreamId,
    TurnEnded,
    TurnId,
    TurnStarted,
    TurnStatus,
)
from tests.support.given import read

STREAM, TURN = StreamId("session:s1"), TurnId("t1")


class Ended:
    """Keeps the operations that ended."""

    def __init__(self) -> None:
        self.all: list[tuple[Operation, Millis, str]] = []

    def end(self, operation: Operation, at: Millis, error: str) -> None:
        self.all.append((operation, at, error))


class OneSession:
    """The part of a feed that is used, with one session."""

    def __init__(self, *events: AnyEvent) -> None:
        self.events = list(events)

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Recorded]:
        return [Recorded(stream, seq, event) for seq, event in enumerate(self.events, 1) if seq > after][:limit]

    def head(self, _: StreamId) -> int:
        return len(self.events)


def reported(feed: OneSession, began: Millis) -> tuple[Traces, Ended, Measures]:
    ended, measures = Ended(), Measures()
    traces = Traces(feed, began, measures, ended, lambda *_: True)  # type: ignore[arg-type] - the part of a feed that is used
    traces.read(frozenset({STREAM}))
    return traces, ended, measures


def test_what_an_earlier_process_ended_is_not_reported_and_what_it_left_open_is_reported_whole() -> None:
    feed = OneSession(
        TurnStarted(at=1, turn=TurnId("old"), messages=(MessageId("m"),)),
        TurnEnded(at=2, turn=TurnId("old"), status=TurnStatus.DONE),
        TurnStarted(at=3, turn=TURN, messages=(MessageId("m"),)),
        CallRequested(at=4, call=CallId("c1"), subject=read("/etc/hosts"), turn=TURN),
        CallLost(at=20, call=CallId("c1")),
        TurnEnded(at=30, turn=TURN, status=TurnStatus.FAILED, failure="secret words", fault="provider_gone"),
    )
    traces, ended, _ = reported(feed, 10)
    (call, _, call_error), (turn, turn_end, turn_error) = ended.all
    assert (call.parent, call.start, call_error) == (turn, 4, "outcome_unknown")
    assert (turn.start, turn_end, turn_error) == (3, 30, "provider_gone")
    assert "secret words" not in str(ended.all)
    traces.read()
    assert len(ended.all) == 2, "nothing is reported twice"


def test_an_agent_cannot_make_any_number_of_series() -> None:
    measures = Measures()
    for number in range(3_000):
        measures.record(MEASURES[0], 1, {"gen_ai.tool.name": f"tool-{number}"})
    (series,) = [series for measure, series in measures.all() if measure is MEASURES[0]]
    assert len(series) <= 1_001
    assert sum(it.total for it in series) == 3_000
