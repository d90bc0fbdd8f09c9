"""Parses git's config format as git does, and finds a repository with its config. Runs no git."""

import os
import re
import stat
from typing import NoReturn

from curtainwall.facts.paths import real_path
from curtainwall.facts.refusal import Unclear, quoted
from curtainwall.model import is_beneath, on_disk, record

# Reading it blocks all other work, and a plan may name many repositories; real configs have a few hundred lines.
_MAX_CONFIG = 1 << 18
_MAX_ENTRIES = 10_000
_MAX_POINTER = 4_096
_SECTION = re.compile(r"\[([A-Za-z0-9.-]+)(?:[ \t\r]+\"((?:[^\"\\\n\0]|\\[^\n\0])*)\")?\]")
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:(=)|(?=\n))")
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", "\\": "\\", '"': '"'}


@record
class GitConfigEntry:
    """One config entry: section and key in lower case, the subsection as written; a key without a value means true."""

    section: str
    subsection: str | None
    key: str
    value: str | None


@record
class Repository:
    """A repository on this machine: git's common directory, the config entries, and the worktree's own directory."""

    directory: str
    entries: tuple[GitConfigEntry, ...]
    own: str


def read_entries(text: str) -> tuple[GitConfigEntry, ...]:
    """Return the entries of a git config file, in order."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if "\0" in text:
        _refuse(text, text.index("\0"))
    entries: list[GitConfigEntry] = []
    section: tuple[str, str | None] | None = None
    at = 0
    if not text.endswith("\n"):
        text += "\n"
    while at < len(text):
        letter = text[at]
        if letter in " \t\n\r":
            at += 1
        elif letter in "#;":
            at = text.index("\n", at)
        elif letter == "[":
            header = _SECTION.match(text, at) or _refuse(text, at)
            section = _section(header[1], header[2])
            at = header.end()
        else:
            key = _KEY.match(text, at)
            if key is None or section is None:
                _refuse(text, at)
            value, at = _value(text, key.end()) if key[2] else (None, key.end())
            if len(entries) == _MAX_ENTRIES:
                raise Unclear(f"the repository's config has more than {_MAX_ENTRIES} entries")
            entries.append(GitConfigEntry(section[0], section[1], key[1].lower(), value))
    return tuple(entries)


def _section(name: str, quoted_part: str | None) -> tuple[str, str | None]:
    """Return section and subsection; a subsection after a dot, as in old configs, is in lower case."""
    if quoted_part is None:
        section, dot, subsection = name.lower().partition(".")
        return section, subsection if dot else None
    section, dot, prefix = name.lower().partition(".")
    subsection = re.sub(r"\\(.)", r"\1", quoted_part)
    return section, f"{prefix}.{subsection}" if dot else subsection


def _value(text: str, at: int) -> tuple[str, int]:
    """Return the value that starts at a place, and where its line ends."""
    out: list[str] = []
    kept = 0
    is_quoted = False
    while True:
        letter = text[at : at + 1] or "\n"
        at += 1
        if letter == "\n":
            if is_quoted:
                _refuse(text, at)
            return "".join(out[:kept]), at
        if letter in " \t\r" and not is_quoted:
            if out:
                out.append(" ")
            continue
        if letter in "#;" and not is_quoted:
            at = text.index("\n", at)
            continue
        kept = len(out)
        if letter == '"':
            is_quoted = not is_quoted
            continue
        if letter == "\\":
            letter = text[at]
            at += 1
            if letter == "\n":
                continue
            if letter not in _ESCAPES:
                _refuse(text, at)
            letter = _ESCAPES[letter]
        out.append(letter)
        kept = len(out)


def _refuse(text: str, at: int) -> NoReturn:
    line = text.count("\n", 0, at) + 1
    raise Unclear(f"the repository's config cannot be read in line {line}")


def find_repository(start: str, workspace: str = "/") -> Repository | None:
    """Return the repository that git, started in a directory, would find: there or above; None if there is none.

    The search stops at the workspace, and no pointer is followed out of it: files in the workspace must not make us read, and reveal,
    anything elsewhere. For a directory outside the workspace, only that directory is searched.
    """
    if "\0" in start or not os.path.isabs(start):
        raise Unclear(f"{quoted(start)} is not the real path of a directory")
    here, limit = start, workspace if is_beneath(start, workspace) else start
    while True:
        own = _git_directory(here, limit)
        if own is not None:
            directory = _common(own, limit)
            return Repository(directory, _entries_of(directory), own)
        above = os.path.dirname(here)
        if here in (limit, above):
            return None
        here = above


def _git_directory(here: str, limit: str) -> str | None:
    """Return the directory with git's files, if a directory is the top of a working tree or a bare repository."""
    inside = os.path.join(here, ".git")
    try:
        mode = os.lstat(on_disk(inside)).st_mode
    except OSError:
        mode = 0
    if stat.S_ISREG(mode):
        return _follow_pointer(here, inside, limit)
    if stat.S_ISDIR(mode) and _is_git_directory(inside):
        return inside
    if mode:
        raise Unclear(f"{quoted(inside)} is no git directory, and a link or a broken one could mean any repository")
    return here if _is_git_directory(here) else None


def _is_git_directory(path: str) -> bool:
    at = on_disk(path)
    return os.path.lexists(os.path.join(at, "HEAD")) and all(os.path.isdir(os.path.join(at, part)) for part in ("objects", "refs"))


def _follow_pointer(here: str, pointer: str, limit: str) -> str:
    """Follow a `.git` file of a worktree or submodule."""
    text = _read(pointer, _MAX_POINTER)
    target = text.removeprefix("gitdir: ").rstrip("\r\n")
    if not text.startswith("gitdir: ") or not target or "\n" in target:
        raise Unclear(f"{quoted(pointer)} does not say which repository this is")
    directory = _require_inside(real_path(os.path.join(here, target)), pointer, limit)
    if not os.path.lexists(on_disk(os.path.join(directory, "HEAD"))):
        raise Unclear(f"{quoted(pointer)} leads to {quoted(directory)}, which is no git directory")
    return directory


def _common(directory: str, limit: str) -> str:
    """Return the directory whose config counts; a worktree's own directory must be `worktrees/NAME` in it."""
    pointer = os.path.join(directory, "commondir")
    if not os.path.lexists(on_disk(pointer)):
        return directory
    common = _require_inside(real_path(os.path.join(directory, _read(pointer, _MAX_POINTER).rstrip("\r\n"))), pointer, limit)
    if os.path.dirname(directory) != os.path.join(common, "worktrees"):
        raise Unclear(f"{quoted(pointer)} leads to {quoted(common)}, where this worktree does not belong")
    return common


def _require_inside(directory: str, pointer: str, limit: str) -> str:
    if not is_beneath(directory, limit):
        raise Unclear(f"{quoted(pointer)} leads out of {quoted(limit)}, beyond what this call may touch")
    return directory


def _entries_of(directory: str) -> tuple[GitConfigEntry, ...]:
    path = os.path.join(directory, "config")
    entries = read_entries(_read(path, _MAX_CONFIG)) if os.path.lexists(on_disk(path)) else ()
    for entry in entries:
        if entry.section in ("include", "includeif"):
            raise Unclear("the repository's config includes other files, which could change where its remotes lead")
        if (entry.section, entry.key) == ("extensions", "worktreeconfig"):
            raise Unclear("the repository has a config per worktree, which could change where its remotes lead")
    return entries


def open_no_link(path: str, _flags: int) -> int:
    """Open a file for reading without following a link or blocking on a pipe."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def read_bytes(path: str, limit: int) -> bytes:
    """Return the content of a git file, which must be regular and within the limit; raise `OSError` if it is missing."""
    with open(on_disk(path), "rb", opener=open_no_link) as file:
        data = file.read(limit + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    if data is None or len(data) > limit:
        raise Unclear(f"{quoted(path)} is not a file of ordinary size")
    return data


def _read(path: str, limit: int) -> str:
    try:
        data = read_bytes(path, limit)
    except OSError as error:
        raise Unclear(f"{quoted(path)} cannot be read: {(error.strerror or 'unknown').lower()}") from None
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Unclear(f"{quoted(path)} is not valid text") from None
