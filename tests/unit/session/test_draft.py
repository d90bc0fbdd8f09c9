"""Drafts: a command is decided and applied in one piece, and one that is refused changes nothing."""

from collections.abc import Callable

import pytest

from curtainwall.model import (
    SYSTEM,
    AnyCommand,
    ApprovalAnswered,
    CommandRefused,
    DeliverMessage,
    GrantGiven,
    GrantScope,
    MessageId,
    Payload,
    Peer,
    PeerStatus,
    ProgramSaved,
    RenameSession,
    RequestCall,
    SavedProgram,
    SessionId,
    TakePeerAnswer,
)
from curtainwall.session import Decided, Rules, SessionRules, SessionState, decide_on, draft_after, fold
from tests.support.given import ANN, PROJECT, RULES, TURN, answer, asked, given, moment, push, ready, turn_running, wish, write

PUSH = wish("c1", push("github.com/me/r"))
EDIT = wish("c2", write("/srv/project/a"))
PROGRAM = SavedProgram(program="p1", step=3, state=Payload(inline="…"))


def of_program(command: RequestCall) -> RequestCall:
    return command.model_copy(update={"turn": TURN, "of_program": True})


def decided(draft: SessionState, command: AnyCommand, rules: Callable[[], Rules] = lambda: RULES, *, can_save: bool = False) -> Decided:
    return decide_on(draft, command, SessionRules(rules, draft.opened, {}), moment(), can_save=can_save)


def no_rules() -> Rules:
    raise AssertionError("no rules are needed")


def test_the_draft_goes_on_by_what_was_decided() -> None:
    state = given(ready()).state
    draft = state.copy()
    made = decided(draft, asked(PUSH))
    assert draft == fold(made.events, state) != state
    assert (made.own, made.for_project, made.posts, made.refusal) == (made.events, (), (), None)


def test_a_command_that_is_refused_changes_nothing() -> None:
    state = given(ready()).state
    draft = state.copy()
    made = decided(draft, RenameSession(by=ANN, name=" "))
    assert str(made.refusal) == "a name cannot be empty"
    assert (draft, made.events, made.own, made.needs_program) == (state, (), (), False)


def test_whoever_sent_a_message_that_is_refused_is_told() -> None:
    peer = Peer(session=SessionId("s2"), team="web", path=("web",))
    made = decided(SessionState(), DeliverMessage(by=SYSTEM, message=MessageId("m1"), text="hello", peer=peer))
    assert isinstance(made.refusal, CommandRefused)
    [post] = made.posts
    assert post.stream == "session:s2"
    assert isinstance(post.command, TakePeerAnswer)
    assert post.command.answer.status is PeerStatus.REFUSED


def test_rules_are_asked_for_only_where_a_command_needs_some_and_then_once() -> None:
    draft = given(ready(), asked(PUSH)).state.copy()
    assert isinstance(decided(draft, answer(PUSH), no_rules).events[0], ApprovalAnswered)
    times: list[int] = []
    rules = SessionRules(lambda: times.append(1) or RULES, draft.opened, {})
    for name in ("one", "two"):
        decide_on(draft, RenameSession(by=ANN, name=name), rules, moment(), can_save=False)
    assert times == [1]


def test_nothing_is_decided_while_rules_do_not_load() -> None:
    state = given(ready()).state
    draft = state.copy()
    with pytest.raises(AssertionError, match="no rules are needed"):
        decided(draft, asked(PUSH), no_rules)
    assert draft == state


def test_a_call_that_waits_is_refused_where_its_program_cannot_be_saved() -> None:
    state = given(ready(), turn_running()).state
    draft = state.copy()
    made = decided(draft, of_program(asked(PUSH)))
    assert str(made.refusal) == "the program that makes this call has to be saved along with it"
    assert draft == state


def test_a_program_that_was_saved_is_written_along_with_its_call() -> None:
    state, command = given(ready(), turn_running()).state, of_program(asked(PUSH))
    draft = state.copy()
    made = decided(draft, command, can_save=True)
    assert made.needs_program
    saved = made.with_program(command, PROGRAM)
    assert (saved.events[:-1], isinstance(saved.events[-1], ProgramSaved), saved.needs_program) == (made.events, True, False)
    after = draft_after(state, (saved,))
    assert (draft.program, after.program) == (None, PROGRAM)
    assert after == fold(saved.events, state)


def test_a_grant_for_the_project_is_for_the_log_of_the_project_alone() -> None:
    here = given(ready(workspace=PROJECT), asked(EDIT))
    draft = here.state.copy()
    made = decided(draft, answer(EDIT, scope=GrantScope.PROJECT))
    assert [type(event) for event in made.events] == [ApprovalAnswered, GrantGiven]
    assert [type(event) for event in made.own] == [ApprovalAnswered]
    assert [type(event) for event in made.for_project] == [GrantGiven]
    assert draft.grants == {}
