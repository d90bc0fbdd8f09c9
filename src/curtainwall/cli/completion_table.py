"""Writes `completion.json`: every command with its options and arguments, so that completion imports no command."""

import inspect
import json
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from curtainwall.cli.completion import TABLE, CommandSpec, ParameterSpec
from curtainwall.cli.main import COMMANDS
from curtainwall.model import BudgetKind, SessionStatus
from curtainwall.tools import NATIVE_TOOLS

# The same thing has the same name everywhere, so a parameter's name shows what it takes.
_BY_NAME: dict[str, str | list[str]] = {
    **dict.fromkeys(("session", "sessions", "resume", "fork"), "session"),
    "approval": "approval",
    "grant": "grant",
    "model": "model",
    "kind": [kind.value for kind in BudgetKind],
    "status": [*get_args(SessionStatus), "failed", "interrupted"],
    "tool": sorted(spec.full_name for spec in NATIVE_TOOLS),
    "agent": "agent",
    "team": "teams",
    "server": "servers",
    "workspace": "directories",
    "project": "directories",
    "directory": "directories",
}
# If a parameter's name does not show it, its placeholder in the help does.
_BY_METAVAR = {"TOOL": _BY_NAME["tool"], "TEAM": "teams", "JOB": "cron", "[JOB]": "cron", "SERVER": "servers"}
_HELP: dict[str, ParameterSpec] = {"--help": {"takes": None, "about": "say what it does", "many": False}}


def described() -> dict[str, CommandSpec]:
    """Return the specs of all commands by their words; the empty key is the program itself."""
    overview = {name: command.about for name, command in COMMANDS.items()}
    version: ParameterSpec = {"takes": None, "about": "say which version this is", "many": False}
    home: ParameterSpec = {"takes": "directories", "about": "keep everything there", "many": False}
    quiet: ParameterSpec = {"takes": None, "about": "leave out hints and progress", "many": False}
    verbose: ParameterSpec = {"takes": None, "about": "say more about what happens", "many": False}
    options = {"--home": home, "--quiet": quiet, "--verbose": verbose, "--version": version, **_HELP}
    specs: dict[str, CommandSpec] = {"": {"commands": overview, "options": options, "arguments": []}}
    for name, command in COMMANDS.items():
        module = import_module(f"curtainwall.cli.commands.{command.module}")
        app = module.app if command.is_group else typer.Typer(add_completion=False)
        if not command.is_group:
            app.command(name)(getattr(module, name.replace("-", "_")))
        specs.update(_below(name, get_command(app)))
    return specs


def render() -> str:
    """Return the table as file content."""
    return json.dumps(described(), ensure_ascii=False, indent=1) + "\n"


def _below(words: str, command: object) -> Iterator[tuple[str, CommandSpec]]:
    if isinstance(command, TyperGroup):
        inner = {name: it for name, it in command.commands.items() if not it.hidden}
        yield words, {"commands": {name: _line(it.help) for name, it in inner.items()}, "options": dict(_HELP), "arguments": []}
        for name, it in inner.items():
            yield from _below(f"{words} {name}", it)
        return
    assert isinstance(command, TyperCommand)
    assert command.callback is not None
    types = get_type_hints(inspect.unwrap(command.callback))
    options: dict[str, ParameterSpec] = {}
    arguments: list[ParameterSpec] = []
    for it in command.params:
        name = it.name or ""
        many = it.multiple or it.nargs == -1
        about = _line(getattr(it, "help", ""))
        if isinstance(it, TyperOption):
            takes = None if it.is_flag else _takes(name, types[name], it.metavar)
            options |= {opt: {"takes": takes, "about": about, "many": many} for opt in (*it.opts, *it.secondary_opts) if not it.hidden}
        else:
            arguments.append({"takes": _takes(name, types[name], it.metavar), "about": about, "many": many})
    yield words, {"commands": {}, "options": {**options, **_HELP}, "arguments": arguments}


def _takes(name: str, annotation: object, metavar: str | None) -> str | list[str]:
    kind = _kind(annotation)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(member.value) for member in kind]
    value = _BY_METAVAR.get(metavar or "") or _BY_NAME.get(name)
    if value is not None:
        return "session or file" if value == "session" and "FILE" in (metavar or "") else value
    if kind is Path:
        return "directories" if (metavar or "").startswith("DIR") else "files"
    return "text"


def _kind(annotation: object) -> object:
    """Return the type of a value without `Annotated`, `list` or `None`."""
    origin = get_origin(annotation)
    if origin in (Annotated, list):
        return _kind(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return _kind(next(it for it in get_args(annotation) if it is not NoneType))
    return annotation


def _line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0].rstrip(".")


if __name__ == "__main__":
    TABLE.write_text(render(), encoding="utf-8")
