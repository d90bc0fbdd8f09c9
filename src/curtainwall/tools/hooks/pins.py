"""Hooks that a workspace brings along: found, shown, and run only as long as they are, to the byte, what the user trusted."""

import hashlib
import json
import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.facts import is_beneath
from curtainwall.host import replace_file
from curtainwall.model import Broken, canonical_json
from curtainwall.tools.hooks.settings import Program, Settings, read_settings

FILES: Final = (".claude/settings.json", ".claude/settings.local.json")
_BIGGEST: Final = 4 * 1024 * 1024
_BIGGEST_PROGRAM: Final = 64 * 1024 * 1024


class Trust(StrEnum):
    """How a workspace's own hooks stand."""

    NONE = "none"
    UNTRUSTED = "untrusted"
    PINNED = "pinned"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Looked:
    """A file as it was when it was looked at: opened once, and all of this is of what was open."""

    content: bytes
    is_executable: bool
    has_one_name: bool

    @property
    def digest(self) -> str:
        """Return the digest of its content."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class Found:
    """The hooks of a workspace: how they stand, what they are, their digest, and the files of the workspace that it covers."""

    workspace: str
    trust: Trust
    settings: Settings
    digest: str = ""
    looked: Mapping[str, Looked] = field(default_factory=dict[str, Looked])

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
        """Pin a workspace to a digest, or with None to nothing."""
        pins = {path: pin for path, pin in self.all().items() if path != workspace}
        if digest is not None:
            pins[workspace] = digest
        self._path.touch(mode=0o600)
        replace_file(os.path.realpath(self._path), json.dumps(pins, indent=1, sort_keys=True).encode())


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
    looked = _looked_at(workspace, settings)
    programs: dict[str, JsonValue] = {path: each.digest for path, each in looked.items()}
    digest = hashlib.sha256(canonical_json({"settings": parts, "programs": programs})).hexdigest()
    pinned = pins.get(workspace)
    trust = Trust.UNTRUSTED if pinned is None else Trust.PINNED if pinned == digest else Trust.CHANGED
    return Found(workspace, trust, settings, digest, looked)


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


def path_in(workspace: str, word: str) -> str | None:
    """Return the path in the workspace that a word names there, be it by another way in; None where it names none."""
    if not word or "\0" in word:
        return None
    path = os.path.normpath(os.path.join(workspace, word))
    if not is_beneath(path, workspace):
        path = os.path.realpath(path)
    return path if path != workspace and is_beneath(path, workspace) else None


def _settings_in(path: Path) -> dict[str, JsonValue] | None:
    found = _look(path, _BIGGEST)
    if found is None:
        return None
    try:
        told: object = json.loads(found.content)
    except (ValueError, RecursionError):
        raise Broken(f"`{path}` is no JSON") from None
    if not isinstance(told, dict):
        raise Broken(f"`{path}` is no JSON object")
    return cast("dict[str, JsonValue]", told)


def _looked_at(workspace: str, settings: Settings) -> dict[str, Looked]:
    """Return every file of the workspace that a command names.

    What those in turn read or start is not covered: trusting a workspace's hooks is trusting its programs.
    """
    named = {path for hook in settings.hooks if isinstance(hook.action, Program) for path in named_by(hook.action, workspace)}
    looked = {path: _look(Path(path), _BIGGEST_PROGRAM) for path in sorted(named)}
    return {path: found for path, found in looked.items() if found is not None}


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


def _look(path: Path, most: int) -> Looked | None:
    """Return a regular file as it is now, or None where there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as fault:
        raise Broken(f"`{path}` cannot be read: {(fault.strerror or '').lower()}") from None
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        os.close(descriptor)
        return None
    with open(descriptor, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise Broken(f"`{path}` is bigger than {most} bytes")
    return Looked(content, bool(about.st_mode & 0o111), about.st_nlink == 1)
