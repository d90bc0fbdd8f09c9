"""What servers give back, as one value."""

from typing import Any

import pytest

from curtainwall.tools.servers.calls import LARGEST, call_result


def text(*texts: str) -> list[Any]:
    return [{"type": "text", "text": one} for one in texts]


@pytest.mark.parametrize(
    ("told", "value"),
    [
        ({"content": text("a")}, "a"),
        ({"content": text("a", "b")}, ["a", "b"]),
        ({"content": []}, []),
        ({}, []),
        ({"content": text('{"a": 1}'), "structuredContent": {"a": 1}}, {"a": 1}),
        ({"content": text("a"), "structuredContent": {"content": "a"}}, "a"),
        ({"content": text("a"), "structuredContent": {"b": 2}}, {"content": "a", "structured": {"b": 2}}),
        ({"content": [], "structuredContent": [1]}, [1]),
        ({"content": [{"type": "resource", "resource": {"uri": "x:y", "text": "inside"}}]}, "inside"),
        (
            {"content": [{"type": "resource_link", "uri": "x:y", "name": "n"}]},
            {"type": "resource_link", "uri": "x:y", "name": "n", "description": None, "mimeType": None},
        ),
        ({"content": [{"type": "image", "data": "%%", "mimeType": 7}]}, {"type": "image", "note": "it cannot be read", "mimeType": None}),
        ({"content": ["x", {"type": "hologram"}]}, ["[something that is no content]", "[content of a kind that is not known here]"]),
    ],
)
def test_content_becomes_a_value(told: dict[str, Any], value: Any) -> None:
    assert call_result(told).value == value
    assert call_result(told).ok


def test_an_error_is_an_outcome_that_is_not_ok() -> None:
    assert not call_result({"content": text("no"), "isError": True}).ok
    asking = call_result({"resultType": "input_required", "inputRequests": {}})
    assert not asking.ok
    assert "wants to ask" in str(asking.value)


def test_what_is_too_big_is_cut_and_says_so() -> None:
    value = call_result({"content": text("a" * LARGEST, "b" * 10)}).value
    assert isinstance(value, list)
    assert value[1] == "\n[… 10 characters left out …]"
    many = call_result({"content": text(*["x"] * 1_200)}).value
    assert isinstance(many, list)
    assert (len(many), many[-1]) == (1_001, "[… 200 more parts left out …]")
    big = call_result({"content": text("x"), "structuredContent": {"a": "y" * (LARGEST + 1)}}).value
    assert big == {"content": "x", "structured": "[… too big, left out …]"}
