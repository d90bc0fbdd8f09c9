"""The hooks in a workspace's own settings. They run only while they are, byte for byte, what the user trusted."""

import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.facts import is_beneath
from curtainwall.host import locked, replace_file
from curtainwall.model import Broken, canonical_json, record
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
    """Whether the user trusts a workspace's own hooks."""

    NONE = "none"
    UNTRUSTED = "untrusted"
    PINNED = "pinned"
    CHANGED = "changed"


@record
class WorkspaceHooks:
    """The hooks of a workspace: their trust, their settings, their digest, and the workspace files that the digest covers.

    `beside` lists, for each program that is started, the covered files that it needs beside itself.
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
    """The digests that the user trusted, by the real path of the workspace, in a file that only we can read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[tuple[int, int, int], dict[str, str]] | None = None

    @property
    def directory(self) -> Path:
        """Return the directory that holds the file."""
        return self._path.parent

    def all(self) -> Mapping[str, str]:
        """Return every pin; raise `Broken` if the file cannot be parsed."""
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return {}
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        if self._seen is None or self._seen[0] != version:
            try:
                content: object = json.loads(self._path.read_bytes())
            except (OSError, ValueError) as error:
                raise Broken(
                    f"`{self._path}` cannot be read ({type(error).__name__}); take it away and trust your workspaces again"
                ) from None
            pins = cast("dict[object, object]", content) if isinstance(content, dict) else {None: None}
            if not all(isinstance(text, str) for pin in pins.items() for text in pin):
                raise Broken(f"`{self._path}` holds no pins; take it away and trust your workspaces again")
            self._seen = (version, cast("dict[str, str]", pins))
        return self._seen[1]

    def set(self, workspace: str, digest: str | None) -> None:
        """Pin a workspace to a digest, or remove its pin with None; concurrent callers take turns."""
        with locked(self._path.with_suffix(".lock")):
            pins = {path: pin for path, pin in self.all().items() if path != workspace}
            if digest is not None:
                pins[workspace] = digest
            target = Path(os.path.realpath(self._path))
            if not target.exists():
                _create(target)
            replace_file(str(target), json.dumps(pins, indent=1, sort_keys=True).encode())


def _create(path: Path) -> None:
    """Create a private file without pins; no reader ever sees it empty."""
    draft = path.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_bytes(b"{}")
    draft.replace(path)


def workspace_hooks(path: str | Path, pins: Mapping[str, str]) -> WorkspaceHooks:
    """Return the hooks in a directory's settings and whether they are trusted; raise `Broken` for invalid settings."""
    workspace = os.path.realpath(path)
    parts: dict[str, JsonValue] = {}
    hooks: list[HookSettings] = []
    for name in FILES:
        content = _settings_in(Path(workspace, name))
        if content is None:
            continue
        parsed = read_settings(content, directory=workspace)
        if parsed.hooks or parsed.notes:
            parts[name] = {key: content[key] for key in ("hooks", "disableAllHooks") if key in content}
            hooks.append(parsed)
    settings = HookSettings(tuple(hook for part in hooks for hook in part.hooks), tuple(note for part in hooks for note in part.notes))
    if not settings.hooks:
        return WorkspaceHooks(workspace, HookTrust.NONE, settings)
    scripts, beside = _inspect(workspace, settings)
    programs: dict[str, JsonValue] = {path: part.digest for path, part in scripts.items()}
    digest = hashlib.sha256(canonical_json({"settings": parts, "programs": programs})).hexdigest()
    pinned = pins.get(workspace)
    trust = HookTrust.UNTRUSTED if pinned is None else HookTrust.PINNED if pinned == digest else HookTrust.CHANGED
    return WorkspaceHooks(workspace, trust, settings, digest, scripts, beside)


def named_paths(program: CommandHook, workspace: str) -> Iterator[str]:
    """Yield the paths in the workspace that the words of a command may name, whether or not they exist."""
    words = command_words(program)
    # The argument of `sh -c` is a command line as well.
    words += [inner for word in words if " " in word for inner in command_words(CommandHook(word))]
    for word in words:
        for text in (word, word.rpartition("=")[2]):
            expanded = text.replace("${CLAUDE_PROJECT_DIR}", workspace).replace("$CLAUDE_PROJECT_DIR", workspace)
            path = workspace_path(workspace, expanded)
            if path is not None:
                yield path


def _settings_in(path: Path) -> dict[str, JsonValue] | None:
    file = read_regular_file(path, _BIGGEST)
    if file is None:
        return None
    try:
        content: object = json.loads(file.content)
    except (ValueError, RecursionError):
        raise Broken(f"`{path}` is no JSON") from None
    if not isinstance(content, dict):
        raise Broken(f"`{path}` is no JSON object")
    return cast("dict[str, JsonValue]", content)


def _inspect(workspace: str, settings: HookSettings) -> tuple[dict[str, ScriptFile], dict[str, tuple[str, ...]]]:
    """Return every workspace file that a command names, and what each started program needs beside itself.

    Anything these find in other ways, or start in turn, is not covered: trusting a workspace's hooks means trusting its programs.
    """
    programs = [hook.action for hook in settings.hooks if isinstance(hook.action, CommandHook)]
    scripts: dict[str, ScriptFile] = {}
    for path in sorted({path for program in programs for path in named_paths(program, workspace)}):
        script = read_workspace_file(path, workspace)
        if script is not None:
            scripts[path] = script
    words = [word.value or "" for program in programs for word in started_words(program, workspace) or ()]
    started = [path for word in words if (path := workspace_path(workspace, word)) is not None and path in scripts]
    return scripts, {path: _inspect_needs(path, workspace, scripts) for path in dict.fromkeys(started)}


def _inspect_needs(program: str, workspace: str, scripts: dict[str, ScriptFile]) -> tuple[str, ...]:
    """Inspect what a program needs beside itself, and what that needs in turn; return all of it.

    A program in `.claude` runs in place. Anything it finds outside `.claude` is the project in its current state.
    """
    needed, queue = list[str](), [program]
    within = f"{workspace}/{KEPT}" if is_beneath(program, f"{workspace}/{KEPT}") else workspace
    origin = os.path.dirname(search_directory(scripts[program], program))
    while queue:
        path = queue.pop()
        directories = (origin,) if path == program else (os.path.dirname(path), origin)
        for candidate in _candidates(path, scripts[path], dict.fromkeys(directories), workspace):
            if candidate == program or candidate in needed or not is_beneath(candidate, within):
                continue
            script = scripts.get(candidate) or read_workspace_file(candidate, workspace)
            if script is None:
                continue
            if len(needed) >= _MOST_BESIDE:
                raise Broken(
                    f"`{program}` needs more than {_MOST_BESIDE} files beside itself, which cannot all be pinned; "
                    "name a program outside the workspace, or one that needs less"
                )
            scripts[candidate] = script
            needed.append(candidate)
            queue.append(candidate)
    return tuple(sorted(needed))


def _candidates(path: str, script: ScriptFile, directories: Iterable[str], workspace: str) -> Iterator[str]:
    language = script_language(path, script.content)
    if language is not None:
        needs = script_needs(language, script.content)
        for directory in directories:
            yield from needed_files(needs, language, directory, workspace)
    interpreter = workspace_path(workspace, script_interpreter(script) or "")
    for program in filter(None, (path, interpreter)):
        if program == interpreter or os.path.basename(program).startswith("python"):
            yield from (program, environment_config(program))
    if is_activation(path):
        yield from (environment_config(path), *(os.path.join(os.path.dirname(path), name) for name in ("python", "python3")))


def command_words(program: CommandHook) -> list[str]:
    """Return the words of a command, as far as they can be read without a shell."""
    if program.arguments is not None:
        return [program.line, *program.arguments]
    try:
        lexer = shlex.shlex(program.line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        lexer.commenters = ""
        return list(lexer)
    except ValueError:
        return program.line.split()
