"""What hooks want an agent to know, as an MCP client sees it: beside the result, never in it."""

import json
from typing import Any

from curtainwall.model import Answer, CallId, Effect, ToolResult, Verdict, denial
from curtainwall.tools.mcp_in.calls import result_of

ALLOWED = Verdict(effect=Effect.ALLOW, because=(), reason="")


def texts(answer: Answer) -> list[str]:
    told: dict[str, Any] = json.loads(result_of(answer, "2025-06-18"))
    return [part["text"] for part in told["content"]]


def test_context_and_a_stop_are_parts_of_their_own() -> None:
    answer = Answer(
        call=CallId("c"), verdict=ALLOWED, result=ToolResult(ok=True, value={"a": 1}), context="line 3 is long", stopped="enough"
    )
    assert texts(answer) == ['{"a": 1}', "line 3 is long", "You must not go on: enough"]
    assert json.loads(result_of(answer, "2025-06-18"))["structuredContent"] == {"a": 1}
    refused = texts(Answer(call=CallId("c"), verdict=denial("hook:guard", "no"), context="try b"))
    assert refused[0].startswith("Refused by `hook:guard`: no.")
    assert refused[1:] == ["try b"]


def test_without_hooks_there_is_the_result_alone() -> None:
    assert texts(Answer(call=CallId("c"), verdict=ALLOWED, result=ToolResult(ok=True, value="x"))) == ["x"]
