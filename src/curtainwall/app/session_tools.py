"""Tools that change the session itself, once a human has said yes."""

from collections.abc import Awaitable, Callable, Mapping
from typing import cast

from curtainwall.model import EGRESS_SERVER, BudgetKind, CallPermitted, Place, Prepared, SessionId, ToolResult
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

    async def let_pass(_prepared: Prepared, _permit: CallPermitted, _place: Place) -> ToolResult:
        # The session's way to the network waits for this, and goes on with a yes.
        return ToolResult(ok=True, value="it may pass")

    passing = dict.fromkeys((spec.full_name for spec in NATIVE_TOOLS if spec.server == EGRESS_SERVER), let_pass)
    return {"session.request_budget": request_budget, "session.follow_instructions": follow_instructions, **passing}
