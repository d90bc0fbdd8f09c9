"""Hooks that a workspace brings along: found, shown, and run only as long as they are, to the byte, what the user trusted."""

import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.facts import is_beneath
from curtainwall.host import locked, replace_file
from curtainwall.model import Broken, canonical_json
from curtainwall.tools.hooks.command_line import started_words
from curtainwall.tools.hooks.scripts import (
    ScriptFile,
    environment_config,
    is_activation,
    needed_files,
    read_regular_file,
    read_workspace_file,
    script_interpreter,
    script_language,
    script_needs,
    search_directory,
    workspace_path,
)
from curtainwall.tools.hooks.settings import CommandHook, HookSettings, read_settings

KEPT: Final = ".claude"
FILES: Final = (f"{KEPT}/settings.json", f"{KEPT}/settings.local.json")
_BIGGEST: Final = 4 * 1024 * 1024
_MOST_BESIDE: Final = 200


class HookTrust(StrEnum):
    """How a workspace's own hooks stand."""

    NONE = "none"
    UNTRUSTED = "untrusted"
    PINNED = "pinned"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class WorkspaceHooks:
    """The hooks of a workspace: how they stand, what they are, their digest, and the files of the workspace that it covers.

    `beside` has, for each program that is started, those of them that it needs beside itself.
    """

    workspace: str
    trust: HookTrust
    settings: HookSettings
    digest: str = ""
    looked: Mapping[str, ScriptFile] = field(default_factory=dict[str, ScriptFile])
    beside: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    @property
    def files(self) -> tuple[str, ...]:
        """Return the paths of the files."""
        return tuple(self.looked)


class Pins:
    """What the user trusted, by the real path of the workspace; a file of ours, readable by nobody else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[tuple[int, int, int], dict[str, str]] | None = None

    @property
    def directory(self) -> Path:
        """Return the directory of ours that they are kept in."""
        return self._path.parent

    def all(self) -> Mapping[str, str]:
        """Return every pin; raise `Broken` where the file cannot be understood."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return {}
        version = (found.st_ino, found.st_mtime_ns, found.st_size)
        if self._seen is None or self._seen[0] != version:
            try:
                told: object = json.loads(self._path.read_bytes())
            except (OSError, ValueError) as fault:
                raise Broken(
                    f"`{self._path}` cannot be read ({type(fault).__name__}); take it away and trust your workspaces again"
                ) from None
            pins = cast("dict[object, object]", told) if isinstance(told, dict) else {None: None}
            if not all(isinstance(text, str) for pin in pins.items() for text in pin):
                raise Broken(f"`{self._path}` holds no pins; take it away and trust your workspaces again")
            self._seen = (version, cast("dict[str, str]", pins))
        return self._seen[1]

    def set(self, workspace: str, digest: str | None) -> None:
        """Pin a workspace to a digest, or with None to nothing; whoever does the same at this moment comes before or after."""
        with locked(self._path.with_suffix(".lock")):
            pins = {path: pin for path, pin in self.all().items() if path != workspace}
            if digest is not None:
                pins[workspace] = digest
            place = Path(os.path.realpath(self._path))
            if not place.exists():
                _begin(place)
            replace_file(str(place), json.dumps(pins, indent=1, sort_keys=True).encode())


def _begin(place: Path) -> None:
    """Make a file of no pins for us alone; nobody ever finds it empty."""
    draft = place.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_bytes(b"{}")
    draft.replace(place)


def workspace_hooks(path: str | Path, pins: Mapping[str, str]) -> WorkspaceHooks:
    """Return the hooks that a directory brings along, and whether they are what was trusted; raise `Broken` for settings in disorder."""
    workspace = os.path.realpath(path)
    parts: dict[str, JsonValue] = {}
    hooks: list[HookSettings] = []
    for name in FILES:
        told = _settings_in(Path(workspace, name))
        if told is None:
            continue
        read = read_settings(told, directory=workspace)
        if read.hooks or read.notes:
            parts[name] = {key: told[key] for key in ("hooks", "disableAllHooks") if key in told}
            hooks.append(read)
    settings = HookSettings(tuple(hook for each in hooks for hook in each.hooks), tuple(note for each in hooks for note in each.notes))
    if not settings.hooks:
        return WorkspaceHooks(workspace, HookTrust.NONE, settings)
    looked, beside = _looked_at(workspace, settings)
    programs: dict[str, JsonValue] = {path: each.digest for path, each in looked.items()}
    digest = hashlib.sha256(canonical_json({"settings": parts, "programs": programs})).hexdigest()
    pinned = pins.get(workspace)
    trust = HookTrust.UNTRUSTED if pinned is None else HookTrust.PINNED if pinned == digest else HookTrust.CHANGED
    return WorkspaceHooks(workspace, trust, settings, digest, looked, beside)


def named_paths(program: CommandHook, workspace: str) -> Iterator[str]:
    """Yield the paths in the workspace that the words of a command may name, whether or not there is such a file."""
    words = command_words(program)
    # What a shell in the line is told to run is a line as well.
    words += [inner for word in words if " " in word for inner in command_words(CommandHook(word))]
    for word in words:
        for text in (word, word.rpartition("=")[2]):
            named = text.replace("${CLAUDE_PROJECT_DIR}", workspace).replace("$CLAUDE_PROJECT_DIR", workspace)
            path = workspace_path(workspace, named)
            if path is not None:
                yield path


def _settings_in(path: Path) -> dict[str, JsonValue] | None:
    found = read_regular_file(path, _BIGGEST)
    if found is None:
        return None
    try:
        told: object = json.loads(found.content)
    except (ValueError, RecursionError):
        raise Broken(f"`{path}` is no JSON") from None
    if not isinstance(told, dict):
        raise Broken(f"`{path}` is no JSON object")
    return cast("dict[str, JsonValue]", told)


def _looked_at(workspace: str, settings: HookSettings) -> tuple[dict[str, ScriptFile], dict[str, tuple[str, ...]]]:
    """Return every file of the workspace that a command names, and what the programs that it starts need beside themselves.

    What those find in other ways, or start in turn, is not covered: trusting a workspace's hooks is trusting its programs.
    """
    programs = [hook.action for hook in settings.hooks if isinstance(hook.action, CommandHook)]
    looked: dict[str, ScriptFile] = {}
    for path in sorted({path for program in programs for path in named_paths(program, workspace)}):
        found = read_workspace_file(path, workspace)
        if found is not None:
            looked[path] = found
    words = [word.value or "" for program in programs for word in started_words(program, workspace) or ()]
    run = [path for word in words if (path := workspace_path(workspace, word)) is not None and path in looked]
    return looked, {path: _look_beside(path, workspace, looked) for path in dict.fromkeys(run)}


def _look_beside(program: str, workspace: str, looked: dict[str, ScriptFile]) -> tuple[str, ...]:
    """Look at what a program needs beside itself, and at what that needs; return all of it.

    A program in `.claude` runs where it lies. What it finds outside of that is the project itself, as it is now.
    """
    needed, left = list[str](), [program]
    within = f"{workspace}/{KEPT}" if is_beneath(program, f"{workspace}/{KEPT}") else workspace
    origin = os.path.dirname(search_directory(looked[program], program))
    while left:
        path = left.pop()
        directories = (origin,) if path == program else (os.path.dirname(path), origin)
        for candidate in _wanted(path, looked[path], dict.fromkeys(directories), workspace):
            if candidate == program or candidate in needed or not is_beneath(candidate, within):
                continue
            found = looked.get(candidate) or read_workspace_file(candidate, workspace)
            if found is None:
                continue
            if len(needed) >= _MOST_BESIDE:
                raise Broken(
                    f"`{program}` needs more than {_MOST_BESIDE} files beside itself, which cannot all be pinned; "
                    "name a program outside the workspace, or one that needs less"
                )
            looked[candidate] = found
            needed.append(candidate)
            left.append(candidate)
    return tuple(sorted(needed))


def _wanted(path: str, looked: ScriptFile, directories: Iterable[str], workspace: str) -> Iterator[str]:
    language = script_language(path, looked.content)
    if language is not None:
        needs = script_needs(language, looked.content)
        for directory in directories:
            yield from needed_files(needs, language, directory, workspace)
    interpreter = workspace_path(workspace, script_interpreter(looked) or "")
    for program in filter(None, (path, interpreter)):
        if program == interpreter or os.path.basename(program).startswith("python"):
            yield from (program, environment_config(program))
    if is_activation(path):
        yield from (environment_config(path), *(os.path.join(os.path.dirname(path), name) for name in ("python", "python3")))


def command_words(program: CommandHook) -> list[str]:
    """Return the words of a command, as far as they can be told without being a shell."""
    if program.arguments is not None:
        return [program.line, *program.arguments]
    try:
        lexer = shlex.shlex(program.line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        lexer.commenters = ""
        return list(lexer)
    except ValueError:
        return program.line.split()
