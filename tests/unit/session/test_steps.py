"""Steps: what a session applied to its project and what was taken back follows from its log alone."""

from pydantic import JsonValue

from curtainwall.model import (
    APPLY_CHANGES,
    AnyEvent,
    CallDropped,
    CallFinished,
    CallId,
    CallPermitted,
    CallRequested,
    ChangeCard,
    ChangeKind,
    ChangeSet,
    Effect,
    FileChange,
    FileKind,
    FileState,
    Payload,
    PermitId,
    ShownFile,
    ToolEffect,
    Verdict,
)
from curtainwall.session import Application, StepHistory, change_steps
from tests.support.covers import covers
from tests.support.given import ANN, NOW, subject

FILE = FileState(kind=FileKind.FILE, digest="d", mode=0o644)
MANIFEST = ChangeSet(project="/p", changes=tuple(FileChange(path=path, kind=ChangeKind.ADDED, after=FILE) for path in "abc"))


def application(
    call: str, takes_back: str = "", *, ok: bool = True, value: JsonValue = "done", only: tuple[str, ...] | None = None
) -> list[AnyEvent]:
    """Return the events of one change set that was permitted and applied."""
    made = subject(APPLY_CHANGES, ToolEffect.MODIFY, changes=call * 8, **({"takes_back": takes_back} if takes_back else {}))
    made = made.model_copy(update={"changes": ChangeCard(summary="1 file", files=(ShownFile(path="a", words="added"),))})
    verdict, permit = Verdict(effect=Effect.ALLOW, because=(), reason=""), PermitId(f"p{call}")
    return [
        CallRequested(at=NOW, call=CallId(call), subject=made),
        CallPermitted(at=NOW, call=CallId(call), permit=permit, digest=made.digest, verdict=verdict, approved_by=ANN, only=only),
        CallFinished(at=NOW, call=CallId(call), permit=permit, ok=ok, result=Payload(inline=value)),
    ]


def steps_of(*applications: list[AnyEvent]) -> StepHistory:
    return change_steps((event for events in applications for event in events), lambda payload: payload.inline)


def where(steps: StepHistory) -> tuple[list[bool], list[int], list[int]]:
    """Return which steps are undone, and the order in which they would be undone and redone."""
    undone = [step.undone is not None for step in steps.steps]
    return undone, [step.number for step in steps.to_undo(9)], [step.number for step in steps.to_redo(9)]


@covers("undo.steps")
def test_undo_goes_back_and_redo_forward_in_order() -> None:
    both = (application("c1"), application("c2"))
    assert where(steps_of(*both)) == ([False, False], [2, 1], [])
    assert where(steps_of(*both, application("u2", "c2"))) == ([False, True], [1], [2])
    assert where(steps_of(*both, application("u2", "c2"), application("u1", "c1"))) == ([True, True], [], [1, 2])
    back = (*both, application("u2", "c2"), application("u1", "c1"), application("r1", "u1"))
    assert where(steps_of(*back)) == ([False, True], [1], [2])
    assert where(steps_of(*back, application("r2", "u2"))) == ([False, False], [2, 1], [])
    assert where(steps_of(*back, application("v1", "c1"))) == ([True, True], [], [1, 2])


@covers("undo.steps")
def test_something_new_ends_what_could_be_redone() -> None:
    steps = steps_of(application("c1"), application("c2"), application("u2", "c2"), application("c3"))
    assert where(steps) == ([False, True, False], [3, 1], [])
    assert [step.can_redo for step in steps.steps] == [False, False, False]


def test_the_same_step_taken_back_twice_counts_once() -> None:
    steps = steps_of(application("c1"), application("u1", "c1"), application("u2", "c1"), application("u3", "nothing"))
    assert where(steps) == ([True], [], [1])
    (step,) = steps.steps
    assert step.undone is not None
    assert step.undone.call == "u1"


def test_what_was_not_applied_is_no_step() -> None:
    failed = application("c1", ok=False, value="the changes could not be applied: no")
    nothing = application("c2", ok=False, value={"outcome": "1 change was left alone", "applied": 0, "left_alone": [0]})
    asked = application("c3")[:1]
    dropped = [*application("c4")[:2], CallDropped(at=NOW, call=CallId("c4"), why="gone")]
    assert steps_of(failed, nothing, asked, dropped) == StepHistory()
    # An undo that changed nothing leaves the step as it was.
    nothing = application("u1", "c1", ok=False, value={"outcome": "", "applied": 0, "left_alone": [0]})
    assert where(steps_of(application("c1"), nothing)) == ([False], [1], [])


@covers("undo.only-what-was-applied")
def test_a_step_is_what_was_chosen_without_what_was_left_alone() -> None:
    value: JsonValue = {"outcome": "…", "applied": 1, "left_alone": [1]}
    (step,) = steps_of(application("c1", ok=False, value=value, only=("a", "b"))).steps
    assert [change.path for change in step.accepted.applied(MANIFEST).changes] == ["a"]
    assert (step.accepted.by, step.accepted.at) == (ANN, NOW)
    whole = Application(call=CallId("c"), changes="", at=NOW)
    assert whole.applied(MANIFEST) == MANIFEST
