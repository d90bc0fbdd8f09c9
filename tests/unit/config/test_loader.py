"""Where a key stands in the file."""

import pytest

from curtainwall.config.loader import line_of, parse_config
from curtainwall.config.schema import Config

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


def test_only_the_tables_that_are_there_are_prepared_and_the_result_is_the_same() -> None:
    tables: dict[str, object] = {"model": {"name": "demo"}, "channels": {"web": {"operators": ("ann",)}}, "hooks": "/home/ann/hooks.json"}
    for given in ({}, tables):
        assert Config.parse(given) == Config.model_validate(given)
        assert Config.parse(given).model_dump() == Config.model_validate(given).model_dump()


def test_everything_that_is_wrong_is_counted_wherever_it_is() -> None:
    with pytest.raises(ValueError, match=r"and 2 more"):
        parse_config('[model]\nnaem = "demo"\n[limits]\nsteps = 0\n[no-table]\nkey = 1\n')
