"""`curtainwall sessions changes`, `diff`, `undo` and `redo`: what sessions changed in their projects, and taking it back."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from curtainwall.cli import loop
from curtainwall.cli.screen import Output, OutputOption, YesOption, confirm, note, show, show_json, timestamp
from curtainwall.compose.store import open_store
from curtainwall.host.home import Home, find_home
from curtainwall.host.user import local_user
from curtainwall.operations.lookup import find_session

if TYPE_CHECKING:
    from curtainwall.operations.history import PlannedSteps, StepOutcome
    from curtainwall.operations.presented import PresentedChanges
    from curtainwall.session import StepHistory

IdArgument = Annotated[str, typer.Argument(metavar="SESSION", help="its id, or the beginning of it")]


def changes(session: IdArgument, output: OutputOption = Output.TEXT) -> None:
    """List what a session last presented as changes of its project, how that was answered, and the steps that were applied."""
    # Start-up time: listings need none of this.
    from curtainwall.operations.history import step_lines
    from curtainwall.operations.presented import change_lines

    presented, steps = _presented(find_home(), session)
    if output is Output.JSON:
        show_json(
            {
                "project": presented.changes.project,
                "changes": presented.changes.digest,
                "status": presented.status,
                "only": None if presented.only is None else list(presented.only),
                "files": [
                    {
                        "path": change.file.path,
                        "was": change.file.source or None,
                        "words": change.file.words,
                        "runs_later": change.file.runs_later,
                    }
                    for change in presented.described
                ],
                "steps": _steps_json(steps),
            }
        )
        return
    show("\n".join((*change_lines(presented), *step_lines(steps))))


def diff(
    session: IdArgument,
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE…]", help="only these, as they are listed")] = None,
) -> None:
    """Show line by line what a session last presented as changes of its project; secrets are masked."""
    # Start-up time: listings need none of this.
    from curtainwall.operations.presented import difference_lines

    show("\n".join(difference_lines(_presented(find_home(), session, files or ())[0], files or ())))


StepsOption = Annotated[int, typer.Option("--steps", min=1, metavar="N", help="how many, the last one first")]
ForceOption = Annotated[
    bool, typer.Option("--force", help="also where files were changed since: shows what would be lost, and overwrites it")
]


def undo(
    session: IdArgument, steps: StepsOption = 1, yes: YesOption = False, force: ForceOption = False, output: OutputOption = Output.TEXT
) -> None:
    """Take back what was accepted and applied last in a session's project; refused if a file was changed since."""
    _go(session, steps, redo=False, yes=yes, force=force, output=output)


def redo(
    session: IdArgument, steps: StepsOption = 1, yes: YesOption = False, force: ForceOption = False, output: OutputOption = Output.TEXT
) -> None:
    """Apply again what was last taken back in a session's project; refused if a file was changed since."""
    _go(session, steps, redo=True, yes=yes, force=force, output=output)


def _go(session: str, count: int, *, redo: bool, yes: bool, force: bool, output: Output) -> None:
    # Start-up time: listings need none of this.
    from curtainwall.compose.gate import open_gate
    from curtainwall.compose.setup import load_setup
    from curtainwall.model import StepsAsked
    from curtainwall.operations.history import outcome_words, plan_lines

    setup, by = load_setup(), local_user()
    with open_store(setup.home) as store:
        row = find_session(store.index, session)

    async def plan() -> "PlannedSteps":
        async with open_gate(setup) as wired:
            return await wired.history().plan(row.session, by, StepsAsked(redo=redo, count=count, force=force))

    async def carry_out(planned: "PlannedSteps") -> "tuple[StepOutcome, ...]":
        async with open_gate(setup) as wired:
            return await wired.history().carry_out(planned, by)

    # Nothing is held while a person reads.
    planned = loop.run(plan())
    if output is Output.TEXT or not yes:
        lines = "\n".join(plan_lines(planned))
        show(lines) if output is Output.TEXT else note(lines)
    confirm("apply this again?" if redo else "take this back?", yes=yes)
    outcomes = loop.run(carry_out(planned))
    if output is Output.JSON:
        show_json(_outcome_json(planned, outcomes))
    else:
        for outcome in outcomes:
            words = outcome_words(planned, outcome)
            show(words) if outcome.is_done else note(words)
    if not all(outcome.is_done for outcome in outcomes):
        raise typer.Exit(1)


def _outcome_json(planned: "PlannedSteps", outcomes: "tuple[StepOutcome, ...]") -> dict[str, object]:
    by_number = {outcome.number: outcome for outcome in outcomes}
    return {
        "session": planned.session,
        "action": "redo" if planned.asked.redo else "undo",
        "steps": [
            {
                "step": step.step.number,
                "done": step.step.number in by_number and by_number[step.step.number].is_done,
                "outcome": by_number[step.step.number].words if step.step.number in by_number else None,
                "changes": step.changes.digest,
                "files": [{"path": file.path, "was": file.source or None, "words": file.words} for file in step.files],
                "overwritten": [it.path for it in step.obstacles if it.is_forcible],
                "left_out": [{"path": it.path, "why": it.why} for it in step.obstacles if not it.is_forcible],
            }
            for step in planned.steps
        ],
    }


def _steps_json(steps: "StepHistory") -> list[dict[str, object]]:
    # Start-up time: listings need none of this.
    from curtainwall.operations.history import step_status

    return [
        {
            "step": step.number,
            "status": step_status(step),
            "undone": step.undone is not None,
            "can_redo": step.can_redo,
            "changes": step.accepted.changes,
            "applied": timestamp(step.accepted.at),
            "by": None if step.accepted.by is None else str(step.accepted.by),
        }
        for step in steps.steps
    ]


def _presented(home: Home, session: str, whole: Collection[str] = ()) -> "tuple[PresentedChanges, StepHistory]":
    # Start-up time: listings need none of this.
    from curtainwall.compose.masker import judging_masker
    from curtainwall.host import ViewsOfSessions
    from curtainwall.model import session_stream
    from curtainwall.operations.history import load_outcome
    from curtainwall.operations.presented import presented_changes
    from curtainwall.session import change_steps, fold, lift

    with open_store(home) as store:
        row = find_session(store.index, session)
        events = [lift(entry) for entry in store.log.read(session_stream(row.session))]
        presented = presented_changes(fold(events), store.blobs, ViewsOfSessions(home), judging_masker(home), whole)
        return presented, change_steps(events, load_outcome(store.blobs))
