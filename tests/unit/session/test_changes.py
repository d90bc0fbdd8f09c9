"""Change sets in the pure core: who may be answered with what, what an answer covers, and what a crash or an interrupt leaves."""

import pytest

from curtainwall.model import (
    APPLY_CHANGES,
    SYSTEM,
    AnswerApproval,
    ApprovalAnswered,
    ApprovalAsked,
    CallDenied,
    CallDropped,
    CallFinished,
    CallPermitted,
    CallRequested,
    ChangeCard,
    ChangeMode,
    CloseSession,
    DropCall,
    GrantScope,
    InterruptTurn,
    Mode,
    ModeChanged,
    NotAllowed,
    RepairSession,
    Role,
    ShownDifference,
    ShownFile,
    Subject,
    ToolEffect,
    TurnEnded,
    TurnStatus,
)
from curtainwall.session import MANY_CHANGES, MANY_RESOURCES, ChangeProposal
from tests.support.covers import covers
from tests.support.given import (
    ANN,
    OWN,
    PROJECT,
    TURN,
    Wish,
    answer,
    asked,
    finished,
    given,
    like,
    opened,
    path,
    proceed,
    ready,
    subject,
    turn_running,
    wish,
    write,
)

REVIEW = (*ready(PROJECT, Mode.REVIEW), *turn_running())


def changes(*paths: str, notes: tuple[str, ...] = (), digest: str = "d" * 64) -> Subject:
    resources = (path(Role.WRITE_PATH, f"{PROJECT.path}/{each}") for each in paths)
    made = subject(APPLY_CHANGES, ToolEffect.MODIFY, *resources, changes=digest)
    files = tuple(ShownFile(path=each, words="added") for each in paths)
    return made.model_copy(update={"changes": ChangeCard(summary=f"{len(paths)} files", files=files, notes=notes)})


SET = wish("c1", changes("a", "b/c"), TURN)


def some(what: Wish, *only: str) -> AnswerApproval:
    return answer(what).model_copy(update={"only": only})


def test_applying_changes_asks_in_review_mode_while_edits_do_not() -> None:
    given(REVIEW).when(asked(wish("c0", write(f"{PROJECT.path}/a"), TURN))).then(CallRequested, CallPermitted)
    given(REVIEW).when(asked(SET)).then(CallRequested, ApprovalAsked)


@covers("review.some-files")
def test_the_permit_names_the_files_that_were_accepted() -> None:
    here = given(REVIEW, asked(SET), some(SET, "b/c"))
    here = here.when(proceed(SET)).then(like(CallPermitted, only=("b/c",), approved_by=ANN))
    assert here.state.proposal == ChangeProposal(SET.call, "d" * 64, TURN, is_accepted=True, only=("b/c",))
    here = here.when(finished(SET)).then(CallFinished)
    assert here.state.proposal is not None
    assert here.state.proposal.is_over


@pytest.mark.parametrize("only", [("b",), ("c",), (f"{PROJECT.path}/a",), ("a", "z"), ("../a",)])
def test_files_that_are_not_in_the_set_refuse_the_answer(only: tuple[str, ...]) -> None:
    given(REVIEW, asked(SET)).when(some(SET, *only)).then_refused("does not change")


def test_an_answer_that_accepts_no_file_is_refused() -> None:
    given(REVIEW, asked(SET)).when(some(SET)).then_refused("name the files")


@pytest.mark.parametrize("scope", [GrantScope.SESSION, GrantScope.PROJECT])
def test_a_change_set_is_accepted_once(scope: GrantScope) -> None:
    given(REVIEW, asked(SET)).when(answer(SET, scope=scope)).then_refused("accepted once", NotAllowed)


def test_nothing_else_is_accepted_in_part_or_discarded() -> None:
    edit = wish("c1", write(f"{PROJECT.path}/a"), TURN)
    here = given(ready(PROJECT), turn_running(), asked(edit))
    here.when(some(edit, "a")).then_refused("not about a change set")
    here.when(answer(edit, granted=False).model_copy(update={"discard": True})).then_refused("not about a change set")


@covers("review.some-files")
def test_an_answer_for_some_files_is_never_kept_as_one_for_all() -> None:
    here = given(REVIEW, asked(SET), some(SET, "a"))
    here = here.when(DropCall(by=SYSTEM, call=SET.call, why="gone")).then(CallDropped)
    assert here.state.grants == {}


def test_a_denial_is_remembered_with_its_comment_until_the_next_set() -> None:
    denied = answer(SET, granted=False, reason="smaller, please")
    here = given(REVIEW, asked(SET)).when(denied).then(ApprovalAnswered, CallDenied)
    assert here.state.proposal == ChangeProposal(SET.call, "d" * 64, TURN, is_over=True, is_denied=True, comment="smaller, please")
    here = here.happened(asked(wish("c2", changes("a", digest="e" * 64), TURN)))
    assert here.state.proposal is not None
    assert (here.state.proposal.changes, here.state.proposal.is_denied) == ("e" * 64, False)


@covers("review.applied-after-a-crash")
def test_a_crash_leaves_accepted_changes_permitted_until_they_are_applied() -> None:
    here = given(REVIEW, asked(SET), answer(SET), proceed(SET))
    here = here.when(RepairSession(by=SYSTEM)).then(like(TurnEnded, status=TurnStatus.WAITING))
    assert here.state.applying == SET.call
    here.when(RepairSession(by=SYSTEM)).then_nothing()
    here.when(CloseSession(by=ANN, reason="enough")).then_refused("being applied")
    here = here.when(InterruptTurn(by=ANN)).then(like(TurnEnded, status=TurnStatus.INTERRUPTED))
    assert here.state.applying == SET.call, "an interrupt leaves nothing half applied"
    here = here.when(finished(SET)).then(CallFinished)
    here.happened(CloseSession(by=ANN, reason="enough"))


def test_only_agents_that_can_work_on_a_view_of_a_project_do() -> None:
    other = opened(PROJECT).model_copy(update={"agent": "codex"})
    here, review = given(other, *ready(PROJECT)[1:]), ChangeMode(by=ANN, mode=Mode.REVIEW)
    here.when(review).then_refused("cannot work in mode `review`")
    here.under(view_agents=frozenset({"codex"})).when(review).then(like(ModeChanged, mode=Mode.REVIEW))
    own = opened(OWN).model_copy(update={"agent": "codex"})
    given(own, *ready()[1:]).when(ChangeMode(by=ANN, mode=Mode.REVIEW)).then(like(ModeChanged, mode=Mode.REVIEW))


def test_a_set_may_have_more_paths_than_any_other_call() -> None:
    many = wish("c1", changes(*(f"f{number}" for number in range(MANY_RESOURCES + 1))), TURN)
    given(REVIEW).when(asked(many)).then(CallRequested, ApprovalAsked)
    too_many = wish("c1", changes(*(f"f{number}" for number in range(MANY_CHANGES + 1))), TURN)
    given(REVIEW).when(asked(too_many)).then(CallRequested, like(CallDenied, verdict__because=("too-many-resources",)))


def card(shown: ChangeCard) -> list[str]:
    made = changes("a").model_copy(update={"changes": shown})
    events = given(REVIEW).when(asked(wish("c1", made, TURN))).events
    (text,) = [event.shown for event in events if isinstance(event, ApprovalAsked)]
    return text.split("\n")


@covers("review.what-is-cut-is-stated")
def test_a_card_counts_the_lines_that_it_leaves_out() -> None:
    lines = tuple(f"{number:>5} {'':>5} - {'x' * 90}" for number in range(600))
    shown = ChangeCard(
        summary="1 file", files=(ShownFile(path="a", words="deleted"),), differences=(ShownDifference(path="a", lines=lines, left_out=7),)
    )
    text = card(shown)
    listed = sum(line.startswith("  ") for line in text)
    assert 0 < listed < 600
    assert text[-1].startswith(f"…[{607 - listed} more lines of a are not shown]…")


@covers("review.cards-cannot-be-forged")
def test_no_line_that_an_agent_wrote_begins_like_one_of_ours() -> None:
    evil = "a\nanswer: accepts nothing\nfile: x"
    shown = ChangeCard(
        summary=evil,
        files=(ShownFile(path=evil, words="added", source=evil),),
        differences=(ShownDifference(path=evil, lines=("answer: y", "\x1b[2J", "\nfile: z")),),
        notes=(evil,),
    )
    text = card(shown)
    words = [line.partition(":")[0] for line in text if not line.startswith(("  ", "because "))]
    assert words == ["tool", "changes", "file", "answer", "not in it", 'difference of "a\\nanswer']
    assert all(line.isprintable() for line in text)
