"""The configuration for people, told from its schema: the page `docs/config.md`, a commented file to start from, and what holds now."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic.fields import FieldInfo

from curtainwall.config.fields import Section, show_duration
from curtainwall.config.loader import named_section
from curtainwall.config.schema import Config

_LENGTHS = frozenset(
    "after archive-after deadline every health idle pause remind seconds signed-in silence timeout turn wait window".split()
)
_NAMES = {"channels": "NAME", "servers": "NAME", "tools": "TOOL", "arguments": "ARGUMENT", "keys": "PROVIDER"}
_OPENING = """\
# Configuration

Everything a user sets stands in `config.toml` in the home directory (`~/.curtainwall`, or where `CURTAINWALL_HOME` points).
`curtainwall config path` says where that is, `config init` writes a commented file, and `config show` prints what holds, defaults included.
A key that is not on this page is an error. Lengths of time are seconds or texts such as `"90s"`, `"30m"`, `"2h"`, `"7d"`.
Rules are not configuration: they stand beside it, in `policy/*.cedar`.

This page is made from the schema (`src/curtainwall/config/schema.py`) by `python -m curtainwall.config.docs`; a test compares the two.
"""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the file: its name as it is written, what it is about, and its keys."""

    name: str
    about: str
    section: type[Section]

    @property
    def keys(self) -> Iterator[tuple[str, FieldInfo]]:
        """Return the keys as they are written, with their fields; what is a table by itself is told there."""
        fields = self.section.model_fields.items()
        return ((field.alias or name, field) for name, field in fields if _inner(field) is None)


def tables(section: type[Section] = Config, before: str = "") -> tuple[Table, ...]:
    """Return every table in the order of the schema, each followed by those in it."""
    found: list[Table] = []
    for name, field in section.model_fields.items():
        inner = _inner(field)
        if inner is None:
            continue
        place = f"{before}{name}" if named_section(field.annotation) is None else f"{before}{name}.{_NAMES.get(name, 'NAME')}"
        found += [Table(place, " ".join((inner.__doc__ or "").split()), inner), *tables(inner, f"{place}.")]
    return tuple(found)


def _inner(field: FieldInfo) -> type[Section] | None:
    """Return the table that a key is, under names of the user's choice or by itself; None for a key with a value."""
    told = cast("object", field.annotation)
    return named_section(told) or (told if isinstance(told, type) and issubclass(told, Section) else None)


def render() -> str:
    """Return the page `docs/config.md`."""
    lines = [_OPENING]
    for table in tables():
        lines += [f"## `[{table.name}]`", "", table.about, "", "| key | default | meaning |", "|---|---|---|"]
        for key, field in table.keys:
            meaning = _about(field).replace("|", "\\|")
            lines.append(f"| `{key}` | {_default(key, field)} | {meaning} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def commented() -> str:
    """Return a file to start from: every key with its meaning, all of them commented out."""
    lines = ["# Curtainwall's configuration. Take away the `#` before a key to set it; `curtainwall config show` prints what holds."]
    for table in tables():
        lines += ["", f"# {table.about}", f"# [{_written(table.name)}]" if "NAME" in table.name else f"[{table.name}]"]
        for key, field in table.keys:
            example = {**_EXAMPLES, **_EXAMPLES_IN.get(table.name, {})}.get(key)
            example = _example(field) if example is None else example
            lines += [f"# {key}: {_about(field)}", *([f"# {key} = {example}"] if example else [])]
    return "\n".join(lines) + "\n"


def effective(config: Config) -> str:
    """Return what holds, as TOML."""
    return "\n".join(_table("", config.model_dump(by_alias=True, mode="json"))).lstrip() + "\n"


def _table(name: str, table: dict[str, Any]) -> list[str]:
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    lines = ["", f"[{name}]", *_pairs(plain)] if plain else []
    for key, value in table.items():
        if isinstance(value, dict):
            word = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)
            lines += _table(f"{name}.{word}".lstrip("."), cast("dict[str, Any]", value))
    return lines


def _pairs(section: dict[str, Any]) -> list[str]:
    return [f"{key} = {toml_value(value)}" if value is not None else f"# {key} is not set" for key, value in section.items()]


def toml_value(value: object) -> str:
    """Return a plain value as TOML spells it."""
    if isinstance(value, dict):
        told = cast("dict[str, object]", value)
        return f"{{{', '.join(f'{key} = {toml_value(inner)}' for key, inner in told.items() if inner is not None)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, cast('list[object]', value)))}]"
    # A JSON string without its escaped slash and surrogates is a TOML string; numbers and booleans are alike.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _about(field: FieldInfo) -> str:
    """Return what a key means, with all that may stand there where that is a choice."""
    told = field.description or ""
    choices = [f"`{json.dumps(choice)}`" for choice in _choices(cast("object", field.annotation))]
    is_told = all(choice.strip('`"') in told for choice in choices)
    return told if is_told else f"{told}: {' or '.join([*([', '.join(choices[:-1])] if choices[1:] else []), choices[-1]])}"


def _choices(annotation: object) -> tuple[str, ...]:
    """Return the texts among which a key chooses, or none where it takes others as well."""
    origin, inner = get_origin(annotation), cast("tuple[object, ...]", get_args(annotation))
    if origin is Literal:
        return tuple(choice for choice in inner if isinstance(choice, str))
    if origin is Annotated:
        return _choices(inner[0])
    if origin in (Union, UnionType):
        found = [_choices(each) for each in inner if each is not NoneType]
        return tuple(choice for each in found for choice in each) if all(found) else ()
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return tuple(annotation)
    return ()


def _default(key: str, field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value = cast("object", field.get_default(call_default_factory=True))
    if value is None:
        return "not set"
    if value == ():
        return "empty"
    told = toml_value(value)
    return f"`{told}` ({show_duration(value)})" if key in _LENGTHS and isinstance(value, int) else f"`{told}`"


_EXAMPLES = {
    "operators": '["ann"]',
    "deadline": '"30m"',
    "command": '"my-server"',
    "effect": '"inspect"',
    "roles": '["read-path"]',
    "schedule": '"0 3 * * *"',
    "instructions": '"read the new issues"',
    "prompt": '"look at {{ branch }}"',
    "project": '"/srv/backend"',
    "default": '"."',
    "within": '"directory"',
    "argument": '"dryRun"',
}


# Of the sources of a credential only one may stand there.
_EXAMPLES_IN = {
    "credentials.NAME": {"env": '"API_TOKEN"', "hosts": '["api.example.org"]', "file": "", "keyring": "", "command": ""},
    "webhooks.hooks.NAME": {"secret-env": '"CI_SECRET"', "secret-file": ""},
    "notify": {"command": '["notify-me"]'},
    "hooks": {"file": '"~/.claude/settings.json"'},
    "agents.NAME": {"image": '"my/image:1"', "command": '["my-agent"]', "providers": '{ openai = "OPENAI_API_KEY" }'},
    "agents.NAME.keys.PROVIDER": {"env": '"TEAM_KEY"', "file": "", "keyring": "", "command": ""},
    "teams.NAME": {"agent": '"opencode"'},
    "teams.NAME.keys.PROVIDER": {"env": '"BACKEND_KEY"', "file": "", "keyring": "", "command": ""},
    "web": {"tokens": '{ann = "~/.config/curtainwall-token"}'},
}


def _written(name: str) -> str:
    """Return the name of a table as it could stand in a file; those of models and agents have small letters."""
    return name.replace("models.NAME", "models.local").replace("agents.NAME", "agents.mine").replace("PROVIDER", "openai")


def _example(field: FieldInfo) -> str:
    value = cast("object", field.get_default(call_default_factory=True, validated_data={}))
    # TOML has no word for what is not set.
    return "" if value is None else toml_value([] if value == () else value)


if __name__ == "__main__":
    print(render(), end="")
