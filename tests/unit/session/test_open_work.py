"""What is open in a session: the same for everybody who reads its log, from wherever they begin."""

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import fields

import pytest

import curtainwall.session
from curtainwall.model import (
    AnyCommand,
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalId,
    ApprovalJoined,
    CallDropped,
    CallFinished,
    CallId,
    CallPermitted,
    Payload,
    ProgramFinished,
    ProgramSaved,
    SavedProgram,
    TurnEnded,
    TurnStatus,
)
from curtainwall.session import CallStatus, OpenWork, fold
from curtainwall.session.open_work import pending_ask, take
from tests.support.given import NOW, TURN, answer, asked, fetch, finished, given, proceed, push, ready, requested, turn_running, wish

FETCH = wish("c1", fetch("a.example"), TURN)
PUSH = wish("c2", push("github.com/me/r"), TURN)
SAME = PUSH.again("c3")


def folded(events: Iterable[AnyEvent]) -> OpenWork:
    work = OpenWork()
    for event in events:
        take(work, event)
    return work


@pytest.mark.parametrize(
    "steps",
    [
        (),
        (asked(FETCH), asked(PUSH)),
        (asked(PUSH), requested(SAME), answer(PUSH)),
        (asked(PUSH), requested(SAME), answer(PUSH), proceed(PUSH), finished(PUSH)),
        (asked(PUSH), answer(PUSH, granted=False)),
    ],
    ids=len,
)
def test_a_reader_sees_the_same_open_work_as_the_session_that_decides(steps: tuple[AnyCommand, ...]) -> None:
    here = given(ready(), turn_running(), *steps)
    work = folded(here.log)
    for item in fields(OpenWork):
        assert getattr(work, item.name) == getattr(here.state, item.name)


def test_a_call_waits_until_its_ask_is_answered_and_then_is_granted_until_it_runs() -> None:
    here = given(ready(), turn_running(), asked(PUSH))
    assert (here.state.is_asked(PUSH.call), here.state.is_granted(PUSH.call)) == (True, False)
    here = here.happened(answer(PUSH))
    assert (here.state.is_asked(PUSH.call), here.state.is_granted(PUSH.call)) == (False, True)
    here = here.happened(proceed(PUSH))
    assert (here.state.is_asked(PUSH.call), here.state.is_granted(PUSH.call)) == (False, False)
    assert here.state.permitted == (PUSH.call,)


def test_a_call_that_joined_an_ask_is_granted_with_it() -> None:
    here = given(ready(), turn_running(), asked(PUSH), requested(SAME))
    assert here.state.is_asked(SAME.call)
    here = here.happened(answer(PUSH))
    assert here.state.is_granted(SAME.call)
    assert here.state.calls[SAME.call].standing is CallStatus.ASKED
    here = here.happened(proceed(PUSH))
    assert here.state.is_granted(SAME.call), "it shares what comes of the first"


def test_a_call_that_is_asked_about_anew_waits_again() -> None:
    work = given(ready(), turn_running(), asked(PUSH), answer(PUSH)).log
    first = next(event for event in work if isinstance(event, ApprovalAsked))
    again = first.model_copy(update={"approval": ApprovalId("again")})
    after = folded((*work, again))
    assert (after.is_asked(PUSH.call), after.is_granted(PUSH.call)) == (True, False)


def test_running_calls_are_in_the_order_of_their_permits() -> None:
    here = given(ready(), turn_running(), asked(FETCH), asked(PUSH), answer(PUSH), proceed(PUSH), answer(FETCH), proceed(FETCH))
    assert here.state.permitted == (PUSH.call, FETCH.call)
    assert list(here.state.calls) == [FETCH.call, PUSH.call]
    assert here.happened(finished(PUSH)).state.permitted == (FETCH.call,)


def test_a_log_can_be_read_from_the_middle() -> None:
    log = given(ready(), turn_running(), asked(PUSH), requested(SAME), answer(PUSH), proceed(PUSH), finished(PUSH)).log
    kinds = (ApprovalAsked, ApprovalJoined, ApprovalAnswered, CallPermitted, CallFinished, CallDropped)
    places = {kind: next(place for place, event in enumerate(log) if isinstance(event, kind)) for kind in kinds}
    assert list(folded(log[places[ApprovalAsked] : places[ApprovalJoined]]).approvals) != [], "an ask counts though its call is unknown"
    assert folded(log[places[CallPermitted] : places[CallFinished]]).permitted == (PUSH.call,)
    for place in places.values():
        work = folded(log[place:])
        assert (work.approvals, work.permitted, work.is_asked(PUSH.call), work.is_granted(PUSH.call)) == ({}, (), False, False)


def test_a_program_waits_at_the_furthest_place_until_it_or_its_turn_is_over() -> None:
    def saved(step: int) -> ProgramSaved:
        program = SavedProgram(program="p1", step=step, state=Payload(inline=step))
        return ProgramSaved(at=NOW, turn=TURN, call=CallId(f"c{step}"), program=program)

    log = (*given(ready(), turn_running()).log, saved(2), saved(1))
    waiting = folded(log).program
    assert waiting is not None
    assert waiting.step == 2
    assert folded((*log, TurnEnded(at=NOW, turn=TURN, status=TurnStatus.WAITING))).program == waiting
    assert folded((*log, TurnEnded(at=NOW, turn=TURN, status=TurnStatus.FAILED))).program is None
    assert folded((*log, ProgramFinished(at=NOW, turn=TURN, program="p1", ok=True, shown=Payload()))).program is None
    assert folded((*log, ProgramFinished(at=NOW, turn=TURN, program="p0", ok=True, shown=Payload()))).program == waiting


def test_an_ask_is_shown_with_its_call_its_rules_and_how_many_share_it() -> None:
    state = fold(given(ready(), turn_running(), asked(PUSH), requested(SAME)).log)
    (open_,) = state.approvals.values()
    ask = pending_ask(open_, state.calls[PUSH.call].subject)
    assert (ask.call, ask.subject.tool, ask.shared_by, ask.shown) == (PUSH.call, "git.push", 2, open_.asked.shown)
    assert ask.because


def test_open_work_is_loaded_without_the_rest_of_the_core() -> None:
    code = "import sys, curtainwall.session.open_work; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    others = {name for name in loaded if name.startswith("curtainwall.") and not name.startswith("curtainwall.model")}
    assert others == {"curtainwall.session", "curtainwall.session.open_work"}
    assert "cedarpy" not in loaded


def test_the_core_gives_its_public_names_whichever_part_was_loaded_first() -> None:
    code = """
import curtainwall.session as it
from curtainwall.model.lazy_names import exports_of
print(*(name for name in exports_of(it.__name__) if type(getattr(it, name)).__name__ == "module"))
"""
    for first in ("open_work", "state", "decide", "replay"):
        done = subprocess.run(
            [sys.executable, "-c", f"import curtainwall.session.{first}{code}"], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == []
    name = "nothing_of_this_name"
    with pytest.raises(AttributeError, match=name):
        getattr(curtainwall.session, name)
