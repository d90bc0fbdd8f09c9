"""JSON that arrives as text, read in its one reading: parsers disagree about a key that is given twice, so nobody may rely on it."""

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Final, cast

from pydantic import JsonValue
from pydantic_core import from_json

Path = tuple[str | int, ...]
"""The keys and places that lead to a value."""

# A quote that no backslash escapes, and a colon. A key that itself ends in a backslash is not found.
_ENDS_OF_KEYS: Final = re.compile(rb'"(?<!\\")[ \t\r\n]*:')


class _Repeating(dict[str, JsonValue]):
    """An object with keys that its text gives more than once."""

    repeated: tuple[str, ...]


def read_json(text: str) -> JsonValue:
    """Return a JSON value in its one reading: no key twice, no number that JSON does not know; raise ValueError."""
    return json.loads(text, object_pairs_hook=_single, parse_constant=_no_constant, parse_float=_finite)


def read_frame(text: bytes) -> tuple[JsonValue, Iterable[Path]]:
    """Return a JSON value, and the ways to the keys that its text gives more than once; raise ValueError.

    It costs little where every key is given once, so that each message of a connection can be read with it.
    """
    value = cast("JsonValue", from_json(text, allow_inf_nan=False, cache_strings="keys"))
    # INVARIANT: both count every pair, and sometimes more; as many as there are keys therefore means that each was given once.
    keys = _keys_in(value)
    if text.count(b":") == keys or (b'\\\\"' not in text and len(_ENDS_OF_KEYS.findall(text)) == keys):
        return value, ()
    return value, _repeated(cast("JsonValue", _DECODER.decode(text.decode())))


def _keys_in(value: JsonValue) -> int:
    count, waiting = 0, [value]
    while waiting:
        part = waiting.pop()
        if type(part) is dict:
            count += len(part)
            waiting.extend(part.values())
        elif type(part) is list:
            waiting.extend(part)
    return count


def _repeated(value: JsonValue, way: Path = ()) -> Iterator[Path]:
    if isinstance(value, _Repeating):
        yield from ((*way, key) for key in value.repeated)
    if isinstance(value, dict | list):
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(inner, dict | list):
                yield from _repeated(inner, (*way, step))


def _marked(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    marked = _Repeating(made)
    seen: set[str] = set()
    marked.repeated = tuple(dict.fromkeys(key for key, _ in pairs if key in seen or seen.add(key)))
    return marked


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_marked)


def _single(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    made = _marked(pairs)
    if isinstance(made, _Repeating):
        raise ValueError(f"the key {json.dumps(made.repeated[0][:64])} is given twice")
    return made


def _no_constant(name: str) -> JsonValue:
    raise ValueError(f"`{name}` is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too big")
    return number
