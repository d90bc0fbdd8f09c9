"""How `config.toml` is read, and what is said where it does not fit: which line, which key, and what instead."""

import errno
import os
import re
import stat
import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError

from curtainwall.config.fields import Section
from curtainwall.config.schema import Config
from curtainwall.model import Broken, explain_invalid

_BIGGEST = 16 * 1024 * 1024


def read_plain(path: Path, most: int = _BIGGEST) -> bytes:
    """Return what a regular file holds; raise OSError for anything else, and for one that is bigger."""
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
_OURS = "cannot be used: "
_QUOTED = r"'([^']*)'"
_TABLE_NAME = re.compile(rf"\((?:{_QUOTED},? ?)+\)")


def load_config(path: Path) -> Config:
    """Return what a file says over the defaults; a file that is not there says nothing."""
    try:
        content = read_plain(path)
    except FileNotFoundError:
        if path.is_symlink():
            raise Broken(f"`{path}` is a link that leads nowhere; correct it or take it away") from None
        return Config()
    except OSError as error:
        raise Broken(f"`{path}` cannot be read: {error.strerror}") from None
    try:
        return parse_config(content.decode())
    except UnicodeDecodeError as error:
        raise Broken(f"`{path}` is not UTF-8 at byte {error.start}; save it as UTF-8 text") from None
    except ValueError as error:
        raise Broken(f"`{path}`: {error}") from None


def parse_config(text: str) -> Config:
    """Return what a text says over the defaults; raise ValueError that names the line or the key."""
    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        lines = len(text.splitlines())
        raise ValueError(f"no TOML: {_plain(str(error)).replace('at end of document', f'at line {lines}, the end')}") from None
    except RecursionError:
        raise ValueError("no TOML: it is nested too deeply") from None
    try:
        return Config.model_validate(_with_tuples(told))
    except ValidationError as error:
        line, which = _uppermost(text, error)
        raise ValueError(f"{'' if line is None else f'line {line}: '}{_explain(error, which)}") from None


def _uppermost(text: str, error: ValidationError) -> tuple[int | None, int]:
    """Return the line of the fault that stands first in the file, and which it is; those that stand nowhere come last."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [line_of(text, fault["loc"]) for fault in faults]
    which = min(range(len(lines)), key=lambda at: lines[at] or len(text))
    return lines[which], which


def _with_tuples(value: object) -> object:
    """Return the same with arrays as tuples, which is what the strict schema takes."""
    if isinstance(value, dict):
        return {name: _with_tuples(inner) for name, inner in cast("dict[str, object]", value).items()}
    return tuple(_with_tuples(inner) for inner in cast("list[object]", value)) if isinstance(value, list) else value


def _explain(error: ValidationError, which: int) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    first = problems[which]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    place, words = explain_invalid(error, which)
    if place[-1:] == ("[key]",):
        # The name of a table is wrong, not something in it.
        place = place[:-1]
    key = ".".join(map(str, place))
    if first["type"] == "extra_forbidden":
        return f"unknown key `{key}`{_meant(place)}{more}"
    if first["type"] == "missing":
        return f"`{key}` is missing; write it{', an empty list is no list of people' if key.endswith('.operators') else ''}{more}"
    if place[-1:] in _KINDS_OF_VALUE:
        # Each kind that a value could have had is told as a fault of its own.
        return f"`{'.'.join(map(str, place[:-1]))}` must be a text, a number, true or false"
    if not place:
        # What holds between tables names its keys itself.
        return f"{words.removeprefix(_OURS)}{more}"
    return f"`{key}`{_in_toml(words)}{more}"


def _in_toml(words: str) -> str:
    """Return what follows a key: what our own check says after a colon, anything else as the end of the sentence."""
    ours = words.removeprefix(_OURS)
    return f": {ours}" if ours != words else f" {words.replace('an object', 'a table')}"


def _meant(place: tuple[int | str, ...]) -> str:
    """Return the key that was probably meant: a near one of the same table, or else the only one of that very name; or which there are."""
    *table, wrong = map(str, place)
    known = [tuple(key.split(".")) for key in keys_of(Config)]
    here = list(dict.fromkeys(key[len(table)] for key in known if _is_in(table, key)))
    near = get_close_matches(wrong, here, n=1, cutoff=0.6)
    if near:
        return f"; did you mean `{'.'.join((*table, near[0]))}`?"
    elsewhere = [key for key in known if key[-1] == wrong]
    if len(elsewhere) == 1:
        return f"; did you mean `{'.'.join(elsewhere[0])}`?"
    if table and here:
        return f"; `[{'.'.join(table)}]` has {', '.join(f'`{name}`' for name in here)} (docs/config.md)"
    return "; docs/config.md and `curtainwall config init` name all keys"


def _is_in(table: Sequence[str], key: Sequence[str]) -> bool:
    """Tell whether a key stands in a table; what is called NAME there is of the user's choice."""
    return len(key) > len(table) and all(known in ("NAME", given) for given, known in zip(table, key, strict=False))


def keys_of(section: type[BaseModel], before: str = "") -> list[str]:
    """Return every key of a table and of the tables in it, with dots."""
    found: list[str] = []
    for name, field in section.model_fields.items():
        key = f"{before}{field.alias or name}"
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            found += keys_of(inner, f"{key}.")
        elif (named := named_section(cast("object", inner))) is not None:
            found += keys_of(named, f"{key}.NAME.")
        else:
            found.append(key)
    return found


def named_section(annotation: object) -> type[Section] | None:
    """Return the kind of table that stands under names of the user's choice, or None for everything else."""
    inner: object = get_args(annotation)[1] if get_origin(annotation) is dict else None
    inner = get_args(inner)[0] if get_origin(inner) is Annotated else inner
    return inner if isinstance(inner, type) and issubclass(inner, Section) else None


def _plain(message: str) -> str:
    """Return what the TOML reader says in our manner: lower-case, without a full stop, and a table by its name."""
    told = _TABLE_NAME.sub(lambda found: f"`{'.'.join(re.findall(_QUOTED, found[0]))}`", message)
    return (told[:1].lower() + told[1:]).rstrip(".")


_PART = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_TABLE = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]")
_KEY = re.compile(rf"\s*({_DOTTED})\s*=")


def line_of(text: str, place: Sequence[int | str]) -> int | None:
    """Return the line where a key is written, or of the nearest table around it that is; None where none of it is."""
    wanted = [str(part) for part in place if not isinstance(part, int)]
    table: list[str] = []
    best: tuple[int, int] | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if (found := _TABLE.match(line)) is not None:
            table = path = _parts(found[2])
        elif (key := _KEY.match(line)) is not None:
            path = [*table, *_parts(key[1])]
        else:
            continue
        depth = len(path) if path == wanted[: len(path)] else len(wanted) if wanted and path[: len(wanted)] == wanted else 0
        if depth and (best is None or depth > best[0]):
            best = (depth, number)
    return None if best is None else best[1]


def _parts(dotted: str) -> list[str]:
    return [part[1:-1] if part[0] in "\"'" else part for part in re.findall(_PART, dotted)]
