"""Parse a hook's command line into words, as far as possible without a shell, and find which of them are started."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Final

from curtainwall.model import record
from curtainwall.tools.hooks.settings import CommandHook

_PROJECT: Final = re.compile(r"\$(?:\{CLAUDE_PROJECT_DIR\}|CLAUDE_PROJECT_DIR(?![A-Za-z0-9_]))")
_OPERATOR: Final = re.compile(r"<<<|<<-?|<>|>>|>\||[<>]&|&>>?|[<>]|&&|\|[|&]?|;;?|[&()\n]")
# Characters that end a word, and characters that only a shell can expand.
_ENDS: Final = frozenset(" \t\n|&;()<>")
_OPEN: Final = frozenset("$`*?[~{}")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./,:@%+=-]+")

_ASSIGNS: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_FIRST_AGAIN: Final = frozenset("! { } if then elif else while until do fi done time".split())
_BEFORE: Final = frozenset("exec command env nohup setsid nice timeout".split())
_A_TIME: Final = re.compile(r"[0-9.]+[smhd]?")
_ELSEWHERE: Final = frozenset("cd chdir pushd popd eval case function".split())
# Programs that take a script to run, each with the options that replace the script.
_INTERPRETERS: Final = {
    re.compile(r"\.|source"): re.compile(r"(?!)"),
    re.compile(r"(?:ba|da|z|k)?sh"): re.compile(r"-[A-Za-z]*[cs][A-Za-z]*"),
    re.compile(r"python[0-9.]*|pypy3?"): re.compile(r"-[A-Za-z]*[cm].*"),
    re.compile(r"node|nodejs|ruby|perl|php|lua|Rscript|tsx"): re.compile(r"-[A-Za-z]*[eEpr].*|--(?:eval|print).*"),
    re.compile(r"uv|deno|bun"): re.compile(r"-m|--module"),
}
# For these, words without a dot or a slash are subcommands.
_RUNNERS: Final = frozenset({"uv", "deno", "bun"})
_LOOKS_LIKE_A_PATH: Final = re.compile(r"[./]")
_BRACKETS: Final = frozenset("{ } [ ] [[ ]]".split())


@record
class CommandWord:
    """A word or operator of a command: its position, and its value, or None if only a shell can expand it."""

    start: int
    end: int
    value: str | None
    is_operator: bool = False
    may_be_a_value: bool = False
    """It follows an option and does not look like a path, so it may be the value of that option."""


def parse_words(program: CommandHook, workspace: str) -> tuple[CommandWord, ...] | None:
    """Return the words of a command with the workspace substituted; None for a line that only a shell can read."""
    if program.arguments is None:
        return _scan(program.line, workspace)
    texts = (program.line, *program.arguments)
    return tuple(CommandWord(at, at + 1, text.replace("${CLAUDE_PROJECT_DIR}", workspace)) for at, text in enumerate(texts))


def replace_words(program: CommandHook, replacements: Mapping[int, str]) -> CommandHook:
    """Return the command with words replaced; replacements are keyed by the start of the original word."""
    if program.arguments is not None:
        line, *arguments = (replacements.get(at, text) for at, text in enumerate((program.line, *program.arguments)))
        return CommandHook(line, tuple(arguments), program.shell)
    line, at = "", 0
    for word in _scan(program.line, "") or ():
        if word.start in replacements:
            line += program.line[at : word.start] + shlex.quote(replacements[word.start])
            at = word.end
    return CommandHook(line + program.line[at:], None, program.shell)


def started_words(program: CommandHook, workspace: str) -> Iterator[CommandWord] | None:
    """Return the words of a command that are started: programs by their path, and scripts of interpreters; None as above.

    If the line changes the directory, the meaning of a relative path is unknown.
    """
    words, has_shell = parse_words(program, workspace), program.arguments is None
    if words is None:
        return None
    goes_elsewhere = has_shell and any(_goes_elsewhere(words[at:], workspace) for at in range(len(words)))
    commands = _commands(words) if has_shell else [words]
    return (
        replace(word, value=None) if goes_elsewhere and not os.path.isabs(word.value or "") else word
        for command in commands
        for word in _started_by(command, has_shell=has_shell)
    )


def first_words(program: CommandHook, workspace: str) -> Iterator[str]:
    """Yield the first word of each command of a line, as far as it can be read."""
    for command in _commands(parse_words(program, workspace) or ()) if program.arguments is None else ():
        first = _program(iter(command), has_shell=True)
        if first is not None and first.value is not None:
            yield first.value


def assigned_variables(program: CommandHook, workspace: str) -> frozenset[str]:
    """Return the names of the variables that a command sets, as far as they can be read."""
    values = [word.value or "" for word in parse_words(program, workspace) or ()]
    return frozenset(value.partition("=")[0].rstrip("+") for value in values if _ASSIGNS.match(value))


def _goes_elsewhere(words: Sequence[CommandWord], workspace: str) -> bool:
    """Tell whether a word changes the directory or the parsing of what follows it."""
    is_no_change = words[0].value == "cd" and len(words) > 1 and words[1].value in (workspace, ".")
    return words[0].value in _ELSEWHERE and not is_no_change


def _commands(words: Sequence[CommandWord]) -> Iterator[Sequence[CommandWord]]:
    """Yield the simple commands of a line, each without its redirections."""
    command, is_target = list[CommandWord](), False
    for word, after in zip_longest(words, words[1:]):
        if word.is_operator:
            is_target = _redirects(word)
            if not is_target and command:
                yield command
                command = []
            continue
        is_descriptor = after is not None and after.start == word.end and _redirects(after) and (word.value or "").isdigit()
        if not is_target and not is_descriptor:
            command.append(word)
        is_target = False
    if command:
        yield command


def _redirects(word: CommandWord) -> bool:
    return word.is_operator and not {"<", ">"}.isdisjoint(word.value or "")


def _started_by(command: Sequence[CommandWord], *, has_shell: bool) -> Iterator[CommandWord]:
    rest = iter(command)
    first = _program(rest, has_shell=has_shell)
    if first is None:
        return
    if first.value is None or "/" in first.value:
        yield first
    name = os.path.basename(first.value or "")
    inline_options = next((options for names, options in _INTERPRETERS.items() if names.fullmatch(name)), None)
    is_after_option = False
    for word in rest if inline_options is not None else ():
        value = word.value
        if value is not None and inline_options is not None and inline_options.fullmatch(value):
            return
        if name in _RUNNERS and value is not None and not _LOOKS_LIKE_A_PATH.search(value):
            continue
        if value is None or not value.startswith("-"):
            yield replace(word, may_be_a_value=is_after_option and not _LOOKS_LIKE_A_PATH.search(value or ""))
            if not is_after_option:
                return
        is_after_option = value is not None and value.startswith("-")


def _program(rest: Iterator[CommandWord], *, has_shell: bool) -> CommandWord | None:
    """Return the word that a simple command starts, after any prefixes."""
    prefix = ""
    for word in rest:
        value = word.value
        if value is None:
            return word
        if has_shell and (value in _FIRST_AGAIN or _ASSIGNS.match(value)):
            continue
        if value in _BEFORE:
            prefix = value
        elif value.startswith("-") and prefix:
            return None
        elif not (prefix == "timeout" and _A_TIME.fullmatch(value)) and not (prefix == "env" and _ASSIGNS.match(value)):
            return word
    return None


def _scan(line: str, workspace: str) -> tuple[CommandWord, ...] | None:
    """Return the words and operators of a shell line; None if that would require parsing comments, here-documents or substitutions."""
    words: list[CommandWord] = []
    at = 0
    while at < len(line):
        if line[at] in " \t":
            at += 1
        elif (operator := _OPERATOR.match(line, at)) is not None:
            if operator[0].startswith("<<"):
                return None
            words.append(CommandWord(at, operator.end(), operator[0], is_operator=True))
            at = operator.end()
        else:
            word = _word(line, at, workspace)
            if word is None or line[at] == "#":
                return None
            words.append(word)
            at = word.end
    return tuple(words)


def _word(line: str, start: int, workspace: str) -> CommandWord | None:
    """Return the word that starts here, or None if its end cannot be determined."""
    value, at, is_open = "", start, False
    while at < len(line) and line[at] not in _ENDS:
        letter = line[at]
        project = _PROJECT.match(line, at)
        if letter == "'":
            end = line.find("'", at + 1)
            if end < 0:
                return None
            value, at = value + line[at + 1 : end], end + 1
        elif letter == '"':
            quoted = _in_quotes(line, at + 1, workspace)
            if quoted is None:
                return None
            text, at = quoted
            value, is_open = value + (text or ""), is_open or text is None
        elif letter == "\\":
            if line[at + 1 : at + 2] in ("", "\n"):
                return None
            value, at = value + line[at + 1], at + 2
        elif project is not None:
            # Without quotes, the shell splits the substituted text.
            value, at, is_open = value + workspace, project.end(), is_open or not _PLAIN.fullmatch(workspace or "/")
        elif letter == "`" or line.startswith(("${", "$'", "$(", '$"'), at):
            return None
        else:
            value, at, is_open = value + letter, at + 1, is_open or letter in _OPEN
    text = line[start:at]
    # The value of an assignment is not a path that is started.
    is_open = is_open and text not in _BRACKETS and not _ASSIGNS.match(text)
    return CommandWord(start, at, None if is_open else value)


def _in_quotes(line: str, at: int, workspace: str) -> tuple[str | None, int] | None:
    """Return the quoted text, or None if it holds a variable, and the index after it; return None if its end cannot be determined."""
    value, is_open = "", False
    while at < len(line) and line[at] != '"':
        project = _PROJECT.match(line, at)
        if project is not None:
            value, at = value + workspace, project.end()
        elif line[at] == "`" or line.startswith(("${", "$("), at):
            return None
        elif line[at] == "\\" and line[at + 1 : at + 2] in ("$", "`", '"', "\\"):
            value, at = value + line[at + 1], at + 2
        elif line.startswith("\\\n", at):
            return None
        else:
            value, is_open, at = value + line[at], is_open or line[at] == "$", at + 1
    return (None if is_open else value, at + 1) if at < len(line) else None
