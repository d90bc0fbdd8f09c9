"""Diagnostics: short stable names for what a caller may want to hear of."""

import pytest

from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    Basis,
    BudgetExhausted,
    BudgetKind,
    BudgetWarned,
    CallDenied,
    CallFinished,
    CallId,
    CallPermitted,
    CallRequested,
    Digest,
    Effect,
    HistoryCompacted,
    LoopDetected,
    ModelResponded,
    Payload,
    PermitId,
    ProgramFinished,
    RefusedRequest,
    ReportedUse,
    RequestsRefused,
    SessionReady,
    ToolUsesReported,
    Usage,
    Verdict,
    denial,
)
from curtainwall.session import Diagnostic, DiagnosticLog, diagnose
from tests.support.given import NOW, TURN, read

CALL, PERMIT, RESULT = CallId("c1"), PermitId("p1"), Payload(inline="x")
RESPONSE = ModelResponded(at=NOW, turn=TURN, request="r", raw=RESULT, normalised=RESULT, usage=Usage(input_tokens=3, output_tokens=4))


@pytest.mark.parametrize(
    ("event", "kind", "text"),
    [
        (CallRequested(at=NOW, call=CALL, subject=read("/a")), "tool_call", "filesystem.read_multiple_files requested"),
        (
            CallPermitted(at=NOW, call=CALL, permit=PERMIT, digest=Digest("d"), verdict=Verdict(effect=Effect.ALLOW, because=())),
            "tool_call",
            "call c1 permitted",
        ),
        (CallDenied(at=NOW, call=CALL, verdict=denial("no-rule", "no")), "tool_call", "call c1 denied: no-rule"),
        (CallFinished(at=NOW, call=CALL, permit=PERMIT, ok=True, result=RESULT), "tool_call", "call c1 succeeded"),
        (CallFinished(at=NOW, call=CALL, permit=PERMIT, ok=False, result=RESULT), "tool_call", "call c1 failed"),
        (
            CallFinished(at=NOW, call=CALL, permit=PERMIT, ok=True, result=RESULT, shown=RESULT),
            "result_truncation",
            "the result of call c1 was shortened",
        ),
        (AgentSpoke(at=NOW, turn=TURN, text="hello"), "agent_text", "hello"),
        (RESPONSE, "step_finish", "7 tokens (unknown), no stop reason"),
        (
            RESPONSE.model_copy(update={"stop_reason": "end", "usage": Usage(tokens_basis=Basis.MEASURED)}),
            "step_finish",
            "0 tokens (measured), end",
        ),
        (BudgetWarned(at=NOW, kind=BudgetKind.DOLLARS, used=0.85, limit=1.0), "budget_warning", "0.85 of 1 dollars used"),
        (BudgetExhausted(at=NOW, kind=BudgetKind.STEPS, used=200, limit=200), "budget_exhausted", "all 200 steps used"),
        (LoopDetected(at=NOW, call=CALL, what="repeat", count=20), "loop_detection", "repeat: 20 within a minute"),
        (
            HistoryCompacted(at=NOW, trigger="threshold", before=900, after=100, upto=7, summary=RESULT),
            "message_compaction",
            "900 to 100 tokens (threshold)",
        ),
        (
            RequestsRefused(at=NOW, requests=(RefusedRequest(kind="key", host="h", count=2),), more=3),
            "request_refusal",
            "5 refused by the proxy: key at h",
        ),
        (RequestsRefused(at=NOW, more=3), "request_refusal", "3 refused by the proxy: not listed"),
        (
            ToolUsesReported(at=NOW, turn=TURN, uses=(ReportedUse(tool="Bash"),), more=3),
            "reported_tool_use",
            "4 by the agent's own account: Bash",
        ),
        (ProgramFinished(at=NOW, turn=TURN, program="p", ok=False, shown=RESULT), "program_failure", "a program of the agent failed"),
    ],
)
def test_an_event_is_told_under_a_short_name(event: AnyEvent, kind: str, text: str) -> None:
    assert diagnose(event) == Diagnostic(kind, NOW, text)


def test_most_events_are_no_diagnostics() -> None:
    assert diagnose(SessionReady(at=NOW)) is None
    assert diagnose(ProgramFinished(at=NOW, turn=TURN, program="p", ok=True, shown=RESULT)) is None


def test_the_preview_of_a_failed_program_is_its_error() -> None:
    shown = Payload(inline="1 printed\nTraceback (most recent call last):\n  line 2\nNameError: name 'bash' is not defined\n\n")
    told = DiagnosticLog(lambda payload: payload.inline).take(ProgramFinished(at=NOW, turn=TURN, program="p", ok=False, shown=shown))
    assert told == Diagnostic("program_failure", NOW, "a program of the agent failed", preview="NameError: name 'bash' is not defined")
