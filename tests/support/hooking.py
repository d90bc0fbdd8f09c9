"""Hooks for tests: real programs in real files, and the settings that name them."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from curtainwall.facts import Masker
from curtainwall.model import Place, Resource, Role, SessionId, Subject, ToolEffect, ToolFacts, Workspace, subject_digest
from curtainwall.model.subjects import SubjectKind
from curtainwall.tools.hooks import HookSettings, HookSurroundings, UserHooks, read_settings
from tests.support.waiting import is_gone, until

ENVIRON = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


def shell(path: Path, body: str) -> str:
    """Write a shell script and return the command that runs it."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def python(path: Path, body: str) -> str:
    """Write a Python script and return the command that runs it."""
    path.write_text(f"#!{sys.executable} -IS\nimport json, os, sys, time\n{body}\n")
    path.chmod(0o755)
    return str(path)


def command(line: str, **rest: Any) -> dict[str, Any]:
    """Return a command hook as settings write it."""
    return {"type": "command", "command": line, **rest}


def settings(where: Path | str, **events: Any) -> HookSettings:
    """Return the settings whose events have one group for everything, or the groups given as a list of dicts with `hooks`."""
    told: dict[str, Any] = {}
    for event, hooks in events.items():
        given = hooks if isinstance(hooks, list) else [hooks]
        told[event] = given if all("hooks" in each for each in given) else [{"hooks": given}]
    return read_settings({"hooks": told}, directory=str(where), strict=True)


def user_hooks(found: HookSettings, **rest: Any) -> UserHooks:
    """Return the hooks of a user with a small environment."""
    environ = {**ENVIRON, **rest.pop("environ", {})}
    around = HookSurroundings(rest.pop("masker", None) or Masker(b"k" * 32), environ, rest.pop("withheld", frozenset()))
    return UserHooks(found, around, **rest)


def place(workspace: Path | str) -> Place:
    """Return a session's place."""
    return Place(session=SessionId("s1"), workspace=Workspace(path=str(workspace), own=True))


def call(tool: str = "shell.run", canonical: Mapping[str, JsonValue] | None = None, raw: Mapping[str, JsonValue] | None = None) -> Subject:
    """Return a subject as the gate would have it."""
    arguments = {"command": "ls"} if canonical is None else dict(canonical)
    itself = Resource(role=Role.USE_TOOL, value=tool, facts=ToolFacts(server=tool.partition(".")[0], effect=ToolEffect.EXECUTE))
    return Subject(
        tool=tool, effect=ToolEffect.EXECUTE, raw=arguments if raw is None else raw, canonical=arguments, resources=(itself,),
        digest=subject_digest(SubjectKind.TOOL_CALL, tool, arguments, (itself,)),
    )  # fmt: skip


def told(path: Path) -> list[dict[str, Any]]:
    """Return the events that a hook wrote down, one per line."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_until_gone(pid: int) -> None:
    """Wait for the end of a process, with a bound."""
    until(lambda: is_gone(pid))
