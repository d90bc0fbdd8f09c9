"""Hypothesis strategies for every word of the model, made from the model itself."""

from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin

from annotated_types import Ge
from hypothesis import strategies as st
from pydantic import JsonValue

from curtainwall.model import AnyCommand, AnyEvent, Frozen, Subject

# What a person, an agent or a provider can write, apart from half characters, which no encoding holds.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBERS = st.integers(min_value=-(2**63), max_value=2**63)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)

JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | NUMBERS | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)

_PLAIN: dict[object, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: NUMBERS,
    float: FLOATS,
    bool: st.booleans(),
    type(None): st.none(),
    JsonValue: JSON,
}


@cache
def words(kind: type[Frozen]) -> st.SearchStrategy[Any]:
    """Return values of one type of the model; each field is anything that fits."""
    return st.builds(kind, **{name: _values(field.annotation, tuple(field.metadata)) for name, field in kind.model_fields.items()})


def _values(kind: Any, notes: tuple[object, ...] = ()) -> st.SearchStrategy[Any]:
    if any(isinstance(note, Ge) for note in notes):
        return st.integers(0, 2**53) if kind is int else st.floats(min_value=0, allow_nan=False, allow_infinity=False)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if isinstance(kind, NewType):
        return _values(kind.__supertype__)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _values(inner[0], inner[1:])
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, UnionType):
        return st.one_of(*(_values(each) for each in inner))
    if origin is tuple:
        # What holds its own kind (a plan its steps) is drawn when it is needed, and is mostly empty, or it would never end.
        each = st.deferred(lambda: _values(inner[0]))
        return (
            st.one_of(st.just(()), st.lists(each, max_size=3).map(tuple)) if inner[0] is Subject else st.lists(each, max_size=3).map(tuple)
        )
    if origin is Mapping:
        return st.dictionaries(_values(inner[0]), _values(inner[1]), max_size=3)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    assert isinstance(kind, type), f"no strategy for {kind}"
    assert issubclass(kind, Frozen), f"no strategy for {kind}"
    return words(kind)


EVENT_TYPES: tuple[type[Frozen], ...] = get_args(AnyEvent)
COMMAND_TYPES: tuple[type[Frozen], ...] = get_args(AnyCommand)
