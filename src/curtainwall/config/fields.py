"""The base class of the tables of `config.toml`, and the types of values that several tables use."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from curtainwall.model import HOUSE_CHANNELS

_DURATION = re.compile(r"([0-9]{1,9})\s*([smhdw]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_duration(text: str) -> int:
    """Parse a duration into seconds; raise ValueError, which says what to write instead."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"`{text}` is no length of time; write `90s`, `30m`, `2h`, `7d` or `2w`")
    return int(match[1]) * _SECONDS[match[2]]


def show_duration(seconds: float) -> str:
    """Format a duration in its largest whole unit."""
    whole = int(seconds)
    for unit in ("w", "d", "h", "m"):
        if whole and whole % _SECONDS[unit] == 0:
            return f"{whole // _SECONDS[unit]}{unit}"
    return f"{whole}s"


def _seconds(value: object) -> object:
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("this is no length of time; write `90s`, `30m`, `2h` or `7d`, or a whole number of seconds")
    return value


Duration = Annotated[int, BeforeValidator(_seconds), Field(gt=0)]
"""Seconds; in the file also `90s`, `30m`, `2h`, `7d`."""

Count = Annotated[int, Field(gt=0)]


def _check_channel_name(name: str) -> str:
    if not name.strip() or name in HOUSE_CHANNELS:
        raise ValueError("this name is taken: whoever speaks there is the house itself; choose another")
    return name


ChannelName = Annotated[str, AfterValidator(_check_channel_name)]
"""A valid name of a channel."""


def _check_model_name(name: str) -> str:
    if name in ("demo", "script", "auto"):
        raise ValueError("this name is taken by a model that needs no server; choose another")
    return name


def matches(form: str, how: str) -> AfterValidator:
    """Return a validator that a text matches a pattern; `how` is the error message."""

    def check(text: str) -> str:
        if re.fullmatch(form, text, re.DOTALL) is None:
            raise ValueError(how)
        return text

    return AfterValidator(check)


ModelName = Annotated[
    str,
    matches(
        r"[a-z][a-z0-9-]{0,31}", "a name here starts with a small letter and goes on with small letters, digits and dashes, 32 at most"
    ),
    AfterValidator(_check_model_name),
]
"""A valid name of a model server."""

CredentialName = Annotated[
    str,
    matches(
        r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}",
        "a name here is made of letters, digits, `_`, `.` and `-`, 64 at most, and begins with none of the last two",
    ),
]
"""A valid name of a credential."""


def _whole_path(what: str) -> AfterValidator:
    return matches(r"(?:/|~/).+", f"write the whole path{what}, from `/` or `~/` on")


FileName = Annotated[str, _whole_path(" of the file")]
DirectoryName = Annotated[str, _whole_path(" of the directory")]
PathName = Annotated[str, _whole_path("")]


class Section(BaseModel):
    """A table of the file. An unknown key is an error."""

    # Start-up time: the file is one table with all others in it, and only that one is ever validated on its own.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=False, defer_build=True)


class SecretSection(Section):
    """A secret, from exactly one of `env`, `file`, `keyring` and `command`."""

    env: str | None = Field(None, min_length=1, description="the environment variable that holds it")
    file: FileName | None = Field(None, description="the file that holds it and nothing else; no agent can touch that file")
    keyring: Annotated[str, matches(r".+/[^/]+", "write the entry as `SERVICE/USER`")] | None = Field(
        None, description="the entry of your keyring that holds it, as `SERVICE/USER`"
    )
    command: tuple[str, ...] = Field((), description='a program that prints it, as `["pass", "show", "github"]`; its first line counts')

    @model_validator(mode="after")
    def _check_one_source(self) -> "SecretSection":
        if sum(map(bool, (self.env, self.file, self.keyring, self.command))) != 1:
            raise ValueError("write exactly one of `env`, `file`, `keyring` and `command`")
        return self
