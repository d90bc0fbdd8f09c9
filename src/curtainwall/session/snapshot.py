"""Converts a fold to bytes and back. It does not know where or how safely the bytes are stored."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, NamedTuple, NewType, Union, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from curtainwall.session.state import SessionState


class KeptFold(NamedTuple):
    """A session's state, and the size of its log up to that point."""

    state: SessionState
    logged: int


def encode_fold(fold: KeptFold) -> bytes | None:
    """Return the bytes of a fold; None if they would not restore exactly the same fold."""
    try:
        payload = json.dumps(_codec(KeptFold).write(fold)).encode()
    except PydanticSerializationError:
        return None
    back = decode_fold(payload)
    # The order of the held values counts too, and only the bytes show it.
    return payload if back is not None and back == fold and json.dumps(_codec(KeptFold).write(back)).encode() == payload else None


def decode_fold(payload: bytes) -> KeptFold | None:
    """Return the fold in these bytes; None if they are anything else."""
    try:
        return cast("KeptFold", _codec(KeptFold).read(json.loads(payload)))
    except (ValueError, TypeError, LookupError, RecursionError):
        return None


class _Codec(NamedTuple):
    """How values of a type become JSON, and back; `read` raises ValueError, TypeError or LookupError for anything else."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


# Pydantic could do all of this, but preparing it takes each process as long as folding thousands of entries.
@cache
def _codec(kind: Any) -> _Codec:
    """Return the codec of a type, as it is annotated in the state."""
    if isinstance(kind, NewType):
        return _codec(kind.__supertype__)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        return _optional(*(_codec(part) for part in parts if part is not NoneType))
    if origin is Mapping:
        return _mapping(_codec(parts[1]))
    if origin is tuple:
        return _sequence(_codec(parts[0]), list, tuple)
    if origin is frozenset:
        return _sequence(_codec(parts[0]), sorted, frozenset)
    if kind in (str, int, float, bool):
        return _plain(kind)
    if issubclass(kind, Enum):
        return _Codec(attrgetter("value"), kind)
    return _model(kind) if issubclass(kind, BaseModel) else _record(kind)


def _plain(kind: type) -> _Codec:
    def read(stored: Any) -> Any:
        return _checked(kind, stored)

    return _Codec(_same, read)


def _optional(inner: _Codec) -> _Codec:
    def write(held: Any) -> Any:
        return None if held is None else inner.write(held)

    def read(stored: Any) -> Any:
        return None if stored is None else inner.read(stored)

    return _Codec(write, read)


def _mapping(inner: _Codec) -> _Codec:
    def write(held: Mapping[str, Any]) -> Any:
        return {key: inner.write(value) for key, value in held.items()}

    def read(stored: Any) -> Any:
        return {key: inner.read(value) for key, value in _checked(dict, stored).items()}

    return _Codec(write, read)


def _sequence(inner: _Codec, in_order: Callable[[Any], Any], make: Callable[[Any], Any]) -> _Codec:
    def write(held: Any) -> Any:
        return in_order(map(inner.write, held))

    def read(stored: Any) -> Any:
        return make(map(inner.read, _checked(list, stored)))

    return _Codec(write, read)


def _model(kind: type[BaseModel]) -> _Codec:
    """Return the codec of a value that the log stores in the same form."""

    def write(held: BaseModel) -> Any:
        return kind.__pydantic_serializer__.to_json(held).decode()

    return _Codec(write, kind.__pydantic_validator__.validate_json)


def _record(kind: Any) -> _Codec:
    """Return the codec of a dataclass or a named tuple, which must have exactly its fields."""
    names: tuple[str, ...] = tuple(field.name for field in fields(kind)) if is_dataclass(kind) else kind._fields
    hints, make = get_type_hints(kind), cast("Callable[..., Any]", kind)
    codecs = tuple(_codec(hints[name]) for name in names)

    def write(held: Any) -> Any:
        return [codec.write(getattr(held, name)) for name, codec in zip(names, codecs, strict=True)]

    def read(stored: Any) -> Any:
        return make(*(codec.read(value) for codec, value in zip(codecs, _checked(list, stored), strict=True)))

    return _Codec(write, read)


def _same(held: Any) -> Any:
    return held


def _checked(kind: type, stored: Any) -> Any:
    if type(stored) is not kind:
        raise TypeError(f"not a {kind.__name__}")
    return stored
