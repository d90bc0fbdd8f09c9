"""Runs the tools that change the session itself, once they are permitted; `compose/gate.py` says how."""

from collections.abc import Awaitable, Callable, Mapping
from typing import cast

from curtainwall.model import (
    EGRESS_SERVER,
    FOLLOW_INSTRUCTIONS,
    PROPOSE_PLAN,
    BudgetKind,
    CallPermitted,
    Effect,
    Mode,
    Place,
    Prepared,
    SessionId,
    Subject,
    ToolResult,
    Verdict,
)
from curtainwall.tools import NATIVE_TOOLS, Runner

Raise = Callable[[SessionId, BudgetKind, float], Awaitable[float]]
"""Allows a session more of something and returns the new limit."""


def session_runners(allow_more: Raise) -> Mapping[str, Runner]:
    """Return the runners of the session's own tools."""

    async def request_budget(prepared: Prepared, _permit: CallPermitted, place: Place) -> ToolResult:
        kind, more = BudgetKind(str(prepared.arguments["what"])), float(cast("float", prepared.arguments["amount"]))
        limit = await allow_more(place.session, kind, more)
        return ToolResult(ok=True, value=f"the {kind} budget is {limit:g} now")

    async def follow_instructions(prepared: Prepared, _permit: CallPermitted, _place: Place) -> ToolResult:
        # The approval is all that is needed: the agent follows the new text from now on.
        return ToolResult(ok=True, value=f"`{prepared.arguments['path']}` counts as it is now")

    async def propose_plan(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        return ToolResult(ok=True, value=plan_outcome(prepared.subject, permit.verdict, place.mode))

    async def let_pass(_prepared: Prepared, _permit: CallPermitted, _place: Place) -> ToolResult:
        # The session's egress waits for this approval and then continues.
        return ToolResult(ok=True, value="it may pass")

    passing = dict.fromkeys((spec.full_name for spec in NATIVE_TOOLS if spec.server == EGRESS_SERVER), let_pass)
    return {
        **passing,
        "session.request_budget": request_budget,
        FOLLOW_INSTRUCTIONS: follow_instructions,
        PROPOSE_PLAN: propose_plan,
    }


def plan_outcome(plan: Subject, verdict: Verdict, mode: Mode) -> str:
    """Return the message to an agent about its approved plan."""
    asked = {finding.step for finding in verdict.findings if finding.effect is Effect.ASK}
    approved = [str(number) for number in range(1, len(plan.steps) + 1) if number - 1 in asked]
    free = [str(number) for number in range(1, len(plan.steps) + 1) if number - 1 not in asked]
    sentences = [f"approved, each once and exactly as listed: {', '.join(approved)}"] if approved else []
    sentences += [f"allowed without a question: {', '.join(free)}"] if free else []
    sentences += ["make the calls one by one; whatever is not in the list is judged as ever"]
    if mode is Mode.PLAN:
        sentences.append("the session is in plan mode, in which nothing is changed: a person has to leave it first")
    return "; ".join(sentences)
