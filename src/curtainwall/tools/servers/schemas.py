"""A stranger's schema made harmless: small, without patterns, without references, and closed at the top.

What is left out here the server checks itself. What stays is enough to know which arguments there are and of which kind.
"""

from collections.abc import Mapping
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.facts import quoted
from curtainwall.model import Broken, canonical_json
from curtainwall.tools.servers.words import cleaned

LARGEST: Final = 64 * 1024
_MOST_NODES: Final = 2_000
_DEEPEST: Final = 16
_LONGEST_NOTE: Final = 400

_ONE = frozenset({"additionalProperties", "contains", "items", "not", "propertyNames", "if", "then", "else"})
_MANY = frozenset({"allOf", "anyOf", "oneOf"})
_LIMITS = frozenset(
    """
    const enum exclusiveMaximum exclusiveMinimum maxItems maxLength maxProperties maximum minItems minLength minProperties minimum required
    type
    """.split()
)
_TEXTS = frozenset({"description", "format", "title"})


def harmless(schema: JsonValue) -> dict[str, JsonValue]:
    """Return the schema as the catalogue can take it; raise `Broken` for one that is too big or no schema of arguments."""
    if not isinstance(schema, dict):
        raise Broken("its schema is no object")
    try:
        size = len(canonical_json(schema))
    except (ValueError, RecursionError):
        raise Broken("its schema is no plain JSON") from None
    if size > LARGEST:
        raise Broken(f"its schema is bigger than {LARGEST // 1024} KiB")
    cleaning = _Cleaning(schema)
    top = cleaning.taken(schema, 0, ()) if "properties" in schema or "$ref" not in schema else cleaning.followed(schema["$ref"], 0, ())
    if not isinstance(top, dict):
        raise Broken("its schema says nothing about arguments")
    top["type"] = "object"
    top.setdefault("properties", {})
    # INVARIANT: an argument that the schema does not name has no role, so it must not get through. The catalogue's check closes the top
    # over every name in it, unless the schema says something of its own.
    top.pop("additionalProperties", None)
    return top


class _Cleaning:
    """One walk over a schema; every reference is replaced by what it means, and one that leads back to itself by anything."""

    def __init__(self, root: Mapping[str, JsonValue]) -> None:
        self._root = root
        self._nodes = 0

    def taken(self, schema: JsonValue, depth: int, within: tuple[str, ...]) -> JsonValue:
        """Return a schema with what is known and harmless alone."""
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise Broken("its schema holds something that is no schema")
        self._nodes += 1
        if self._nodes > _MOST_NODES or depth > _DEEPEST:
            raise Broken("its schema is too big once its references are followed")
        made: dict[str, JsonValue] = {}
        for keyword, value in schema.items():
            if keyword in _LIMITS:
                made[keyword] = value
            elif keyword in _TEXTS and isinstance(value, str):
                made[keyword] = cleaned(value, _LONGEST_NOTE)
            elif keyword == "default" and not isinstance(value, list | dict):
                made[keyword] = cleaned(value, _LONGEST_NOTE) if isinstance(value, str) else value
            elif keyword in _ONE:
                # An older way to write a list's items, one by one.
                made[keyword] = True if isinstance(value, list) else self.taken(value, depth + 1, within)
            elif keyword in _MANY and isinstance(value, list):
                made[keyword] = [self.taken(part, depth + 1, within) for part in value]
            elif keyword == "properties" and isinstance(value, dict):
                made[keyword] = {name: self.taken(part, depth + 1, within) for name, part in value.items()}
        if "patternProperties" in schema and "additionalProperties" not in made:
            made["additionalProperties"] = True
        reference = schema.get("$ref")
        if reference is not None:
            made["allOf"] = [*cast("list[JsonValue]", made.get("allOf", [])), self.followed(reference, depth, within)]
        return made

    def followed(self, reference: JsonValue, depth: int, within: tuple[str, ...]) -> JsonValue:
        """Return what a reference means."""
        if reference == "#" or (isinstance(reference, str) and reference in within):
            return True
        parts = reference.split("/") if isinstance(reference, str) else []
        if len(parts) != 3 or parts[0] != "#" or parts[1] not in {"$defs", "definitions"}:
            raise Broken(f"its schema refers to {quoted(reference)}")
        definitions = self._root.get(parts[1])
        found = definitions.get(parts[2].replace("~1", "/").replace("~0", "~")) if isinstance(definitions, dict) else None
        if found is None:
            raise Broken(f"its schema refers to {quoted(reference)}, which is not there")
        return self.taken(found, depth + 1, (*within, cast("str", reference)))
