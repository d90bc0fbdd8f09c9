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
from curtainwall.tools.hooks.files import Looked, look, look_at, path_in
from curtainwall.tools.hooks.lines import started
from curtainwall.tools.hooks.neighbours import configuration, files_beside, interpreter_of, is_activation, language_of, needs_of, place_of
from curtainwall.tools.hooks.settings import Program, Settings, read_settings

KEPT: Final = ".claude"
FILES: Final = (f"{KEPT}/settings.json", f"{KEPT}/settings.local.json")
_BIGGEST: Final = 4 * 1024 * 1024
_MOST_BESIDE: Final = 200


class Trust(StrEnum):
    """How a workspace's own hooks stand."""

    NONE = "none"
    UNTRUSTED = "untrusted"
    PINNED = "pinned"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Found:
    """The hooks of a workspace: how they stand, what they are, their digest, and the files of the workspace that it covers.

    `beside` has, for each program that is started, those of them that it needs beside itself.
    """

    workspace: str
    trust: Trust
    settings: Settings
    digest: str = ""
    looked: Mapping[str, Looked] = field(default_factory=dict[str, Looked])
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


def workspace_hooks(path: str | Path, pins: Mapping[str, str]) -> Found:
    """Return the hooks that a directory brings along, and whether they are what was trusted; raise `Broken` for settings in disorder."""
    workspace = os.path.realpath(path)
    parts: dict[str, JsonValue] = {}
    hooks: list[Settings] = []
    for name in FILES:
        told = _settings_in(Path(workspace, name))
        if told is None:
            continue
        read = read_settings(told, directory=workspace)
        if read.hooks or read.notes:
            parts[name] = {key: told[key] for key in ("hooks", "disableAllHooks") if key in told}
            hooks.append(read)
    settings = Settings(tuple(hook for each in hooks for hook in each.hooks), tuple(note for each in hooks for note in each.notes))
    if not settings.hooks:
        return Found(workspace, Trust.NONE, settings)
    looked, beside = _looked_at(workspace, settings)
    programs: dict[str, JsonValue] = {path: each.digest for path, each in looked.items()}
    digest = hashlib.sha256(canonical_json({"settings": parts, "programs": programs})).hexdigest()
    pinned = pins.get(workspace)
    trust = Trust.UNTRUSTED if pinned is None else Trust.PINNED if pinned == digest else Trust.CHANGED
    return Found(workspace, trust, settings, digest, looked, beside)


def named_by(program: Program, workspace: str) -> Iterator[str]:
    """Yield the paths in the workspace that the words of a command may name, whether or not there is such a file."""
    words = words_of(program)
    # What a shell in the line is told to run is a line as well.
    words += [inner for word in words if " " in word for inner in words_of(Program(word))]
    for word in words:
        for text in (word, word.rpartition("=")[2]):
            named = text.replace("${CLAUDE_PROJECT_DIR}", workspace).replace("$CLAUDE_PROJECT_DIR", workspace)
            path = path_in(workspace, named)
            if path is not None:
                yield path


def _settings_in(path: Path) -> dict[str, JsonValue] | None:
    found = look(path, _BIGGEST)
    if found is None:
        return None
    try:
        told: object = json.loads(found.content)
    except (ValueError, RecursionError):
        raise Broken(f"`{path}` is no JSON") from None
    if not isinstance(told, dict):
        raise Broken(f"`{path}` is no JSON object")
    return cast("dict[str, JsonValue]", told)


def _looked_at(workspace: str, settings: Settings) -> tuple[dict[str, Looked], dict[str, tuple[str, ...]]]:
    """Return every file of the workspace that a command names, and what the programs that it starts need beside themselves.

    What those find in other ways, or start in turn, is not covered: trusting a workspace's hooks is trusting its programs.
    """
    programs = [hook.action for hook in settings.hooks if isinstance(hook.action, Program)]
    looked: dict[str, Looked] = {}
    for path in sorted({path for program in programs for path in named_by(program, workspace)}):
        found = look_at(path, workspace)
        if found is not None:
            looked[path] = found
    words = [word.value or "" for program in programs for word in started(program, workspace) or ()]
    run = [path for word in words if (path := path_in(workspace, word)) is not None and path in looked]
    return looked, {path: _look_beside(path, workspace, looked) for path in dict.fromkeys(run)}


def _look_beside(program: str, workspace: str, looked: dict[str, Looked]) -> tuple[str, ...]:
    """Look at what a program needs beside itself, and at what that needs; return all of it.

    A program in `.claude` runs where it lies. What it finds outside of that is the project itself, as it is now.
    """
    needed, left = list[str](), [program]
    within = f"{workspace}/{KEPT}" if is_beneath(program, f"{workspace}/{KEPT}") else workspace
    origin = os.path.dirname(place_of(looked[program], program))
    while left:
        path = left.pop()
        directories = (origin,) if path == program else (os.path.dirname(path), origin)
        for candidate in _wanted(path, looked[path], dict.fromkeys(directories), workspace):
            if candidate == program or candidate in needed or not is_beneath(candidate, within):
                continue
            found = looked.get(candidate) or look_at(candidate, workspace)
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


def _wanted(path: str, looked: Looked, directories: Iterable[str], workspace: str) -> Iterator[str]:
    language = language_of(path, looked.content)
    if language is not None:
        needs = needs_of(language, looked.content)
        for directory in directories:
            yield from files_beside(needs, language, directory, workspace)
    interpreter = path_in(workspace, interpreter_of(looked) or "")
    for program in filter(None, (path, interpreter)):
        if program == interpreter or os.path.basename(program).startswith("python"):
            yield from (program, configuration(program))
    if is_activation(path):
        yield from (configuration(path), *(os.path.join(os.path.dirname(path), name) for name in ("python", "python3")))


def words_of(program: Program) -> list[str]:
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
