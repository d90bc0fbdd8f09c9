"""Where a key stands in the file."""

import pytest

from curtainwall.config.loader import line_of

TEXT = """\
# a comment with lists.hosts = 1
[lists]
hosts = ["a"]
"push-remotes" = []

[channels."my room"]
operators = ["ann"]
[[servers.x.tools]]
effect = "no"
limits.tokens = 1
"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("lists", "hosts"), 3),
        (("lists", "hosts", 0), 3),
        (("lists", "push-remotes"), 4),
        (("lists", "missing"), 2),
        (("channels", "my room", "operators", 0), 7),
        (("servers", "x", "tools", 0, "effect"), 9),
        (("nowhere",), None),
        ((), None),
    ],
)
def test_a_key_is_found_where_it_is_written_and_a_missing_one_at_its_table(place: tuple[str | int, ...], line: int | None) -> None:
    assert line_of(TEXT, place) == line
