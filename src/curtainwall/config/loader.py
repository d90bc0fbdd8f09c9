"""Reads `config.toml`; an error names the line, the key, and what to write instead."""

import errno
import os
import re
import stat
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError

from curtainwall.config.fields import Section
from curtainwall.config.schema import Config
from curtainwall.model import Broken, explain_invalid

_MAX_BYTES = 16 * 1024 * 1024


def read_plain(path: Path, most: int = _MAX_BYTES) -> bytes:
    """Return the content of a regular file; raise OSError for anything else, and for a bigger file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(most + 1)
    finally:
        os.close(descriptor)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is bigger than {most} bytes", str(path))
    return content


_KINDS_OF_VALUE = {("str",), ("bool",), ("int",), ("float",)}
_OWN_PREFIX = "cannot be used: "
_QUOTED = r"'([^']*)'"
_TABLE_NAME = re.compile(rf"\((?:{_QUOTED},? ?)+\)")


def load_config(path: Path, changes: Mapping[str, object] | None = None) -> Config:
    """Load a file over the defaults, and `changes` over the file; a missing file gives the defaults."""
    try:
        content = read_plain(path)
    except FileNotFoundError:
        if path.is_symlink():
            raise Broken(f"`{path}` is a link that leads nowhere; correct it or take it away") from None
        return _changed({}, changes) if changes else Config.parse({})
    except OSError as error:
        raise Broken(f"`{path}` cannot be read: {error.strerror}") from None
    try:
        config = parse_config(content.decode())
        return _changed(tomllib.loads(content.decode()), changes) if changes else config
    except UnicodeDecodeError as error:
        raise Broken(f"`{path}` is not UTF-8 at byte {error.start}; save it as UTF-8 text") from None
    except ValueError as error:
        raise Broken(f"`{path}`: {error}") from None


def _changed(table: Mapping[str, object], changes: Mapping[str, object]) -> Config:
    """Return the configuration of a table with these changes; raise `Broken` for a change that does not fit."""
    try:
        return Config.parse(_with_tuples(_merged(table, changes)))
    except ValidationError as error:
        raise Broken(f"the configuration that the program gives: {_explain(error, 0)}") from None


def _merged(table: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """Return a table with changes: inner tables are merged, and everything else is replaced."""
    merged = dict(table)
    for key, value in changes.items():
        before = merged.get(key)
        is_table = isinstance(before, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(cast("Mapping[str, object]", before), cast("Mapping[str, object]", value)) if is_table else value
    return merged


def parse_config(text: str) -> Config:
    """Parse a text over the defaults; raise ValueError, which names the line or the key."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        lines = len(text.splitlines())
        raise ValueError(f"no TOML: {_in_our_style(str(error)).replace('at end of document', f'at line {lines}, the end')}") from None
    except RecursionError:
        raise ValueError("no TOML: it is nested too deeply") from None
    try:
        return Config.parse(_with_tuples(table))
    except ValidationError as error:
        line, index = _first_error(text, error)
        raise ValueError(f"{'' if line is None else f'line {line}: '}{_explain(error, index)}") from None


def _first_error(text: str, error: ValidationError) -> tuple[int | None, int]:
    """Return the line and the index of the error that comes first in the file; errors without a line come last."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [line_of(text, fault["loc"]) for fault in faults]
    index = min(range(len(lines)), key=lambda number: lines[number] or len(text))
    return lines[index], index


def _with_tuples(table: Mapping[str, object]) -> dict[str, object]:
    """Return the table with lists as tuples, which the strict schema requires."""
    return {name: _with_tuple(inner) for name, inner in table.items()}


def _with_tuple(value: object) -> object:
    if isinstance(value, dict):
        return _with_tuples(cast("dict[str, object]", value))
    return tuple(map(_with_tuple, cast("list[object]", value))) if isinstance(value, list) else value


def _explain(error: ValidationError, index: int) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    first = problems[index]
    count_note = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    place, message = explain_invalid(error, index)
    if place[-1:] == ("[key]",):
        # The name of the table is wrong, not a key in it.
        place = place[:-1]
    key = ".".join(map(str, place))
    if first["type"] == "extra_forbidden":
        return f"unknown key `{key}`{_suggestion(place)}{count_note}"
    if first["type"] == "missing":
        return f"`{key}` is missing; write it{', an empty list is no list of people' if key.endswith('.operators') else ''}{count_note}"
    if place[-1:] in _KINDS_OF_VALUE:
        # Pydantic reports a separate error for each type that the value could have had.
        return f"`{'.'.join(map(str, place[:-1]))}` must be a text, a number, true or false"
    if not place:
        # A check across tables names its keys itself.
        return f"{message.removeprefix(_OWN_PREFIX)}{count_note}"
    return f"`{key}`{_in_toml(message)}{count_note}"


def _in_toml(message: str) -> str:
    """Return what follows a key: the message of our own check after a colon, anything else as the end of the sentence."""
    own_message = message.removeprefix(_OWN_PREFIX)
    return f": {own_message}" if own_message != message else f" {message.replace('an object', 'a table')}"


def _suggestion(place: tuple[int | str, ...]) -> str:
    """Suggest a key: a similar one of the same table, or else the only key with that name, or else list the keys."""
    *table, wrong = map(str, place)
    keys = [tuple(key.split(".")) for key in keys_of(Config)]
    keys_here = list(dict.fromkeys(key[len(table)] for key in keys if _is_in(table, key)))
    similar = get_close_matches(wrong, keys_here, n=1, cutoff=0.6)
    if similar:
        return f"; did you mean `{'.'.join((*table, similar[0]))}`?"
    elsewhere = [key for key in keys if key[-1] == wrong]
    if len(elsewhere) == 1:
        return f"; did you mean `{'.'.join(elsewhere[0])}`?"
    if table and keys_here:
        return f"; `[{'.'.join(table)}]` has {', '.join(f'`{name}`' for name in keys_here)} (docs/config.md)"
    return "; docs/config.md and `curtainwall config init` name all keys"


def _is_in(table: Sequence[str], key: Sequence[str]) -> bool:
    """Tell whether a key is in a table; NAME in a key matches any name."""
    return len(key) > len(table) and all(expected in ("NAME", name) for name, expected in zip(table, key, strict=False))


def keys_of(section: type[BaseModel], before: str = "") -> list[str]:
    """Return every key of a table and of its inner tables, with dots."""
    keys: list[str] = []
    for name, field in section.model_fields.items():
        key = f"{before}{field.alias or name}"
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            keys += keys_of(inner, f"{key}.")
        elif (named_table := named_section(cast("object", inner))) is not None:
            keys += keys_of(named_table, f"{key}.NAME.")
        else:
            keys.append(key)
    return keys


def named_section(annotation: object) -> type[Section] | None:
    """Return the section class of a table whose keys the user names, or None for everything else."""
    inner: object = get_args(annotation)[1] if get_origin(annotation) is dict else None
    inner = get_args(inner)[0] if get_origin(inner) is Annotated else inner
    return inner if isinstance(inner, type) and issubclass(inner, Section) else None


def _in_our_style(message: str) -> str:
    """Return the TOML reader's message in our style: lower-case, without a full stop, and with tables by name."""
    text = _TABLE_NAME.sub(lambda match: f"`{'.'.join(re.findall(_QUOTED, match[0]))}`", message)
    return (text[:1].lower() + text[1:]).rstrip(".")


_PART = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_TABLE = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]")
_KEY = re.compile(rf"\s*({_DOTTED})\s*=")


def line_of(text: str, place: Sequence[int | str]) -> int | None:
    """Return the line of a key, or of the nearest table around it in the text; None if there is neither."""
    target = [str(part) for part in place if not isinstance(part, int)]
    table: list[str] = []
    best: tuple[int, int] | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if (header := _TABLE.match(line)) is not None:
            table = path = _parts(header[2])
        elif (key := _KEY.match(line)) is not None:
            path = [*table, *_parts(key[1])]
        else:
            continue
        depth = len(path) if path == target[: len(path)] else len(target) if target and path[: len(target)] == target else 0
        if depth and (best is None or depth > best[0]):
            best = (depth, number)
    return None if best is None else best[1]


def _parts(dotted: str) -> list[str]:
    return [part[1:-1] if part[0] in "\"'" else part for part in re.findall(_PART, dotted)]
