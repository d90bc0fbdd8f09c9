"""Parses JSON strictly: parsers disagree about a key that is given twice, so a repeated key is refused or reported."""

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Final, cast

from pydantic import JsonValue
from pydantic_core import from_json

Path = tuple[str | int, ...]
"""The keys and indexes that lead to a value."""

# An unescaped quote and a colon. It misses a key that ends in a backslash.
_KEY_ENDS: Final = re.compile(rb'"(?<!\\")[ \t\r\n]*:')


class _Repeating(dict[str, JsonValue]):
    """An object with keys that its text gives more than once."""

    repeated: tuple[str, ...]


def read_json(text: str) -> JsonValue:
    """Parse JSON without repeated keys, and without numbers that JSON does not have; raise ValueError."""
    return json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_constant, parse_float=_finite)


def read_frame(text: bytes) -> tuple[JsonValue, Iterable[Path]]:
    """Parse JSON and return it with the paths of repeated keys; raise ValueError.

    It is fast if no key is repeated, so that it can read every message of a connection.
    """
    value = cast("JsonValue", from_json(text, allow_inf_nan=False, cache_strings="keys"))
    # INVARIANT: both counts are at least the number of pairs in the text, so a count equal to the number of keys means no repetition.
    keys = _keys_in(value)
    if text.count(b":") == keys or (b'\\\\"' not in text and len(_KEY_ENDS.findall(text)) == keys):
        return value, ()
    return value, _repeated(cast("JsonValue", _DECODER.decode(text.decode())))


def _keys_in(value: JsonValue) -> int:
    count, pending = 0, [value]
    while pending:
        part = pending.pop()
        if type(part) is dict:
            count += len(part)
            pending.extend(part.values())
        elif type(part) is list:
            pending.extend(part)
    return count


def _repeated(value: JsonValue, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, _Repeating):
        yield from ((*path, key) for key in value.repeated)
    if isinstance(value, dict | list):
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(inner, dict | list):
                yield from _repeated(inner, (*path, step))


def _with_repeats(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    marked = _Repeating(plain)
    seen: set[str] = set()
    marked.repeated = tuple(dict.fromkeys(key for key, _ in pairs if key in seen or seen.add(key)))
    return marked


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_with_repeats)


def _without_repeats(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    value = _with_repeats(pairs)
    if isinstance(value, _Repeating):
        raise ValueError(f"the key {json.dumps(value.repeated[0][:64])} is given twice")
    return value


def _no_constant(name: str) -> JsonValue:
    raise ValueError(f"`{name}` is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too big")
    return number
