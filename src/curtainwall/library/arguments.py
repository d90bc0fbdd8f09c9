"""Checks the arguments of programs strictly, so that a mistake is a `CurtainwallError` that names the argument."""

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TypeVar, cast

from pydantic import BaseModel, ValidationError

from curtainwall.compose.setup import Setup, load_setup
from curtainwall.host.home import VARIABLE
from curtainwall.model import CommandRefused, Limits, explain_invalid

_Value = TypeVar("_Value")
_Model = TypeVar("_Model", bound=BaseModel)
_Choice = TypeVar("_Choice", bound=StrEnum)

_KINDS: dict[type, str] = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}


def build(kind: type[_Model], /, **fields: object) -> _Model:
    """Return a value of the model; raise `CommandRefused` for an argument of the wrong type, which is never converted."""
    try:
        return kind.model_validate(fields, strict=True)
    except ValidationError as error:
        place, words = explain_invalid(error)
        raise CommandRefused(f"`{'.'.join(map(str, place))}` {words}") from None


def require(name: str, value: object, kind: type[_Value]) -> _Value:
    """Return the value if it is of this type; raise `CommandRefused`."""
    if isinstance(value, kind) and not (kind in (int, float) and isinstance(value, bool)):
        return value
    raise CommandRefused(f"`{name}` must be {_KINDS.get(kind, f'a `{kind.__name__}`')}, not {type(value).__name__}")


def choose(name: str, value: object, choices: type[_Choice]) -> _Choice:
    """Return the member of an enumeration that a program names, itself or by its text; raise `CommandRefused`."""
    if isinstance(value, str) and value in tuple(choices):
        return choices(value)
    raise CommandRefused(f"`{name}` must be one of {', '.join(f'`{each.value}`' for each in choices)}, not `{value}`")


def path_of(name: str, value: object) -> Path:
    """Return a path that a program names, `~` expanded; raise `CommandRefused`."""
    if not isinstance(value, str | Path):
        raise CommandRefused(f"`{name}` must be a path, not {type(value).__name__}")
    if value == "":
        # It would be the current directory; a variable that is not set is more likely.
        raise CommandRefused(f"`{name}` is empty; name a path, or leave it out")
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise CommandRefused(f"the {name} `{value}` begins with the home directory of somebody who is not known here") from None


def limits_over(usual: Limits, given: object) -> Limits:
    """Return the usual limits with those that a program gives; raise `CommandRefused` for one that is unknown or not above zero."""
    if isinstance(given, Limits):
        return given
    if not isinstance(given, Mapping):
        raise CommandRefused(f"`limits` must be a mapping such as {{'steps': 20}}, not {type(given).__name__}")
    changes = {str(name): value for name, value in cast("Mapping[object, object]", given).items()}
    limits = build(Limits, **{**usual.model_dump(), **changes})
    for name in changes:
        if not getattr(limits, name) > 0:
            raise CommandRefused(f"the limit `{name}` must be above 0")
    return limits


def setup_for(policy: Sequence[Path], home: Path | str | None, config: Mapping[str, object] | None) -> Setup:
    """Load the setup of a program: rule files to add, another home, and changes to its configuration; raise `CurtainwallError`."""
    if isinstance(policy, str | Path):
        raise CommandRefused("`policy` must be a list of paths")
    files = [path_of("policy", file) for file in cast("Sequence[object]", require("policy", policy, Sequence))]
    changes = None if config is None else cast("Mapping[str, object]", require("config", config, Mapping))
    return load_setup(files, environ_for(home), changes)


def environ_for(home: Path | str | None) -> dict[str, str]:
    """Return the environment, in which a home that a program names counts before the user's."""
    return dict(os.environ) if home is None else {**os.environ, VARIABLE: str(path_of("home", home).absolute())}
