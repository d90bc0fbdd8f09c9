"""Ids: sorted by time where many are made, short and unmistakable where a person types them."""

from hypothesis import given as for_all
from hypothesis import strategies as st

from curtainwall.model import HOUSE, SessionId, ordered_id, project_stream, session_of, session_stream, short_id
from tests.support.covers import covers

ALPHABET = set("0123456789abcdefghjkmnpqrstvwxyz")
TIMES = st.integers(0, 2**45 - 1)
ENTROPY = st.binary(min_size=16, max_size=16)


@covers("model.ids-sort-by-time")
@for_all(TIMES, TIMES, ENTROPY, ENTROPY)
def test_ordered_ids_sort_by_time(one: int, other: int, chance: bytes, another: bytes) -> None:
    if one < other:
        assert ordered_id(one, chance) < ordered_id(other, another)
    assert len(ordered_id(one, chance)) == 16
    assert set(ordered_id(one, chance)) <= ALPHABET


@covers("model.short-ids-can-be-typed")
@for_all(ENTROPY)
def test_short_ids_are_six_letters_that_nobody_mistakes(chance: bytes) -> None:
    assert len(short_id(chance)) == 6
    assert set(short_id(chance)) <= ALPHABET
    assert not set("ilou") & ALPHABET


def test_chance_tells_ids_apart() -> None:
    chances = [number.to_bytes(5, "big") for number in range(1_000)]
    assert len({ordered_id(1, chance) for chance in chances}) == 1_000
    assert len({short_id(chance[1:]) for chance in chances}) == 1_000


def test_streams_are_named_after_what_they_hold() -> None:
    assert session_stream(SessionId("s1")) == "session:s1"
    assert session_of(session_stream(SessionId("a:b"))) == "a:b"
    assert session_of(project_stream("/srv/project")) is None
    assert project_stream("/srv/project") == "project:/srv/project"
    assert session_of(HOUSE) is None
