"""What the tables of `config.toml` are made of: the base of all of them, and the kinds of values that several use."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from curtainwall.config.durations import parse_duration
from curtainwall.model import HOUSE_CHANNELS


def _seconds(value: object) -> object:
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("this is no length of time; write `90s`, `30m`, `2h` or `7d`, or a whole number of seconds")
    return value


Duration = Annotated[int, BeforeValidator(_seconds), Field(gt=0)]
"""Seconds; in the file also `90s`, `30m`, `2h`, `7d`."""

Count = Annotated[int, Field(gt=0)]


def _not_the_houses(name: str) -> str:
    if not name.strip() or name in HOUSE_CHANNELS:
        raise ValueError("this name is taken: whoever speaks there is the house itself; choose another")
    return name


ChannelName = Annotated[str, AfterValidator(_not_the_houses)]
"""What a channel may be called."""


def _not_a_model_of_ours(name: str) -> str:
    if name in ("demo", "script", "auto"):
        raise ValueError("this name is taken by a model that needs no server; choose another")
    return name


def written(form: str, how: str) -> AfterValidator:
    """Return a check that a text has a form; where it has not, the user hears how to write it."""

    def check(text: str) -> str:
        if re.fullmatch(form, text, re.DOTALL) is None:
            raise ValueError(how)
        return text

    return AfterValidator(check)


ModelName = Annotated[
    str,
    written(
        r"[a-z][a-z0-9-]{0,31}", "a name here starts with a small letter and goes on with small letters, digits and dashes, 32 at most"
    ),
    AfterValidator(_not_a_model_of_ours),
]
"""What a server of models may be called."""

CredentialName = Annotated[
    str,
    written(
        r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}",
        "a name here is made of letters, digits, `_`, `.` and `-`, 64 at most, and begins with none of the last two",
    ),
]
"""What a credential may be called."""


def _whole_path(what: str) -> AfterValidator:
    return written(r"(?:/|~/).+", f"write the whole path{what}, from `/` or `~/` on")


FileName = Annotated[str, _whole_path(" of the file")]
DirectoryName = Annotated[str, _whole_path(" of the directory")]
PathName = Annotated[str, _whole_path("")]


class Section(BaseModel):
    """A table of the file. What it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=False)
