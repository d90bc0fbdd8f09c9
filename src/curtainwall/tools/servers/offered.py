"""The tools that a server offers, treated as data: cleaned texts, harmless schemas, a fingerprint, and lines for a human to review.

The server itself checks what we drop from a schema; the rest is enough to know the arguments and their types.
Statement lines are quoted as JSON; the caller must make them safe for a screen.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Final, Literal, cast

from pydantic import JsonValue

from curtainwall.facts import quoted
from curtainwall.model import Broken, ToolSpec, canonical_json, record
from curtainwall.tools.servers.spec import ToolRoles

_KEPT = frozenset("\n\t")


def clean_text(text: str, longest: int) -> str:
    """Return text without control and invisible characters, truncated with a note if it is too long."""
    # Truncate first: cleaning looks at every character.
    prefix = text[: longest * 2]
    visible = "".join(character for character in prefix if character in _KEPT or unicodedata.category(character)[0] != "C").strip()
    if len(visible) <= longest and len(text) == len(prefix):
        return visible
    return f"{visible[:longest].rstrip()} [… cut]"


def encodable_text(text: str) -> str:
    """Return text that every encoding can hold."""
    return text.encode("utf-8", "replace").decode()


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


def harmless_schema(schema: JsonValue) -> dict[str, JsonValue]:
    """Return the schema in a form that the catalogue accepts; raise `Broken` if it is too big or does not describe arguments."""
    if not isinstance(schema, dict):
        raise Broken("its schema is no object")
    try:
        size = len(canonical_json(schema))
    except (ValueError, RecursionError):
        raise Broken("its schema is no plain JSON") from None
    if size > LARGEST:
        raise Broken(f"its schema is bigger than {LARGEST // 1024} KiB")
    cleaner = _SchemaCleaner(schema)
    top = cleaner.taken(schema, 0, ()) if "properties" in schema or "$ref" not in schema else cleaner.followed(schema["$ref"], 0, ())
    if not isinstance(top, dict):
        raise Broken("its schema says nothing about arguments")
    top["type"] = "object"
    top.setdefault("properties", {})
    # INVARIANT: an argument that the schema does not name has no role, so it must not get through. The catalogue's check rejects
    # unnamed arguments at the top level unless the schema says otherwise.
    top.pop("additionalProperties", None)
    return top


class _SchemaCleaner:
    """One walk over a schema that inlines every reference; a recursive reference becomes a schema that accepts anything."""

    def __init__(self, root: Mapping[str, JsonValue]) -> None:
        self._root = root
        self._nodes = 0

    def taken(self, schema: JsonValue, depth: int, within: tuple[str, ...]) -> JsonValue:
        """Return a schema with only its known and harmless keywords."""
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise Broken("its schema holds something that is no schema")
        self._nodes += 1
        if self._nodes > _MOST_NODES or depth > _DEEPEST:
            raise Broken("its schema is too big once its references are followed")
        cleaned: dict[str, JsonValue] = {}
        for keyword, value in schema.items():
            if keyword in _LIMITS:
                cleaned[keyword] = value
            elif keyword in _TEXTS and isinstance(value, str):
                cleaned[keyword] = clean_text(value, _LONGEST_NOTE)
            elif keyword == "default" and not isinstance(value, list | dict):
                cleaned[keyword] = clean_text(value, _LONGEST_NOTE) if isinstance(value, str) else value
            elif keyword in _ONE:
                # Older drafts list the schemas of items one by one.
                cleaned[keyword] = True if isinstance(value, list) else self.taken(value, depth + 1, within)
            elif keyword in _MANY and isinstance(value, list):
                cleaned[keyword] = [self.taken(part, depth + 1, within) for part in value]
            elif keyword == "properties" and isinstance(value, dict):
                cleaned[keyword] = {name: self.taken(part, depth + 1, within) for name, part in value.items()}
        if "patternProperties" in schema and "additionalProperties" not in cleaned:
            cleaned["additionalProperties"] = True
        reference = schema.get("$ref")
        if reference is not None:
            cleaned["allOf"] = [*cast("list[JsonValue]", cleaned.get("allOf", [])), self.followed(reference, depth, within)]
        return cleaned

    def followed(self, reference: JsonValue, depth: int, within: tuple[str, ...]) -> JsonValue:
        """Return the schema that a reference points to."""
        if reference == "#" or (isinstance(reference, str) and reference in within):
            return True
        parts = reference.split("/") if isinstance(reference, str) else []
        if len(parts) != 3 or parts[0] != "#" or parts[1] not in {"$defs", "definitions"}:
            raise Broken(f"its schema refers to {quoted(reference)}")
        definitions = self._root.get(parts[1])
        target = definitions.get(parts[2].replace("~1", "/").replace("~0", "~")) if isinstance(definitions, dict) else None
        if target is None:
            raise Broken(f"its schema refers to {quoted(reference)}, which is not there")
        return self.taken(target, depth + 1, (*within, cast("str", reference)))


LONGEST_DESCRIPTION: Final = 2_000
_FIELDS: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}")


@record
class OfferedTool:
    """One tool as its server described it; the fingerprint is computed from `fields`."""

    name: str
    fields: dict[str, JsonValue]
    fingerprint: str

    @property
    def description(self) -> str:
        """Return its own description, for a model to read as data."""
        text = self.fields.get("description")
        return clean_text(text, LONGEST_DESCRIPTION) if isinstance(text, str) else ""

    @property
    def schema(self) -> dict[str, JsonValue]:
        """Return the schema of its arguments; raise `Broken` for one that cannot be used."""
        return harmless_schema(self.fields.get("inputSchema"))

    def hint(self, name: str) -> bool | None:
        """Return one of its hints, which are untrusted claims."""
        annotations = self.fields.get("annotations")
        value = annotations.get(name) if isinstance(annotations, dict) else None
        return value if isinstance(value, bool) else None

    def spec(self, server: str, roles: ToolRoles) -> ToolSpec:
        """Return it as an entry of the catalogue; raise `Broken`."""
        about = f"The server `{server}` says: {self.description or 'nothing about it'}"
        return ToolSpec(server=server, name=self.name, description=about, schema_=self.schema, effect=roles.effect, meanings=roles.meanings)


def parse_tool(tool: dict[str, JsonValue]) -> OfferedTool | None:
    """Parse a tool in a server's list; return None if its name is unusable."""
    name = tool.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return None
    fields: dict[str, JsonValue] = {key: tool[key] for key in _FIELDS if tool.get(key) is not None}
    try:
        exact = canonical_json(fields)
    except (ValueError, RecursionError):
        return None
    if len(exact) > 4 * LARGEST:
        # Too big to keep. Its schema would be refused anyway, but any change must still be noticed.
        fields = {"name": name, "description": "It says too much about itself to be used."}
    return OfferedTool(name, fields, hashlib.sha256(exact).hexdigest())


def tools_by_name(tools: Iterable[OfferedTool]) -> dict[str, OfferedTool]:
    """Return tools by name, without names that occur twice, which are ambiguous."""
    tools_seen: dict[str, OfferedTool] = {}
    twice: set[str] = set()
    for tool in tools:
        if tool.name in tools_seen:
            twice.add(tool.name)
        tools_seen[tool.name] = tool
    return {name: tool for name, tool in tools_seen.items() if name not in twice}


def why_unusable(tool: OfferedTool) -> str | None:
    """Return why a tool cannot be used whatever its roles, or None."""
    try:
        _ = tool.schema
    except Broken as error:
        return str(error)
    return None


Mark = Literal[" ", "+", "-"]

_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_$-]+")
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_LONG: Final = 80
_AROUND: Final = 3
# Comparing takes quadratic time; beyond this, all old lines are shown as removed and all new ones as added.
_MOST_COMPARED: Final = 1_000


@record
class StatementLine:
    """One line of a comparison: kept, added or removed. `skipped` counts the unchanged lines left out before it."""

    mark: Mark
    text: str
    skipped: int = 0


def statement(tool: OfferedTool) -> list[str]:
    """Return the lines of everything that the server says about a tool."""
    return list(_lines("", tool.fields))


def comparison(before: OfferedTool, now: OfferedTool) -> list[StatementLine]:
    """Return every line that differs from the reviewed version, with some context."""
    marked = list(_compared(statement(before), statement(now)))
    near = {place + step for place, (mark, _) in enumerate(marked) if mark != " " for step in range(-_AROUND, _AROUND + 1)}
    shown: list[StatementLine] = []
    skipped = 0
    for place, (mark, text) in enumerate(marked):
        if place in near:
            shown.append(StatementLine(mark, text, skipped))
            skipped = 0
        else:
            skipped += 1
    return shown


def _compared(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[Mark, str]]:
    start = _alike(old, new)
    end = _alike(old[start:][::-1], new[start:][::-1])
    yield from _marked(" ", old[:start])
    removed, added = old[start : len(old) - end], new[start : len(new) - end]
    whole = [("replace", 0, len(removed), 0, len(added))]
    steps = whole if max(len(removed), len(added)) > _MOST_COMPARED else SequenceMatcher(None, removed, added, autojunk=False).get_opcodes()
    for tag, old_from, old_to, new_from, new_to in steps:
        if tag == "equal":
            yield from _marked(" ", removed[old_from:old_to])
        else:
            yield from _marked("-", removed[old_from:old_to])
            yield from _marked("+", added[new_from:new_to])
    yield from _marked(" ", old[len(old) - end :])


def _marked(mark: Mark, lines: Sequence[str]) -> Iterator[tuple[Mark, str]]:
    for line in lines:
        yield mark, line


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))


def _lines(path: str, value: JsonValue) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key in sorted(value):
            name = key if _PLAIN_KEY.fullmatch(key) else _quoted(key)
            yield from _lines(f"{path}.{name}" if path else name, value[key])
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for place, each in enumerate(value):
            yield from _lines(f"{path}[{place}]", each)
    elif isinstance(value, str) and ("\n" in value or len(value) > _LONG):
        yield f"{path}:"
        yield from (f"    {_quoted(line)}" for line in _LINE.findall(value))
    else:
        yield f"{path}: {_quoted(value)}"


def _quoted(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)
