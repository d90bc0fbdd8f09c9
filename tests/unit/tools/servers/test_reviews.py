"""What was reviewed: kept for us alone, compared with what is offered now, and never forgotten by itself."""

from pathlib import Path

import pytest

from curtainwall.model import Broken
from curtainwall.tools.servers import Review, Reviews
from tests.support.servers import all_offered

TOOL = {"name": "t", "description": "d", "inputSchema": {"type": "object"}}


def test_a_review_comes_back_as_it_was_and_is_for_us_alone(tmp_path: Path) -> None:
    reviews = Reviews(tmp_path / "servers")
    assert reviews.read("x") is None
    review = Review("about", all_offered([TOOL, {**TOOL, "name": "big", "description": "x" * 300_000}]), frozenset({"gone"}))
    reviews.write("x", review)
    assert reviews.read("x") == review
    assert (tmp_path / "servers" / "x.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "servers").iterdir()] == ["x.json"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"version": 2}', b'{"version": 1, "about": "", "changed": 3, "tools": []}', b"\xff"]
)
def test_a_damaged_review_is_not_taken_for_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(Broken, match="servers annotate x --write"):
        Reviews(tmp_path).read("x")


@pytest.mark.parametrize(
    "other",
    [
        {"description": "e"},
        {"title": "T"},
        {"inputSchema": {"type": "object", "properties": {"a": {}}}},
        {"annotations": {"readOnlyHint": True}},
        {"outputSchema": {}},
        {"description": "x" * 300_000},
    ],
)
def test_any_change_of_what_a_tool_says_is_seen_and_stays_seen(other: dict[str, object]) -> None:
    before = Review(tools=all_offered([TOOL]))
    seen = before.compared(all_offered([{**TOOL, **other}]))
    assert seen.changed == {"t"}
    assert seen.compared(all_offered([TOOL])).changed == {"t"}
    assert before.compared(all_offered([{**TOOL, "_meta": {"now": 1}}])).changed == frozenset()
    assert before.compared({}).changed == frozenset()


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a\n", "é", "x" * 200, 7, None, "-rf"])
def test_a_tool_without_a_name_that_we_could_use_is_left_out(name: object) -> None:
    assert all_offered([{**TOOL, "name": name}]) == {}  # type: ignore[dict-item] - wrong on purpose


def test_a_tool_that_is_there_twice_is_left_out() -> None:
    assert all_offered([TOOL, {**TOOL, "description": "other"}]) == {}
