"""Calls of the tools of teams, and how they end together with the answer that they wait for."""

import json

import pytest

from curtainwall.model import MessageId, PeerAnswer, PeerStatus, SessionId
from curtainwall.teams.pair_sessions import Caller
from curtainwall.teams.tools import CallCompletion, TeamCall
from tests.support.stores import permitted


def ending(mask: str = "") -> CallCompletion:
    call = TeamCall(Caller(SessionId("s"), "shop"), {"toTeam": "backend", "question": "?"}, permitted())
    return CallCompletion(call, lambda value: f"{mask}{value}")


def answered(text: str) -> PeerAnswer:
    return PeerAnswer(message=MessageId("m"), status=PeerStatus.DONE, text=text)


@pytest.mark.parametrize(
    ("letter", "bytes_each"), [("x", 1), ("é", 2), ("字", 3), ("😀", 4), ("\n", 2), ("\x01", 6), ("\ud800", 3)], ids=repr
)
def test_an_outcome_is_written_along_with_an_answer_of_so_many_bytes_whatever_its_letters(letter: str, bytes_each: int) -> None:
    most = 4_000 // bytes_each
    assert ending().finish(answered(letter * (most + 1))) is None
    finished = ending().finish(answered(letter * most))
    assert finished is not None
    written = json.dumps(finished.result.inline, ensure_ascii=False).encode("utf-8", "surrogatepass")
    assert len(written) <= 4_000 + 100


def test_masks_that_make_an_outcome_long_leave_it_to_be_kept_like_any_other() -> None:
    assert ending("é" * 2_000).finish(answered("x" * 4_000)) is not None
    assert ending("é" * 2_001).finish(answered("x" * 4_000)) is None
