"""What a plan means: every call that it lists, prepared as it would be on its own."""

from collections.abc import Callable
from typing import cast

from pydantic import JsonValue

from curtainwall.model import PROPOSE_PLAN, BadCall, Prepared, Subject, subject_digest
from curtainwall.tools.schema_check import RULE

PrepareCall = Callable[[str, JsonValue], Prepared]
"""Prepares one call, or raises `BadCall`."""


def plan_of(plan: Prepared, prepare: PrepareCall) -> Prepared:
    """Return the plan with its steps; raise `BadCall` that says which step means nothing."""
    listed = cast("list[dict[str, JsonValue]]", plan.arguments["steps"])
    steps = tuple(_step(place, each, prepare) for place, each in enumerate(listed, 1))
    # Each step's own digest is part of the plan's: what a step means, down to its last argument, is what the plan means.
    canonical: dict[str, JsonValue] = {"steps": [{"tool": step.tool, "digest": step.digest} for step in steps]}
    raw: dict[str, JsonValue] = {"steps": [{"tool": step.tool, "arguments": dict(step.raw)} for step in steps]}
    of_plan = plan.subject
    told = {
        "raw": raw,
        "canonical": canonical,
        "digest": subject_digest(of_plan.kind, of_plan.tool, canonical, of_plan.resources),
        "masked": any(step.masked for step in steps),
        "hidden": {mask: outline for step in steps for mask, outline in step.hidden.items()},
        "steps": steps,
    }
    return Prepared(subject=of_plan.model_copy(update=told), arguments=canonical)


def _step(place: int, step: dict[str, JsonValue], prepare: PrepareCall) -> Subject:
    tool = str(step["tool"])
    if tool == PROPOSE_PLAN:
        raise BadCall(RULE, f"step {place} of the plan is a plan; list its steps here")
    try:
        return prepare(tool, step["arguments"]).subject
    except BadCall as bad:
        raise BadCall(bad.rule, f"step {place} of the plan: {bad}") from bad
