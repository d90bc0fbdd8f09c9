"""Steps: which accepted change sets a session has applied to its project, and which of them were taken back since; a fold of its log."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import assert_never

from pydantic import JsonValue

from curtainwall.model import (
    APPLIED,
    APPLY_CHANGES,
    LEFT_ALONE,
    TAKES_BACK,
    AnyEvent,
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallId,
    CallLost,
    CallPermitted,
    CallRequested,
    ChangeSet,
    Millis,
    Payload,
    Who,
    record,
)


@record
class Application:
    """One change set that was applied to the project, in whole or in part."""

    call: CallId
    changes: str
    at: Millis
    by: Who | None = None
    only: tuple[str, ...] | None = None
    left_alone: frozenset[int] = frozenset()

    def applied(self, manifest: ChangeSet) -> ChangeSet:
        """Return exactly what was applied of the change set."""
        accepted = manifest if self.only is None else manifest.only(self.only)
        chosen = {change.path for change in accepted.changes}
        changes = (change for number, change in enumerate(manifest.changes) if change.path in chosen and number not in self.left_alone)
        return ChangeSet(project=manifest.project, changes=tuple(changes))


@record
class AcceptedStep:
    """One accepted change set, and the application that took it back, if any. Only what was taken back last can be redone."""

    number: int
    accepted: Application
    undone: Application | None = None
    can_redo: bool = False


@record
class StepHistory:
    """The steps of a session, in the order in which they were accepted. `undone` are those that can be redone, the next one last."""

    steps: tuple[AcceptedStep, ...] = ()
    undone: tuple[int, ...] = ()

    def to_undo(self, count: int) -> tuple[AcceptedStep, ...]:
        """Return the steps that would be taken back next, the newest first; fewer than `count` if there are no more."""
        return tuple(step for step in reversed(self.steps) if step.undone is None)[:count]

    def to_redo(self, count: int) -> tuple[AcceptedStep, ...]:
        """Return the steps that would be applied again next; fewer than `count` if there are no more."""
        by_number = {step.number: step for step in self.steps}
        return tuple(by_number[number] for number in reversed(self.undone))[:count]

    def with_application(self, done: Application, takes_back: str) -> "StepHistory":
        """Return the steps after one more application: a new step, or one that takes an earlier application back."""
        if not takes_back:
            # As in every editor: what was undone cannot be redone on top of something else.
            others = tuple(replace(step, can_redo=False) for step in self.steps)
            return StepHistory(steps=(*others, AcceptedStep(len(others) + 1, done)))
        for step in self.steps:
            if step.undone is None and step.accepted.call == takes_back:
                return self._with(replace(step, undone=done, can_redo=True), (*self.undone, step.number))
            if step.undone is not None and step.undone.call == takes_back:
                others = tuple(number for number in self.undone if number != step.number)
                return self._with(replace(step, undone=None, can_redo=False), others)
        return self

    def _with(self, changed: AcceptedStep, undone: tuple[int, ...]) -> "StepHistory":
        steps = tuple(changed if step.number == changed.number else step for step in self.steps)
        return StepHistory(steps=steps, undone=undone)


def change_steps(events: Iterable[AnyEvent], load: Callable[[Payload], JsonValue]) -> StepHistory:
    """Return the steps of a session; `load` returns what an outcome says."""
    steps = StepHistory()
    open_: dict[CallId, tuple[Application, str]] = {}
    for event in events:
        if not isinstance(event, CallEvent):
            continue
        begun, takes_back = open_.get(event.call, (None, ""))
        match event:
            case CallRequested(subject=subject):
                if subject.tool == APPLY_CHANGES and subject.changes is not None:
                    made = Application(call=event.call, changes=str(subject.canonical.get("changes", "")), at=event.at)
                    open_[event.call] = made, str(subject.canonical.get(TAKES_BACK, ""))
            case CallPermitted():
                if begun is not None:
                    open_[event.call] = replace(begun, by=event.approved_by, only=event.only), takes_back
            case CallFinished():
                left_alone = None if begun is None else _left_alone(event, load)
                if begun is not None and left_alone is not None:
                    steps = steps.with_application(replace(begun, at=event.at, left_alone=left_alone), takes_back)
                open_.pop(event.call, None)
            case CallDenied() | CallDropped() | CallLost():
                open_.pop(event.call, None)
            case _:
                assert_never(event)
    return steps


def _left_alone(event: CallFinished, load: Callable[[Payload], JsonValue]) -> frozenset[int] | None:
    """Return the positions of the changes that were not applied; None if none was."""
    if event.ok:
        return frozenset()
    outcome = load(event.result)
    if not isinstance(outcome, dict) or not outcome.get(APPLIED):
        return None
    numbers = outcome.get(LEFT_ALONE)
    return frozenset(number for number in numbers if isinstance(number, int)) if isinstance(numbers, list) else None
