"""Check that an agent's arguments are well formed: plain JSON of a sane size, and exactly what the tool's schema names.

Schemas may come from untrusted servers. They are reduced to known keywords before compilation: an unknown keyword refuses the schema
instead of being ignored, and a reference never leaves the schema.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from math import isfinite
from typing import Final, cast

import fastjsonschema
from pydantic import JsonValue

from curtainwall.facts import quoted
from curtainwall.model import BadCall, Broken

RULE: Final = "invalid-arguments"
MAX_DEPTH: Final = 64
MAX_SIZE: Final = 8 * 1024 * 1024
MAX_NUMBER: Final = 2**64

Check = Callable[[JsonValue], None]

_ONE_SCHEMA = frozenset({"additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"})
_MANY_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf"})
_NAMED_SCHEMAS = frozenset({"$defs", "definitions", "patternProperties", "properties"})
_LIMITS = frozenset(
    """
    $ref const enum exclusiveMaximum exclusiveMinimum maxItems maxLength maxProperties maximum minItems minLength minProperties minimum
    multipleOf pattern required type uniqueItems
    """.split()
)
_NOTES = frozenset(
    """
    $comment $id $schema contentEncoding contentMediaType default deprecated description examples format readOnly title writeOnly
    """.split()
)
# The validator writes these names into the code that it generates.
_PROPERTY = re.compile(r"[\w.$@/:+-]{1,128}", re.ASCII)
_STEP = re.compile(r"[A-Za-z_]\w*|\[\d+\]|.", re.DOTALL)
_KINDS: Mapping[type, str] = {
    str: "a string", bool: "a boolean", int: "a whole number", float: "a number", list: "a list", dict: "an object", type(None): "null",
}  # fmt: skip
_TYPES = {
    "string": "a string", "boolean": "a boolean", "integer": "a whole number", "number": "a number", "array": "a list",
    "object": "an object", "null": "null",
}  # fmt: skip


class _Fraction(float):
    """A number written with a decimal point, so that `1.0` is not an integer."""

    def is_integer(self) -> bool:
        return False


def compile_check(schema: Mapping[str, JsonValue]) -> Check:
    """Return a check that raises `BadCall` for anything the schema does not name; raise `Broken` for an unsafe schema."""
    root = dict(schema)
    if root.get("type") != "object":
        raise Broken("the schema of a tool's arguments must have `type` `object`")
    strict = _strict(root, is_open=False, is_root=True)
    try:
        validate = _compiled(json.dumps(strict))
    except (
        fastjsonschema.JsonSchemaDefinitionException,
        re.error,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
    ) as fault:
        raise Broken(f"the schema cannot be read: {quoted(str(fault))}") from fault

    def check(arguments: JsonValue) -> None:
        if type(arguments) is not dict:
            raise BadCall(RULE, f"the arguments must be an object, not {kind_of(arguments)}")
        walk = _Walk()
        walk.over(arguments, 0)
        try:
            validate(_with_fractions(arguments) if walk.saw_round_float else arguments)
        except fastjsonschema.JsonSchemaValueException as fault:
            raise BadCall(RULE, _explain(fault)) from None

    return check


@lru_cache(maxsize=256)
def _compiled(schema: str) -> Check:
    """Return the library's check for a schema, cached because compiling the checks of all tools is slow."""
    return cast("Check", fastjsonschema.compile(json.loads(schema), use_default=False, use_formats=False))  # pyright: ignore[reportUnknownMemberType] - the library has no types


def kind_of(value: object) -> str:
    """Describe the type of a JSON value."""
    return _KINDS.get(type(value), f"`{type(value).__name__}`")


class _Walk:
    """One walk over every part of a value, before validation."""

    __slots__ = ("saw_round_float", "size")

    def __init__(self) -> None:
        self.size = 0
        self.saw_round_float = False

    def over(self, value: object, depth: int) -> None:
        """Raise `BadCall` for a value that is not plain JSON, too deep, or too big."""
        kind = type(value)
        if kind is str:
            self._text(cast("str", value))
        elif kind is dict:
            if depth >= MAX_DEPTH:
                raise BadCall(RULE, f"the arguments are nested deeper than {MAX_DEPTH} levels")
            for key, part in cast("dict[object, object]", value).items():
                if type(key) is not str:
                    raise BadCall(RULE, f"a key must be a string, not {kind_of(key)}")
                self._text(key)
                self.over(part, depth + 1)
        elif kind is list:
            if depth >= MAX_DEPTH:
                raise BadCall(RULE, f"the arguments are nested deeper than {MAX_DEPTH} levels")
            for part in cast("list[object]", value):
                self.over(part, depth + 1)
                self._add(1)
        elif kind is float:
            number = cast("float", value)
            if not isfinite(number):
                raise BadCall(RULE, "a number must be finite")
            if number.is_integer():
                self.saw_round_float = True
        elif kind is int:
            if not -MAX_NUMBER < cast("int", value) < MAX_NUMBER:
                raise BadCall(RULE, "a whole number must fit into 64 bits")
        elif kind is not bool and value is not None:
            raise BadCall(RULE, f"the arguments must be plain JSON, not {kind_of(value)}")

    def _text(self, text: str) -> None:
        if text.isascii():
            self._add(len(text))
            return
        try:
            self._add(len(text.encode()))
        except UnicodeEncodeError:
            raise BadCall(RULE, f"the text {quoted(text)} holds half a character (a lone surrogate)") from None

    def _add(self, size: int) -> None:
        self.size += size
        if self.size > MAX_SIZE:
            raise BadCall(RULE, f"the arguments are bigger than {MAX_SIZE // 1024 // 1024} MiB")


def _with_fractions(value: JsonValue) -> JsonValue:
    if type(value) is float:
        return _Fraction(value)
    if isinstance(value, dict):
        return {key: _with_fractions(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_with_fractions(part) for part in value]
    return value


def _strict(schema: JsonValue, *, is_open: bool, is_root: bool = False) -> JsonValue:
    """Return the schema with only known keywords, and closed: an object that names its keys allows no others."""
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        raise Broken(f"a schema must be an object, not {kind_of(schema)}")
    strict: dict[str, JsonValue] = {}
    # Branches beside `properties` share the keys of the whole; if each were closed, it would refuse the others' keys.
    shares = any(keyword in schema for keyword in ("properties", "if")) or len(_list(schema.get("allOf"))) > 1
    for keyword, value in schema.items():
        if keyword in _NOTES or keyword.startswith("x-"):
            if keyword == "$id" and not is_root:
                raise Broken("a schema inside a schema must not have an `$id`")
        elif keyword in _LIMITS:
            strict[keyword] = value
        elif keyword in _ONE_SCHEMA:
            strict[keyword] = _strict(value, is_open=keyword in {"if", "then", "else", "not"})
        elif keyword in _MANY_SCHEMAS and isinstance(value, list):
            strict[keyword] = [_strict(part, is_open=shares) for part in value]
        elif keyword in _NAMED_SCHEMAS and isinstance(value, dict):
            for name in value:
                if keyword != "patternProperties" and not _PROPERTY.fullmatch(name):
                    raise Broken(f"the name {quoted(name)} in a schema has letters that are not known here")
            strict[keyword] = {name: _strict(part, is_open=False) for name, part in value.items()}
        else:
            raise Broken(f"the schema uses {quoted(keyword)}, which is not known here")
    reference = strict.get("$ref")
    if reference is not None:
        if not (isinstance(reference, str) and re.fullmatch(r"#(?:/(?:\$defs|definitions)/[\w.$@:+-]+)?", reference, re.ASCII)):
            raise Broken(f"the schema refers to {quoted(reference)}; only its own definitions can be referred to")
        if len(strict) > 1:
            # Validators of older drafts ignore everything beside a reference.
            strict["allOf"] = [*_list(strict.get("allOf")), {"$ref": strict.pop("$ref")}]
    if not is_open and (is_root or shares or "properties" in strict) and "additionalProperties" not in strict:
        named = dict.fromkeys(_names(schema), cast("JsonValue", True))
        strict["properties"] = {**named, **cast("dict[str, JsonValue]", strict.get("properties", {}))}
        strict["additionalProperties"] = False
    return strict


def _list(value: JsonValue | None) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _names(schema: JsonValue) -> Iterator[str]:
    """Yield every key that an object schema or one of its branches names."""
    if not isinstance(schema, dict):
        return
    properties = schema.get("properties")
    if isinstance(properties, dict):
        yield from properties
    for keyword in _MANY_SCHEMAS:
        for branch in _list(schema.get(keyword)):
            yield from _names(branch)
    for keyword in ("if", "then", "else"):
        yield from _names(schema.get(keyword))


def _explain(error: fastjsonschema.JsonSchemaValueException) -> str:
    """Explain in our own words what is wrong and what would be right."""
    where = "".join(_STEP.findall(str(error.name or "data").removeprefix("data").lstrip("."))[:40])
    argument = quoted(where) if where else "the arguments"
    definition = cast("dict[str, JsonValue]", error.definition) if isinstance(error.definition, dict) else {}
    value = cast("JsonValue", error.value)
    match error.rule:
        case "type":
            wanted = definition.get("type")
            kinds = [_TYPES.get(str(item), str(item)) for item in (wanted if isinstance(wanted, list) else [wanted])]
            return (
                f"{argument} must be {' or '.join(kinds)}, not {kind_of(float(value)) if isinstance(value, _Fraction) else kind_of(value)}"
            )
        case "required" if isinstance(value, dict):
            missing = [str(name) for name in _list(definition.get("required")) if name not in value]
            return f"{_enumerated([f'{where}.{name}' if where else name for name in missing])} is missing"
        case "additionalProperties" if isinstance(value, dict):
            known = cast("dict[str, JsonValue]", definition.get("properties") or {})
            strangers = _enumerated([name for name in value if name not in known])
            hint = f"known are {_enumerated(list(known))}" if known else "there are none"
            return f"unknown argument {strangers}{f' in {argument}' if where else ''}; {hint}"
        case "enum":
            return f"{argument} must be one of {_enumerated([str(item) for item in _list(definition.get('enum'))])}"
        case _:
            # The library's text after the name comes from the schema, not from the agent's input.
            tail = str(error.message).removeprefix(str(error.name)).strip()[:160]
            return f"{argument} {tail}"


def _enumerated(names: list[str]) -> str:
    shown = ", ".join(quoted(name) for name in names[:12])
    return f"{shown} and {len(names) - 12} more" if len(names) > 12 else shown
