"""Diagnostics: the events that interest a calling program, under short stable names."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal, assert_never

from pydantic import JsonValue

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
    CallId,
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
    Payload,
    ProgramFinished,
    RequestsRefused,
    SpeechEvent,
    SpendingCounted,
    TextStreamed,
    ToolUsesReported,
    WorkTimed,
    record,
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
    "program_failure",
]


@record
class Diagnostic:
    """One diagnostic about a session's work."""

    kind: DiagnosticKind
    at: Millis
    text: str
    tool: str = ""
    """The tool, if the diagnostic is about a call."""
    preview: str = ""
    """The start of the call's arguments, of its result, or of the reason why it did not run or failed."""


Load = Callable[[Payload], JsonValue]
"""Returns the value of a payload."""

_LONGEST_PREVIEW = 200


class DiagnosticLog:
    """Reads a session's events in order, and remembers which tool each call is about."""

    def __init__(self, load: Load, tools: Mapping[CallId, str] | None = None) -> None:
        self._load = load
        self._tools = dict(tools or {})

    def take(self, event: AnyEvent) -> Diagnostic | None:
        """Process the next event, and return its diagnostic, if it has one."""
        if isinstance(event, CallRequested):
            self._tools[event.call] = event.subject.tool
        diagnostic = diagnose(event)
        if diagnostic is not None and isinstance(event, ProgramFinished):
            return replace(diagnostic, preview=_one_line(_last_line(_text(self._load(event.shown)))))
        if diagnostic is None or not isinstance(event, CallEvent):
            return diagnostic
        tool, preview = self.describe(event)
        return replace(diagnostic, tool=tool, preview=preview)

    def describe(self, event: CallEvent) -> tuple[str, str]:
        """Return the tool of a call's event and a preview, both masked as in the log."""
        return self._tools.get(event.call, ""), _one_line(self._details(event))

    def _details(self, event: CallEvent) -> str:
        match event:
            case CallRequested():
                # A call that was refused before its meaning was resolved has only the agent's text.
                arguments = event.subject.canonical or event.subject.raw
                return ", ".join(f"{name}={_text(value)}" for name, value in arguments.items())
            case CallFinished():
                return _text(self._load(event.shown or event.result))
            case CallDenied():
                return event.verdict.reason
            case CallDropped():
                return event.why
            case CallPermitted() | CallLost():
                return ""
            case _:
                assert_never(event)


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _last_line(text: str) -> str:
    """Return the last line of what a failed program is told, which names the error."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def _one_line(text: str) -> str:
    line = " ".join(text[: 4 * _LONGEST_PREVIEW].split())
    is_whole = len(line) <= _LONGEST_PREVIEW and len(text) <= 4 * _LONGEST_PREVIEW
    return line if is_whole else f"{line[: _LONGEST_PREVIEW - 1]}…"


def diagnose(event: AnyEvent) -> Diagnostic | None:
    """Return an event's diagnostic, or None for most events."""
    if isinstance(event, ProgramFinished):
        return None if event.ok else Diagnostic("program_failure", event.at, "a program of the agent failed")
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
