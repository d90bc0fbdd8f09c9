"""What the tables of `config.toml` are made of: the base of all of them, and the kinds of values that several use."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from curtainwall.model import HOUSE_CHANNELS

_FORM = re.compile(r"([0-9]{1,9})\s*([smhdw]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_duration(text: str) -> int:
    """Return the seconds that a text means; raise ValueError with what to write instead."""
    found = _FORM.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"`{text}` is no length of time; write `90s`, `30m`, `2h`, `7d` or `2w`")
    return int(found[1]) * _SECONDS[found[2]]


def show_duration(seconds: float) -> str:
    """Return a length of time in its biggest whole unit."""
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
"""What a channel may be called."""


def _check_model_name(name: str) -> str:
    if name in ("demo", "script", "auto"):
        raise ValueError("this name is taken by a model that needs no server; choose another")
    return name


def matches(form: str, how: str) -> AfterValidator:
    """Return a check that a text has a form; where it has not, the user hears how to write it."""

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
"""What a server of models may be called."""

CredentialName = Annotated[
    str,
    matches(
        r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}",
        "a name here is made of letters, digits, `_`, `.` and `-`, 64 at most, and begins with none of the last two",
    ),
]
"""What a credential may be called."""


def _whole_path(what: str) -> AfterValidator:
    return matches(r"(?:/|~/).+", f"write the whole path{what}, from `/` or `~/` on")


FileName = Annotated[str, _whole_path(" of the file")]
DirectoryName = Annotated[str, _whole_path(" of the directory")]
PathName = Annotated[str, _whole_path("")]


class Section(BaseModel):
    """A table of the file. What it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=False)


class SecretSection(Section):
    """A secret, from exactly one of `env`, `file`, `keyring` and `command`."""

    env: str | None = Field(None, min_length=1, description="the environment variable that holds it")
    file: FileName | None = Field(None, description="the file that holds it and nothing else; no agent can touch that file")
    keyring: Annotated[str, matches(r".+/[^/]+", "write the entry as `SERVICE/USER`")] | None = Field(
        None, description="the entry of your keyring that holds it, as `SERVICE/USER`"
    )
    command: tuple[str, ...] = Field((), description='a program that prints it, as `["pass", "show", "github"]`; its first line counts')

    @model_validator(mode="after")
    def _one_place(self) -> "SecretSection":
        if sum(map(bool, (self.env, self.file, self.keyring, self.command))) != 1:
            raise ValueError("write exactly one of `env`, `file`, `keyring` and `command`")
        return self
