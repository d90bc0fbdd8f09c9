"""The events a caller may want to hear of, under short stable names."""

from dataclasses import dataclass
from typing import Literal

from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    BudgetExhausted,
    BudgetWarned,
    CallDenied,
    CallFinished,
    CallPermitted,
    CallRequested,
    HistoryCompacted,
    LoopDetected,
    Millis,
    ModelResponded,
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
]


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One line of news about a session's work."""

    kind: DiagnosticKind
    at: Millis
    text: str


def diagnose(event: AnyEvent) -> Diagnostic | None:
    """Return the diagnostic that an event is, or None for most."""
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
        case _:
            return None
