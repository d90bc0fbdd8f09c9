"""Request bodies, read strictly: what two JSON parsers could read differently, or what is small as text and big when parsed, is refused."""

import asyncio
import json
import re
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.egress.refusal import Refused
from curtainwall.egress.terms import Bounds

_FEW_PARTS: Final = 5_000
# Asked of every value of a body; `dict | list` would be made anew each time.
_NESTED: Final = (dict, list)
# What is bigger is parsed beside the loop, so that other sessions keep their share of it.
_SMALL: Final = 256 * 1024
# A string that never ends takes all the rest; otherwise each of its quotes would be tried anew.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)


class _Twice(ValueError):
    """A key that stands twice in one object."""


async def parsed(body: bytes, bounds: Bounds) -> dict[str, JsonValue]:
    """Return the one object that a body is; raise `Refused`."""
    if len(body) <= _SMALL:
        return _parse(body, bounds)
    return await asyncio.to_thread(_parse, body, bounds)


def _parse(body: bytes, bounds: Bounds) -> dict[str, JsonValue]:
    if (parts := _parts_of(body)) > bounds.parts:
        raise Refused(413, f"the body has {parts} values, more than {bounds.parts}")
    try:
        # Bytes would be guessed to be UTF-16 or UTF-32 where they look like it.
        told: JsonValue = _DECODER.decode(body.decode())
    except _Twice:
        raise Refused(400, "a key stands twice in one object of the body") from None
    except RecursionError:
        raise Refused(400, f"the body is nested deeper than {bounds.depth}") from None
    except ValueError:
        raise Refused(400, "the body is not JSON as it should be") from None
    if not isinstance(told, dict):
        raise Refused(400, "the body is not a JSON object")
    # Most bodies have no more brackets than they may have levels.
    if body.count(b"[") + body.count(b"{") > bounds.depth:
        _see_that_it_is_flat(told, bounds.depth)
    return told


def written(told: dict[str, JsonValue]) -> bytes:
    """Return the object as a body again."""
    try:
        return json.dumps(told, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        raise Refused(400, "the body holds a number that JSON cannot say") from None


def _unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Twice
    return made


def _no_constant(word: str) -> JsonValue:
    raise ValueError(word)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


def _parts_of(body: bytes) -> int:
    rough = body.count(b",") + body.count(b"[") + body.count(b"{")
    if rough <= _FEW_PARTS:
        return rough
    bare = _STRING.sub(b"", body)
    return bare.count(b",") + bare.count(b"[") + bare.count(b"{")


def _see_that_it_is_flat(told: dict[str, JsonValue], depth: int) -> None:
    level: list[JsonValue] = [told]
    for _ in range(depth):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else cast("list[JsonValue]", value))
            if isinstance(inner, _NESTED)
        ]
        if not level:
            return
    raise Refused(400, f"the body is nested deeper than {depth}")
