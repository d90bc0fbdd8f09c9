"""The lines around the input: what runs, what it costs, and what waits."""

import pytest

from curtainwall.channels.terminal.asks import keys_of
from curtainwall.channels.terminal.view import asks_lines, doing_line, status_line
from curtainwall.model import Basis, ChangeCard, ContextMeasured, ShownFile, TurnId
from curtainwall.operations.activity import SessionActivity
from tests.support.covers import covers
from tests.support.given import NOW, SESSION
from tests.unit.channels.slash.test_control import asking


def test_the_status_line_has_model_mode_context_money_and_asks() -> None:
    desk, hand, _ = asking("a.example")
    desk.happen(ContextMeasured(at=NOW, used=30, size=100, measured=False))
    hand.use(10, 0.25, Basis.ESTIMATED)
    assert status_line(desk.view(SESSION), 100) == "demo · mode default · context ~30% · ~$0.25 · 1 open ask"


def test_in_a_narrow_terminal_the_asks_stay_to_the_last() -> None:
    desk, _, _ = asking("a.example", "b.example")
    view = desk.view(SESSION)
    assert status_line(view, 36) == "demo · mode default · 2 open asks"
    assert status_line(view, 14) == "2 open asks"
    assert len(status_line(view, 5)) == 5


@pytest.mark.parametrize("width", [24, 40, 80])
def test_in_a_narrow_terminal_every_key_is_told_and_no_stands_beside_yes(width: int) -> None:
    desk, _, [ask] = asking("a.example")
    lines = asks_lines(list(desk.view(SESSION).pending), width, keys=True)
    assert lines[0].startswith(f"{ask}? y once · n deny")
    assert " · ".join(lines) == f"{ask}? y once · n deny · s session · p project · w why"
    assert all(len(line) <= width for line in lines)


def test_in_a_narrow_terminal_both_words_that_answer_are_told() -> None:
    desk, _, [ask] = asking("a.example")
    told = " ".join(asks_lines(list(desk.view(SESSION).pending), 40, keys=False))
    assert told == f"{ask} waits: `/approve {ask} [session|project]` or `/deny {ask} [reason]`"


@covers("review.no-lasting-answer-is-offered")
def test_no_key_is_offered_for_an_answer_that_would_be_refused() -> None:
    desk, _, _ = asking("a.example")
    (ask,) = desk.view(SESSION).pending
    changes = ask.subject.model_copy(update={"changes": ChangeCard(summary="1 file", files=(ShownFile(path="a", words="added"),))})
    asked = ask.model_copy(update={"subject": changes})
    assert asks_lines([asked], 80, keys=True) == [f"{ask.approval}? y once · n deny · w why"]
    assert keys_of(asked) == "ynw"


def test_money_that_nobody_counted_is_a_question_mark() -> None:
    desk, hand, _ = asking()
    hand.use(10, 0, Basis.UNKNOWN)
    assert "$?" in status_line(desk.view(SESSION), 100)


def test_what_runs_is_told_and_nothing_where_nothing_does() -> None:
    tale = SessionActivity()
    assert doing_line(tale, "x", 0, 80) == ""
    tale.turn = TurnId("t1")
    assert "thinking" in doing_line(tale, "", 0, 80)
    assert "reading a map\\x1b[2J" in doing_line(tale, "reading a map\x1b[2J", 0, 80)
    assert doing_line(tale, "", 0, 80)[0] != doing_line(tale, "", 100, 80)[0]
    tale.interrupting = True
    assert "stopping" in doing_line(tale, "", 0, 80)


@pytest.mark.parametrize("width", [12, 40, 80])
def test_how_to_answer_fits_the_terminal(width: int) -> None:
    hosts = [f"h{n}.example" for n in range(7)]
    desk, _, approvals = asking(*hosts)
    asks = list(desk.view(SESSION).pending)
    assert all(len(line) <= width for line in asks_lines(asks, width, keys=True))
    assert asks_lines(asks, 80, keys=True)[-1] == "and 2 more"
    assert "y once" in asks_lines(asks[:1], 80, keys=True)[0]
    assert f"/deny {approvals[0]}" in asks_lines(asks[:1], 80, keys=False)[-1]
    assert asks_lines([], 80, keys=True) == []
