"""Plans: several calls shown and answered as one, and the answers that stand for each of them afterwards."""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from curtainwall.model import SHELL_RUN, CallId, Grant, GrantGiven, GrantScope, Label, LabelSource, Mode, Moment, Subject, Verdict, Who
from curtainwall.session.card import READ_ONLY, hidden_lines, label_lines, spelt_whole
from curtainwall.session.standing_answers import covers_of

LONGEST_PLAN: Final = 32_000
"""How many letters a plan's card may have: one that cannot be shown whole is not shown at all."""

_TERMS = "a yes lets each step that asks run once without a further question, as long as it is exactly this and no other rule asks"
_WAITS = "plan mode is on: nothing of this runs before somebody has changed the mode"


def plan_text(subject: Subject, verdict: Verdict, labels: Mapping[Label, LabelSource], mode: Mode, *, read_only: bool) -> str:
    """Return what the approval of a plan shows: every step as it would run, uncut, what it asks for and because of which rules."""
    # INVARIANT: each line starts with a word of ours, so nothing that an agent wrote can pass for another line.
    lines = [f"tool: {spelt_whole(subject.tool)}", f"plan of {_counted(len(subject.steps))}: {_TERMS}"]
    if mode is Mode.PLAN:
        lines.append(_WAITS)
    if verdict.reason:
        lines.append(f"because {spelt_whole(verdict.reason)}")
    lines += label_lines(labels)
    for place, step in enumerate(subject.steps):
        lines += _step_lines(place, step, verdict, subject)
        if read_only and step.tool == SHELL_RUN:
            lines.append(READ_ONLY)
    return "\n".join(lines)


def step_grants(subject: Subject, verdict: Verdict, by: Who, call: CallId, moment: Moment) -> tuple[GrantGiven, ...]:
    """Return one answer for every listed step that asks, good for that exact call, once.

    INVARIANT: what a plan answers is in its list: each of these has the digest of one step and the rules that were shown for it.
    """
    plan = moment.grant_id(f"{call}:plan")
    given: list[GrantGiven] = []
    for place, step in enumerate(subject.steps):
        covers = covers_of(_of_step(verdict, place), subject)
        if covers:
            id_ = moment.grant_id(f"{call}:{place}")
            grant = Grant(id=id_, scope=GrantScope.ONCE, covers=covers, by=by, at=moment.at, digest=step.digest, plan=plan)
            given.append(GrantGiven(at=moment.at, grant=grant))
    return tuple(given)


def _of_step(verdict: Verdict, place: int) -> Verdict:
    return verdict.model_copy(update={"findings": tuple(finding for finding in verdict.findings if finding.step == place)})


def _step_lines(place: int, step: Subject, verdict: Verdict, plan: Subject) -> Iterator[str]:
    covers = covers_of(_of_step(verdict, place), plan)
    yield f"step {place + 1}: {spelt_whole(step.tool)}, {'which asks' if covers else 'which is allowed anyway'}"
    yield from (f"wants {cover.role} {spelt_whole(cover.value)} ({spelt_whole(', '.join(cover.rules))})" for cover in covers)
    yield from hidden_lines(step)
    yield from (f"with {spelt_whole(name)}: {spelt_whole(json.dumps(value, ensure_ascii=False))}" for name, value in step.canonical.items())


def _counted(steps: int) -> str:
    return "1 step" if steps == 1 else f"{steps} steps"
