"""Tools that change the session itself, once a human has said yes."""

from collections.abc import Awaitable, Callable, Mapping
from typing import cast

from curtainwall.model import (
    EGRESS_SERVER,
    FOLLOW_INSTRUCTIONS,
    PROPOSE_PLAN,
    BudgetKind,
    CallPermitted,
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
    """Return the tools of the session that this house can run."""

    async def request_budget(prepared: Prepared, _permit: CallPermitted, place: Place) -> ToolResult:
        kind, more = BudgetKind(str(prepared.arguments["what"])), float(cast("float", prepared.arguments["amount"]))
        limit = await allow_more(place.session, kind, more)
        return ToolResult(ok=True, value=f"the {kind} budget is {limit:g} now")

    async def follow_instructions(prepared: Prepared, _permit: CallPermitted, _place: Place) -> ToolResult:
        # The yes is all there is to it: the agent that asked goes by the new text from here on.
        return ToolResult(ok=True, value=f"`{prepared.arguments['path']}` counts as it is now")

    async def propose_plan(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        return ToolResult(ok=True, value=plan_outcome(prepared.subject, permit.verdict, place.mode))

    async def let_pass(_prepared: Prepared, _permit: CallPermitted, _place: Place) -> ToolResult:
        # The session's way to the network waits for this, and goes on with a yes.
        return ToolResult(ok=True, value="it may pass")

    passing = dict.fromkeys((spec.full_name for spec in NATIVE_TOOLS if spec.server == EGRESS_SERVER), let_pass)
    return {
        **passing,
        "session.request_budget": request_budget,
        FOLLOW_INSTRUCTIONS: follow_instructions,
        PROPOSE_PLAN: propose_plan,
    }


def plan_outcome(plan: Subject, verdict: Verdict, mode: Mode) -> str:
    """Return what an agent is told of its plan once it may go on."""
    asked = {finding.step for finding in verdict.asked}
    approved = [str(place) for place in range(1, len(plan.steps) + 1) if place - 1 in asked]
    free = [str(place) for place in range(1, len(plan.steps) + 1) if place - 1 not in asked]
    told = [f"approved, each once and exactly as listed: {', '.join(approved)}"] if approved else []
    told += [f"allowed without a question: {', '.join(free)}"] if free else []
    told += ["make the calls one by one; whatever is not in the list is judged as ever"]
    if mode is Mode.PLAN:
        told.append("the session is in plan mode, in which nothing is changed: a person has to leave it first")
    return "; ".join(told)
