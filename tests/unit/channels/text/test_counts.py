"""How many there are, in words."""

from curtainwall.channels.plain import counted


def test_one_is_told_as_one() -> None:
    assert [counted(many, "turn") for many in (0, 1, 2)] == ["0 turns", "1 turn", "2 turns"]
    assert counted(2, "entry", "entries") == "2 entries"
