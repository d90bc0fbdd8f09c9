"""Shell text as an agent writes it, and every command and redirection in it, each on its own.

What cannot be parsed is never allowed by a pattern: `parsed` is false wherever something other than the named program might run.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import tree_sitter_bash
from tree_sitter import Language, Parser

from curtainwall.facts.refusal import Unclear, quoted
from curtainwall.facts.shell.launchers import is_launcher, launch
from curtainwall.facts.shell.syntax import Draft, walk

_BASH = Language(tree_sitter_bash.language())

_MAX_BYTES = 65_536
_MAX_NESTING = 4
_MAX_LAUNCHERS = 8
# The parser's error recovery takes time quadratic in these.
_MAX_METACHARACTERS = 2_000
_METACHARACTERS = re.compile(r"[|&;<>(){}\[\]$`!#*=]")
# Beyond NUL: what one program takes for a space or a line break and another does not.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u0085\u2028\u2029]")
# The grammar's own scanner looks characters up in a table of 256 and can crash on others. To bash they are letters of a word that is no
# name, as the slash is, and byte for byte the places stay the same; the words themselves are read from what was written.
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_PROGRAM = re.compile(r"[A-Za-z0-9_./+:@,-]+|\[\[?")


@dataclass(frozen=True, slots=True)
class Redirect:
    """A file that the shell itself opens for a command; the target is a literal path as the agent wrote it."""

    kind: Literal["read", "write", "append"]
    target: str


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command.

    `text` has single spaces and quotes only where needed. `program` is the word that runs, never its basename. `parsed` is false where
    something else might run. `words` is the whole argument list if every word of it is literal, else empty.
    """

    text: str
    program: str
    parsed: bool
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Script:
    """Everything in one shell text: at least one command, and the files that redirections open."""

    commands: tuple[Command, ...]
    redirects: tuple[Redirect, ...] = ()


def parse_script(text: object) -> Script:
    """Return every command and every redirection in a shell text, as `bash -c` would run it."""
    if not isinstance(text, str):
        raise Unclear(f"a command must be a string, not {quoted(text)}")
    if not text.strip():
        raise Unclear("the command is empty")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise Unclear(f"the command {quoted(text)} is not valid text") from None
    return (_script(text, 0) if size <= _MAX_BYTES else None) or _unparsed(text)


def _unparsed(text: str) -> Script:
    return Script((Command(text=text, program="", parsed=False),))


def _script(text: str, nesting: int) -> Script | None:
    """Return what a shell text holds, or None where it cannot be told at all."""
    if nesting > _MAX_NESTING or _CONTROL.search(text) or len(_METACHARACTERS.findall(text)) > _MAX_METACHARACTERS:
        return None
    source = text.encode()
    # A parser per text: cheaper than a lock, and safe in any thread.
    root = Parser(_BASH).parse(_NOT_ASCII.sub(b"/", source)).root_node
    found = None if root.has_error else walk(root, source)
    if found is None:
        return None
    commands: list[Command] = []
    redirects = [Redirect(kind, target) for kind, target in found.redirects]
    for draft in found.drafts:
        for command, script in _finished(draft, found.defined):
            commands.append(command)
            if script is not None:
                inner = _script(script, nesting + 1) or _unparsed(script)
                commands.extend(inner.commands)
                redirects.extend(inner.redirects)
    return Script(tuple(commands) or _unparsed(text).commands, tuple(redirects))


def _finished(draft: Draft, defined: set[str]) -> Iterator[tuple[Command, str | None]]:
    """Yield a draft as a command, then what it launches; with each the shell text that it would run, if any."""
    words, sound, extended = draft.words, draft.sound, False
    if not words:
        yield Command(text=draft.source, program="", parsed=False), None
    for _ in range(_MAX_LAUNCHERS):
        if not words:
            return
        program = words[0].value
        if program is None or not _PROGRAM.fullmatch(program):
            program, sound = "", False
        started = launch(words)
        # Where more words arrive than are written, a program that could take them as orders may run anything.
        known = started.known and program not in defined and not (extended and is_launcher(program))
        values = tuple(word.value for word in words if word.value is not None)
        text = " ".join(word.text for word in words)
        yield Command(text, program, parsed=sound and known, words=values if len(values) == len(words) else ()), started.script
        words, sound, extended = started.argv, sound and not started.disturbed, extended or started.extended
    yield Command(text=" ".join(word.text for word in words), program="", parsed=False), None
