import json
import math

import pytest
from pydantic import JsonValue

from curtainwall.model import BadCall, Broken
from curtainwall.tools import compile_check
from curtainwall.tools.schema_check import MAX_DEPTH, MAX_SIZE


def schema(**properties: JsonValue) -> dict[str, JsonValue]:
    return {"type": "object", "properties": properties}


def refusal(of: dict[str, JsonValue], value: JsonValue) -> str:
    with pytest.raises(BadCall) as told:
        compile_check(of)(value)
    assert told.value.rule == "invalid-arguments"
    message = str(told.value)
    assert len(message) < 1200
    assert message.isprintable()
    return message


@pytest.mark.parametrize("value", [None, [], "x", 1, True, 1.5])
def test_arguments_are_an_object(value: JsonValue) -> None:
    assert "must be an object" in refusal(schema(), value)


def test_a_key_that_the_schema_does_not_name_is_refused_at_any_depth() -> None:
    nested = schema(a={"type": "object", "properties": {"b": {"type": "array", "items": {"type": "object", "properties": {"c": {}}}}}})
    compile_check(nested)({"a": {"b": [{"c": 1}]}})
    assert refusal(nested, {"a": {"b": [{"c": 1, "d": 2}]}}) == "unknown argument `d` in `a.b[0]`; known are `c`"
    assert refusal(nested, {"x": 1}) == "unknown argument `x`; known are `a`"


def test_an_object_that_names_no_keys_is_free_and_one_that_says_so_too() -> None:
    compile_check(schema(env={"type": "object"}))({"env": {"ANY": "1"}})
    compile_check(schema(env={"type": "object", "properties": {"A": {}}, "additionalProperties": True}))({"env": {"B": "1"}})


@pytest.mark.parametrize("value", [True, False, 1.0, -0.0, 1e3, "1", None, [1]])
def test_only_a_whole_number_is_a_whole_number(value: JsonValue) -> None:
    assert "`n` must be a whole number, not" in refusal(schema(n={"type": "integer"}), {"n": value})


def test_a_round_number_is_still_a_number() -> None:
    compile_check(schema(n={"type": "number"}))({"n": 1.0})
    compile_check(schema(n={"type": "number"}))({"n": 1})
    assert "not a boolean" in refusal(schema(n={"type": "number"}), {"n": True})


@pytest.mark.parametrize(("allowed", "value"), [(1, True), (0, False), (True, 1), (False, 0), ("1", 1), (None, 0)])
def test_enumerated_values_are_compared_with_their_type(allowed: JsonValue, value: JsonValue) -> None:
    refusal(schema(e={"enum": [allowed]}), {"e": value})
    refusal(schema(e={"const": allowed}), {"e": value})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_have_are_refused(value: float) -> None:
    assert "finite" in refusal(schema(n={}), {"n": value})


@pytest.mark.parametrize("value", [2**64, -(2**64), 10**5000], ids=["above", "below", "far above"])
def test_numbers_beyond_64_bits_are_refused(value: int) -> None:
    assert "64 bits" in refusal(schema(n={}), {"n": [value]})


@pytest.mark.parametrize("value", ["\ud800", "a\udfff", ["\ud83d"], {"\udc00": 1}])
def test_half_a_character_is_refused_wherever_it_hides(value: JsonValue) -> None:
    assert "half a character" in refusal(schema(s={}), {"s": value})


def test_nesting_ends_somewhere() -> None:
    deep: JsonValue = "x"
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]
    compile_check(schema(s={}))({"s": deep})
    assert "nested deeper" in refusal(schema(s={}), {"s": [deep]})
    for _ in range(50_000):
        deep = [deep]
    assert "nested deeper" in refusal(schema(s={}), {"s": deep})


def test_size_ends_somewhere() -> None:
    compile_check(schema(s={}))({"s": "x" * (MAX_SIZE - 1)})
    assert "bigger than 8 MiB" in refusal(schema(s={}), {"s": "x" * MAX_SIZE})
    assert "bigger than 8 MiB" in refusal(schema(s={}), {"s": ["é" * (MAX_SIZE // 4)] * 3})


@pytest.mark.parametrize("value", [b"x", (1,), {1}, object()])
def test_what_is_not_json_is_refused(value: object) -> None:
    assert "plain JSON" in refusal(schema(s={}), {"s": value})  # pyright: ignore[reportArgumentType] - that is the point


def test_keys_that_are_not_text_are_refused() -> None:
    assert "a key must be a string" in refusal(schema(s={}), {"s": {1: 2}})  # pyright: ignore[reportArgumentType] - that is the point


def test_what_an_agent_wrote_is_shortened_and_inert_in_a_message() -> None:
    message = refusal(schema(a={}), {"\n`rm`" + "x" * 5000: 1})
    assert "\n" not in message
    assert "`rm`" not in message
    assert len(message) < 300


def test_a_missing_argument_is_named() -> None:
    assert refusal({**schema(a={}, b={}), "required": ["a", "b"]}, {"a": 1}) == "`b` is missing"


def test_keys_of_branches_count_as_named() -> None:
    split: dict[str, JsonValue] = {
        "type": "object",
        "properties": {"kind": {"enum": ["a", "b"]}},
        "oneOf": [{"properties": {"x": {"type": "string"}}, "required": ["x"]}, {"properties": {"y": {}}, "required": ["y"]}],
    }
    compile_check(split)({"kind": "a", "x": "1"})
    refusal(split, {"kind": "a", "x": "1", "z": 1})
    refusal(split, {"kind": "a", "x": "1", "y": 1})


def test_own_definitions_can_be_referred_to_and_stay_closed() -> None:
    tree: dict[str, JsonValue] = {
        **schema(root={"$ref": "#/$defs/node", "description": "a tree"}),
        "$defs": {"node": {"type": "object", "properties": {"child": {"$ref": "#/$defs/node"}}}},
    }
    compile_check(tree)({"root": {"child": {"child": {}}}})
    refusal(tree, {"root": {"child": {"other": {}}}})


def test_what_stands_beside_a_reference_counts() -> None:
    beside: dict[str, JsonValue] = {**schema(a={"$ref": "#/$defs/s", "maxLength": 2}), "$defs": {"s": {"type": "string"}}}
    compile_check(beside)({"a": "ab"})
    refusal(beside, {"a": "abc"})
    refusal(beside, {"a": 1})


@pytest.mark.parametrize(
    "of",
    [
        {"type": "string"},
        {},
        schema(a={"$ref": "http://127.0.0.1:1/schema"}),
        schema(a={"$ref": "file:///etc/passwd"}),
        schema(a={"$ref": "other.json"}),
        schema(a={"$id": "http://example.org/"}),
        schema(a={"unevaluatedProperties": False}),
        schema(a={"prefixItems": [{}]}),
        schema(a="string"),
        schema(**{'"+__import__("os")+"': {}}),
        schema(a={"pattern": "("}),
        schema(a={"type": "strin"}),
        schema(a={"$ref": "#/$defs/none"}),
    ],
    ids=lambda of: json.dumps(of)[:60],
)
def test_a_schema_that_cannot_be_trusted_is_refused(of: dict[str, JsonValue]) -> None:
    with pytest.raises(Broken):
        compile_check(of)


def test_a_dollar_is_the_end_of_the_text_and_not_of_the_line() -> None:
    refusal(schema(a={"type": "string", "pattern": "^[a-z]+$"}), {"a": "abc\n"})
