"""Renders the configuration from its schema: the page `docs/config.md`, a commented file to start from, and the values in force."""

import json
import re
from collections.abc import Iterator
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic.fields import FieldInfo

from curtainwall.config.fields import Section, show_duration
from curtainwall.config.loader import named_section
from curtainwall.config.schema import Config
from curtainwall.model import record

_DURATION_KEYS = frozenset(
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


@record
class Table:
    """One table of the file: its name as written, its description, and its keys."""

    name: str
    about: str
    section: type[Section]

    @property
    def keys(self) -> Iterator[tuple[str, FieldInfo]]:
        """Return the keys as written, with their fields; keys that are tables themselves are left out."""
        fields = self.section.model_fields.items()
        return ((field.alias or name, field) for name, field in fields if _inner_section(field) is None)


def tables(section: type[Section] = Config, before: str = "") -> tuple[Table, ...]:
    """Return every table in the order of the schema, each followed by its inner tables."""
    result: list[Table] = []
    for name, field in section.model_fields.items():
        inner = _inner_section(field)
        if inner is None:
            continue
        place = f"{before}{name}" if named_section(field.annotation) is None else f"{before}{name}.{_NAMES.get(name, 'NAME')}"
        result += [Table(place, " ".join((inner.__doc__ or "").split()), inner), *tables(inner, f"{place}.")]
    return tuple(result)


def _inner_section(field: FieldInfo) -> type[Section] | None:
    """Return the table of a key, whether it is one table or a table of named ones; None for a key with a value."""
    annotation = cast("object", field.annotation)
    return named_section(annotation) or (annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None)


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
    """Return a file to start from: every key with its meaning, all commented out."""
    lines = ["# Curtainwall's configuration. Take away the `#` before a key to set it; `curtainwall config show` prints what holds."]
    for table in tables():
        lines += ["", f"# {table.about}", f"# [{_example_name(table.name)}]" if "NAME" in table.name else f"[{table.name}]"]
        for key, field in table.keys:
            example = {**_EXAMPLES, **_EXAMPLES_IN.get(table.name, {})}.get(key)
            example = _example(field) if example is None else example
            lines += [f"# {key}: {_about(field)}", *([f"# {key} = {example}"] if example else [])]
    return "\n".join(lines) + "\n"


def effective(config: Config) -> str:
    """Return the values in force, as TOML."""
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
    """Return a plain value in TOML syntax."""
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        return f"{{{', '.join(f'{key} = {toml_value(inner)}' for key, inner in table.items() if inner is not None)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, cast('list[object]', value)))}]"
    # A JSON string without escaped slashes and surrogates is a TOML string; numbers and booleans are the same.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _about(field: FieldInfo) -> str:
    """Return the description of a key, with its choices if it has any."""
    description = field.description or ""
    choices = [f"`{json.dumps(choice)}`" for choice in _choices(cast("object", field.annotation))]
    names_all = all(choice.strip('`"') in description for choice in choices)
    return description if names_all else f"{description}: {' or '.join([*([', '.join(choices[:-1])] if choices[1:] else []), choices[-1]])}"


def _choices(annotation: object) -> tuple[str, ...]:
    """Return the texts that a key can choose from; empty if it also accepts others."""
    origin, inner = get_origin(annotation), cast("tuple[object, ...]", get_args(annotation))
    if origin is Literal:
        return tuple(choice for choice in inner if isinstance(choice, str))
    if origin is Annotated:
        return _choices(inner[0])
    if origin in (Union, UnionType):
        alternatives = [_choices(alternative) for alternative in inner if alternative is not NoneType]
        return tuple(choice for alternative in alternatives for choice in alternative) if all(alternatives) else ()
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
    text = toml_value(value)
    return f"`{text}` ({show_duration(value)})" if key in _DURATION_KEYS and isinstance(value, int) else f"`{text}`"


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


# A credential may name only one source.
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


def _example_name(name: str) -> str:
    """Return the name of a table as it could appear in a file; the names of models and agents are lower-case."""
    return name.replace("models.NAME", "models.local").replace("agents.NAME", "agents.mine").replace("PROVIDER", "openai")


def _example(field: FieldInfo) -> str:
    value = cast("object", field.get_default(call_default_factory=True, validated_data={}))
    # TOML cannot express that a key is not set.
    return "" if value is None else toml_value([] if value == () else value)


if __name__ == "__main__":
    print(render(), end="")
