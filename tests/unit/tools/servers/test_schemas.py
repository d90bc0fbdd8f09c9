"""Strangers' schemas, cut down to what can be trusted."""

from typing import Any

import pytest

from curtainwall.model import BadCall, Broken
from curtainwall.tools import compile_check
from curtainwall.tools.servers.offered import harmless_schema


def test_what_is_known_stays_and_what_is_not_goes() -> None:
    schema: Any = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 1, "default": 3, "pattern": "x", "x-ours": 1, "description": "how\x00 many"},
            "map": {"type": "object", "patternProperties": {".*": {}}},
            "pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "uniqueItems": True},
        },
        "required": ["n"],
        "unevaluatedProperties": False,
        "dependentRequired": {"n": ["map"]},
    }
    assert harmless_schema(schema) == {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 1, "default": 3, "description": "how many"},
            "map": {"type": "object", "additionalProperties": True},
            "pair": {"type": "array", "items": True},
        },
        "required": ["n"],
    }


def test_the_top_is_closed_whatever_the_schema_says() -> None:
    schema: Any = {
        "additionalProperties": True,
        "properties": {"a": {"type": "string"}},
        "anyOf": [{"properties": {"b": {"type": "string"}}}, {"required": ["a"]}],
    }
    check = compile_check(harmless_schema(schema))
    check({"a": "x", "b": "y"})
    with pytest.raises(BadCall, match="unknown argument `c`"):
        check({"a": "x", "c": "z"})


def test_references_are_followed_and_those_that_lead_back_mean_anything() -> None:
    tree: Any = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/definitions/tree"}}}}
    schema: Any = {
        "$ref": "#/definitions/top",
        "definitions": {"tree": tree, "top": {"properties": {"root": {"$ref": "#/definitions/tree"}}}},
    }
    made = harmless_schema(schema)
    assert made["properties"] == {
        "root": {"allOf": [{"type": "object", "properties": {"kids": {"type": "array", "items": {"allOf": [True]}}}}]}
    }
    check = compile_check(made)
    check({"root": {"kids": [{"kids": [1, "two"]}]}})
    with pytest.raises(BadCall):
        check({"root": {"kids": 1}})


def test_no_arguments_at_all_is_fine() -> None:
    compile_check(harmless_schema({}))({})
    compile_check(harmless_schema({"type": "object"}))({})
    with pytest.raises(Broken):
        harmless_schema({"$ref": "#"})


@pytest.mark.parametrize("deep", [20, 900])
def test_what_is_nested_too_deeply_is_refused(deep: int) -> None:
    schema: Any = {"type": "string"}
    for _ in range(deep):
        schema = {"type": "array", "items": schema}
    with pytest.raises(Broken):
        harmless_schema({"type": "object", "properties": {"x": schema}})
