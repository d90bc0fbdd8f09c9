"""What is said in rooms, cut to what an event can hold."""

import json

from hypothesis import given
from hypothesis import strategies as st

from curtainwall.channels.matrix.outbox import PIECE, RoomMessage, content_of, pieces, replacement


@given(st.text(alphabet="ab \n`", max_size=12_000))
def test_no_piece_is_longer_than_an_event_and_nothing_is_lost(text: str) -> None:
    found = pieces(text, 1_500)
    assert all(len(piece) <= PIECE + 60 for piece in found)
    assert [letter for letter in "".join(found) if letter in "ab"] == [letter for letter in text if letter in "ab"]


def test_code_that_is_cut_stays_code_in_every_piece() -> None:
    text = "```py\n" + "\n".join(f"line {number}" for number in range(2_000)) + "\n```"
    found = pieces(text, 1_500)
    assert len(found) > 1
    for piece in found:
        assert piece.startswith("```py\n")
        assert piece.rstrip().endswith("```")


def test_nobody_is_notified_by_what_an_agent_writes() -> None:
    assert content_of(RoomMessage("@room look"))["m.mentions"] == {}
    assert content_of(RoomMessage("an ask", mention=("@ann:example.org",)))["m.mentions"] == {"user_ids": ["@ann:example.org"]}


def test_where_both_forms_are_too_much_the_plain_one_is_enough() -> None:
    content = content_of(RoomMessage("x", html="&lt;" * 20_000))
    assert "formatted_body" not in content


def test_a_change_carries_the_new_content_once() -> None:
    words = RoomMessage("a" * 4_000, html="b" * 4_000)
    told = replacement("$e", content_of(words))
    assert told["m.relates_to"] == {"rel_type": "m.replace", "event_id": "$e"}
    assert len(json.dumps(told)) < 9_000
