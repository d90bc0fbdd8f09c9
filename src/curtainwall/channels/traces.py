"""Turns events into spans and measures: turns, model requests, asks and calls, from the log alone.

INVARIANT: nothing that was written or read in a session leaves here, and neither do words about a failure, which may quote it. A name
leaves only if an agent could not have chosen it: anybody on this machine can read the metrics page, and a collector may be anywhere.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, assert_never

from curtainwall.channels.measures import (
    ASK_TIME,
    ASKED,
    COST,
    MODEL_TIME,
    SETTLED,
    TOKENS,
    TOOL_TIME,
    TURN_TIME,
    VERDICTS,
    Measure,
    Measures,
)
from curtainwall.model import (
    BUILTIN_AGENT,
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalJoined,
    ApprovalWithdrawn,
    BreakerEvent,
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallLost,
    CallPermitted,
    CallRequested,
    DenialsCounted,
    Effect,
    Feed,
    InterruptAsked,
    LoopDetected,
    Millis,
    ModelChanged,
    ModelEvent,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    Recorded,
    SessionId,
    SessionOpened,
    StreamId,
    TurnEnded,
    TurnEvent,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    Usage,
    session_of,
)

if TYPE_CHECKING:
    # Start-up time: only who exports spans loads the library.
    from opentelemetry.trace import Span

_MOST_OPEN = 1_000
_PAGE = 256
_FARTHEST = 4_096
"""How many entries of a session are read to learn what was open in it; more would keep everybody waiting, and an agent can make many."""
_OTHER = "_OTHER"
# Names in the requests of external agents, and in the replies of providers, are text from elsewhere.
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,63}")
_STOP_REASON = re.compile(r"[A-Za-z][A-Za-z_-]{0,31}")

Value = str | int | float | bool | Sequence[str]
Attributes = Mapping[str, Value]

IsOurs = Callable[[SessionId, str], bool]
"""Tells by id and channel whether this process exports a session; each is exported by one process."""


@dataclass(slots=True)
class Operation:
    """Something that takes time. Its span is made when it ends, or when one inside it does: what never ends is never reported."""

    name: str
    start: Millis
    attributes: dict[str, Value]
    is_client: bool = False
    parent: "Operation | None" = None
    span: "Span | None" = None


class SpanSink(Protocol):
    """Where spans go."""

    def end(self, operation: Operation, at: Millis, error: str) -> None:
        """Report an operation that ended."""
        ...


@dataclass(slots=True)
class _Session:
    """A session's known attributes and its open operations."""

    id: SessionId
    agent: str = ""
    model: str = ""
    channel: str = ""
    turns: dict[str, Operation] = field(default_factory=dict[str, Operation])
    requests: dict[str, Operation] = field(default_factory=dict[str, Operation])
    calls: dict[str, Operation] = field(default_factory=dict[str, Operation])
    asks: dict[str, Operation] = field(default_factory=dict[str, Operation])
    asked_calls: set[str] = field(default_factory=set[str])


def provider_and_model(name: str) -> tuple[str, str]:
    """Return who serves a model, and its name there. The path of a script is nobody's business."""
    provider, colon, model = name.partition(":")
    if provider == "script" or not colon:
        return "curtainwall", provider or "unknown"
    return provider, model


class Traces:
    """The service that follows the feed and reports what happens after its start.

    Operations that an earlier process began and did not end were never reported by it, so they are reported here from their start.
    """

    name = "telemetry"

    def __init__(self, feed: Feed, began: Millis, measures: Measures, spans: SpanSink | None, is_ours: IsOurs) -> None:
        self._feed = feed
        self._began = began
        self._measures = measures
        self._spans = spans
        self._is_ours = is_ours
        self._cursors: dict[StreamId, int] = {}
        self._sessions: dict[StreamId, _Session] = {}

    async def run(self) -> None:
        """Follow the feed until cancelled."""
        async for names in self._feed.changes():
            self.read(names)

    def read(self, names: frozenset[StreamId] = frozenset()) -> None:
        """Report what is new in these streams, or in all that were seen before."""
        for stream in names or tuple(self._cursors):
            if (session := session_of(stream)) is not None:
                self._read(stream, session)

    def health(self) -> str:
        """Return "": where spans go is the SDK's concern."""
        return ""

    def _read(self, stream: StreamId, id_: SessionId) -> None:
        session = self._sessions.get(stream) or self._first_look(stream, id_)
        if session is None:
            return
        is_ours = self._is_ours(id_, session.channel)
        events = self._feed.read(stream, self._cursors[stream])
        for recorded in events:
            self._cursors[stream] = recorded.seq
            self._take(session, recorded.event, reports=True, is_ours=is_ours)
        if not events and self._feed.head(stream) < self._cursors[stream]:
            # It was deleted.
            del self._cursors[stream], self._sessions[stream]

    def _first_look(self, stream: StreamId, id_: SessionId) -> _Session | None:
        """Learn what was open in a session when this process began."""
        opening = self._feed.read(stream, 0, 1)
        if not opening:
            return None
        session = self._sessions[stream] = _Session(id_)
        self._take(session, opening[0].event, reports=False)
        recent = self._recent(stream)
        before = [recorded for recorded in recent if recorded.event.at < self._began]
        for recorded in before:
            self._take(session, recorded.event, reports=False)
        self._cursors[stream] = before[-1].seq if before else recent[0].seq - 1 if recent else opening[0].seq
        return session

    def _recent(self, stream: StreamId) -> Sequence[Recorded]:
        """Return the end of a session's log, back to a turn that began before this process, or to the beginning, but not too far."""
        head, count = self._feed.head(stream), _PAGE
        while True:
            recent = self._feed.read(stream, max(0, head - count))
            is_enough = any(recorded.event.at < self._began and isinstance(recorded.event, TurnStarted) for recorded in recent)
            if is_enough or count >= min(head, _FARTHEST):
                return recent
            count *= 4

    def _take(self, session: _Session, event: AnyEvent, *, reports: bool, is_ours: bool = True) -> None:
        _Event(session, self._measures, self._spans if is_ours else None, reports, is_ours).take(event)


@dataclass(slots=True)
class _Event:
    """One event of a session: changes what is open, and reports what ended if it is new."""

    session: _Session
    measures: Measures
    spans: SpanSink | None
    reports: bool
    is_ours: bool

    def take(self, event: AnyEvent) -> None:
        if isinstance(event, SessionOpened):
            self.session.agent, self.session.model, self.session.channel = event.agent, event.model, event.channel
        elif isinstance(event, ModelChanged):
            self.session.model = event.model
        elif isinstance(event, TurnEvent | ModelEvent):
            self._take_work(event)
        elif isinstance(event, CallEvent | BreakerEvent):
            self._take_call(event)
        elif isinstance(event, ApprovalEvent):
            self._take_ask(event)

    def _take_work(self, event: TurnEvent | ModelEvent) -> None:
        match event:
            case TurnStarted() | TurnResumed():
                self._begin_turn(event.turn, event.at)
            case TurnEnded():
                self._end_turn(event)
            case ModelRequested():
                self._begin_request(event)
            case ModelResponded():
                is_plain = _STOP_REASON.fullmatch(event.stop_reason) is not None
                more: dict[str, Value] = {"gen_ai.response.finish_reasons": (event.stop_reason,)} if is_plain else {}
                self._end_request(event.request, event.at, event.usage, "", more)
            case ModelFailed():
                self._end_request(event.request, event.at, event.usage, _OTHER, {})
            case InterruptAsked():
                pass
            case _:
                assert_never(event)

    def _take_call(self, event: CallEvent | BreakerEvent) -> None:
        match event:
            case CallRequested():
                self._begin_call(event)
            case CallPermitted():
                self._judge(event.call, event.verdict.because, Effect.ALLOW)
                if (call := self.session.calls.get(event.call)) is not None:
                    # The time that a human took to answer belongs to the ask and not to the tool.
                    call.start = event.at
            case CallDenied():
                self._judge(event.call, event.verdict.because, Effect.DENY)
                self._end_call(event.call, event.at, "denied", "denied")
            case CallFinished():
                self._end_call(event.call, event.at, "finished", "" if event.ok else "tool_failed")
            case CallLost():
                self._end_call(event.call, event.at, "unknown", "outcome_unknown")
            case CallDropped():
                self._end_call(event.call, event.at, "dropped", "dropped")
            case DenialsCounted():
                self._count(VERDICTS, event.count, {"verdict": Effect.DENY.value})
            case LoopDetected():
                pass
            case _:
                assert_never(event)

    def _take_ask(self, event: ApprovalEvent) -> None:
        match event:
            case ApprovalAsked():
                self._open_ask(event)
            case ApprovalJoined():
                self._note_ask(event.call)
            case ApprovalAnswered():
                self._settle_ask(event.approval, event.at, "granted" if event.granted else "denied")
            case ApprovalExpired():
                self._settle_ask(event.approval, event.at, "expired")
            case ApprovalWithdrawn():
                self._settle_ask(event.approval, event.at, "withdrawn")
            case _:
                assert_never(event)

    def _begin_turn(self, turn: str, at: Millis) -> None:
        provider, model = provider_and_model(self.session.model)
        attributes = self._common("invoke_agent") | {"gen_ai.provider.name": provider, "curtainwall.turn.id": turn}
        if self.session.model:
            attributes["gen_ai.request.model"] = model
        _keep(self.session.turns, turn, Operation(f"invoke_agent {self.session.agent}", at, attributes))

    def _end_turn(self, event: TurnEnded) -> None:
        turn = self.session.turns.get(event.turn)
        if turn is None:
            return
        turn.attributes["curtainwall.turn.status"] = event.status.value
        error = (event.fault or _OTHER) if event.status is TurnStatus.FAILED else ""
        self._end(turn, event.at, error)
        self._time(TURN_TIME, turn, event.at, {"gen_ai.agent.name": self.session.agent}, error)

    def _begin_request(self, event: ModelRequested) -> None:
        provider, model = provider_and_model(event.model)
        named: dict[str, Value] = {"gen_ai.provider.name": provider, "gen_ai.request.model": model, "curtainwall.purpose": event.purpose}
        _keep(
            self.session.requests,
            event.request,
            Operation(f"chat {model}", event.at, self._common("chat") | named, is_client=True, parent=self.session.turns.get(event.turn)),
        )

    def _end_request(self, request: str, at: Millis, usage: Usage, error: str, more: Attributes) -> None:
        operation = self.session.requests.pop(request, None)
        if operation is None:
            return
        if not self._may_name(str(operation.attributes["gen_ai.request.model"]), is_answered=not error):
            operation.name = f"chat {_OTHER}"
            operation.attributes["gen_ai.request.model"] = _OTHER
        operation.attributes |= {
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
            "curtainwall.cost": usage.dollars,
            **more,
        }
        self._end(operation, at, error)
        labels = {key: str(operation.attributes[key]) for key in ("gen_ai.provider.name", "gen_ai.request.model")}
        operation_labels = {"gen_ai.operation.name": "chat", **labels}
        self._time(MODEL_TIME, operation, at, operation_labels, error)
        for kind, count in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            if count or not error:
                self._count(TOKENS, count, {**operation_labels, "gen_ai.token.type": kind})
        self._count(COST, usage.dollars, labels)

    def _may_name(self, model: str, *, is_answered: bool) -> bool:
        """Tell whether a model's name may leave; an external agent writes its requests itself, but no provider answers to any name."""
        is_ours = self.session.agent in ("", BUILTIN_AGENT) or model == provider_and_model(self.session.model)[1]
        return is_ours or (is_answered and _MODEL_NAME.fullmatch(model) is not None)

    def _begin_call(self, event: CallRequested) -> None:
        # What never became a subject may have any name that its agent wrote.
        tool = event.subject.tool if event.subject.digest else _OTHER
        named: dict[str, Value] = {"gen_ai.tool.name": tool, "gen_ai.tool.type": "function", "gen_ai.tool.call.id": event.call}
        turn = None if event.turn is None else self.session.turns.get(event.turn)
        _keep(
            self.session.calls, event.call, Operation(f"execute_tool {tool}", event.at, self._common("execute_tool") | named, parent=turn)
        )

    def _judge(self, call: str, because: Sequence[str], effect: Effect) -> None:
        asked = call in self.session.asked_calls
        self.session.asked_calls.discard(call)
        if (operation := self.session.calls.get(call)) is not None:
            operation.attributes |= {"curtainwall.verdict": (Effect.ASK if asked else effect).value, "curtainwall.rules": tuple(because)}
        if not asked:
            self._count(VERDICTS, 1, {"verdict": effect.value})

    def _end_call(self, call: str, at: Millis, outcome: str, error: str) -> None:
        operation = self.session.calls.pop(call, None)
        self.session.asked_calls.discard(call)
        if operation is None:
            return
        operation.attributes["curtainwall.outcome"] = outcome
        self._end(operation, at, error)
        if outcome == "finished":
            tool = str(operation.attributes["gen_ai.tool.name"])
            self._time(TOOL_TIME, operation, at, {"gen_ai.tool.name": tool, "gen_ai.agent.name": self.session.agent}, error)

    def _note_ask(self, call: str) -> None:
        self.session.asked_calls.add(call)
        self._count(VERDICTS, 1, {"verdict": Effect.ASK.value})

    def _open_ask(self, event: ApprovalAsked) -> None:
        self._note_ask(event.call)
        call = self.session.calls.get(event.call)
        attributes: dict[str, Value] = {
            "gen_ai.conversation.id": self.session.id,
            "gen_ai.tool.call.id": event.call,
            "curtainwall.ask.id": event.approval,
        }
        operation = Operation("curtainwall.ask", event.at, attributes, parent=None if call is None else call.parent)
        _keep(self.session.asks, event.approval, operation)
        self._count(ASKED, 1, {})

    def _settle_ask(self, approval: str, at: Millis, how: str) -> None:
        self._count(SETTLED, 1, {"how": how})
        operation = self.session.asks.pop(approval, None)
        if operation is None:
            return
        operation.attributes["curtainwall.ask.outcome"] = how
        self._end(operation, at, "")
        self._time(ASK_TIME, operation, at, {"how": how}, "")

    def _common(self, operation: str) -> dict[str, Value]:
        return {
            "gen_ai.operation.name": operation,
            "gen_ai.agent.name": self.session.agent,
            "gen_ai.conversation.id": self.session.id,
        }

    def _end(self, operation: Operation, at: Millis, error: str) -> None:
        if self.reports and self.spans is not None:
            self.spans.end(operation, max(at, operation.start), error)

    def _time(self, measure: Measure, operation: Operation, at: Millis, labels: Mapping[str, str], error: str) -> None:
        self._count(measure, max(0, at - operation.start) / 1000, {**labels, **({"error.type": error} if error else {})})

    def _count(self, measure: Measure, value: float, labels: Mapping[str, str]) -> None:
        if self.reports:
            self.measures.record(measure, value, labels, is_ours=self.is_ours)


def _keep(open_: dict[str, Operation], name: str, operation: Operation) -> None:
    if len(open_) >= _MOST_OPEN:
        # The oldest was never ended.
        del open_[next(iter(open_))]
    # A turn that continues under its old name is the latest one.
    open_.pop(name, None)
    open_[name] = operation
