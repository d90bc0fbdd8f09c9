"""The events a caller may want to hear of, under short stable names."""

from dataclasses import dataclass
from typing import Literal, assert_never

from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    BreakerEvent,
    BudgetEvent,
    BudgetExhausted,
    BudgetRaised,
    BudgetWarned,
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
    ConfinedEvent,
    ContextEvent,
    ContextMeasured,
    DenialsCounted,
    HistoryCompacted,
    InstructionsPinned,
    LoopDetected,
    Millis,
    ModelEvent,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    RequestsRefused,
    SpeechEvent,
    SpendingCounted,
    TextStreamed,
    ToolUsesReported,
    WorkTimed,
)

DiagnosticKind = Literal[
    "tool_call",
    "agent_text",
    "step_finish",
    "budget_warning",
    "budget_exhausted",
    "loop_detection",
    "result_truncation",
    "message_compaction",
    "request_refusal",
    "reported_tool_use",
]


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One line of news about a session's work."""

    kind: DiagnosticKind
    at: Millis
    text: str


def diagnose(event: AnyEvent) -> Diagnostic | None:
    """Return the diagnostic that an event is, or None for most."""
    if not isinstance(event, CallEvent | SpeechEvent | ModelEvent | BudgetEvent | BreakerEvent | ContextEvent | ConfinedEvent):
        return None
    match event:
        case CallRequested():
            return Diagnostic("tool_call", event.at, f"{event.subject.tool} requested")
        case CallPermitted():
            return Diagnostic("tool_call", event.at, f"call {event.call} permitted")
        case CallDenied():
            return Diagnostic("tool_call", event.at, f"call {event.call} denied: {', '.join(event.verdict.because)}")
        case CallFinished() if event.shown is not None:
            return Diagnostic("result_truncation", event.at, f"the result of call {event.call} was shortened")
        case CallFinished():
            return Diagnostic("tool_call", event.at, f"call {event.call} {'succeeded' if event.ok else 'failed'}")
        case AgentSpoke():
            return Diagnostic("agent_text", event.at, event.text)
        case ModelResponded():
            used = event.usage.input_tokens + event.usage.output_tokens
            return Diagnostic(
                "step_finish", event.at, f"{used} tokens ({event.usage.tokens_basis}), {event.stop_reason or 'no stop reason'}"
            )
        case BudgetWarned():
            return Diagnostic("budget_warning", event.at, f"{event.used:g} of {event.limit:g} {event.kind} used")
        case BudgetExhausted():
            return Diagnostic("budget_exhausted", event.at, f"all {event.limit:g} {event.kind} used")
        case LoopDetected():
            return Diagnostic("loop_detection", event.at, f"{event.what}: {event.count} within a minute")
        case HistoryCompacted():
            return Diagnostic("message_compaction", event.at, f"{event.before} to {event.after} tokens ({event.trigger})")
        case RequestsRefused():
            count = event.more + sum(request.count for request in event.requests)
            places = sorted({f"{request.kind} at {request.host}" for request in event.requests})
            return Diagnostic("request_refusal", event.at, f"{count} refused by the proxy: {', '.join(places) or 'not listed'}")
        case ToolUsesReported():
            tools = ", ".join(use.tool for use in event.uses)
            return Diagnostic("reported_tool_use", event.at, f"{event.more + len(event.uses)} by the agent's own account: {tools}")
        case CallLost() | CallDropped() | TextStreamed() | ModelRequested() | ModelFailed() | DenialsCounted():
            return None
        case BudgetRaised() | SpendingCounted() | WorkTimed():
            return None
        case InstructionsPinned() | ContextMeasured() | CompactionAsked() | CompactionSkipped() | CompactionSet():
            return None
        case _:
            assert_never(event)
