"""Whether the programs that hooks name can be found where hooks run; only what can be told without running anything is told."""

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from typing import Final

from curtainwall.tools.hooks.lines import first_words
from curtainwall.tools.hooks.pins import words_of
from curtainwall.tools.hooks.process import without_workspace
from curtainwall.tools.hooks.settings import Hook, Program

# What comes before the program itself, and what is given a script to run.
_BEFORE: Final = frozenset("exec command env nohup".split())
_INTERPRETERS: Final = frozenset("sh bash zsh python python3 node ruby perl".split())
# What the shell does by itself, and words after which only the shell knows how it goes on.
_OF_THE_SHELL: Final = frozenset(
    ". : ! { ( (( [[ alias break builtin case cd continue declare eval exit export for function if let local read readonly return select "
    "set shift shopt source time times trap type typeset ulimit umask unset until wait while".split()
)
# What bash knows and a plain shell does not.
_OF_BASH: Final = frozenset("source [[ (( shopt declare typeset let pushd popd select function".split())
_PLAIN_SHELLS: Final = frozenset({"dash", "busybox"})
_ASSIGNS: Final = re.compile(r"[A-Za-z_]\w*=")
_OPEN: Final = frozenset("$`*?[]{}()<>&;|~'\"\\\n")


def not_found(hooks: Iterable[Hook], project: str | None = None) -> Iterator[str]:
    """Yield a sentence for each hook whose program is not there; `project` is the workspace that they are for, where it is known."""
    searched = without_workspace(os.environ, project or "/dev/null").get("PATH")
    for hook in hooks:
        if not isinstance(hook.action, Program):
            continue
        for word, is_script in _named(hook.action, project):
            path = os.path.join(hook.directory, word) if is_script or "/" in word else None
            if shutil.which(word, path=searched) if path is None else os.path.isfile(path) and (is_script or os.access(path, os.X_OK)):
                continue
            yield f"{hook.event} runs `{word}`, {_what_is_wrong(path)}; {_what_follows(hook)}"
        for word in _of_bash(hook.action, project):
            lets = 'which `/bin/sh` does not know here (`"shell": "bash"` beside the command lets it)'
            yield f"{hook.event} runs `{word}`, {lets}; {_what_follows(hook)}"


def _named(program: Program, project: str | None) -> Iterator[tuple[str, bool]]:
    """Yield the program that a command starts, and a script that it is given; a word that only a shell could read ends it.

    INVARIANT: what could mean something else is passed over. A warning without a reason is worse than none.
    """
    has_shell = program.arguments is None
    words = (_placed(word, project, has_shell=has_shell) for word in words_of(program))
    for word in words:
        if has_shell and word is not None and (word in _BEFORE or _ASSIGNS.match(word)):
            continue
        if not word or word.startswith("-") or (has_shell and word in _OF_THE_SHELL):
            return
        yield word, False
        script = next(words, None) if os.path.basename(word) in _INTERPRETERS else None
        if script and not script.startswith("-"):
            yield script, True
        return


def _of_bash(program: Program, project: str | None) -> Iterator[str]:
    """Yield the words of a line for the plain shell that only bash knows."""
    if program.shell == "/bin/sh" and os.path.basename(os.path.realpath(program.shell)) in _PLAIN_SHELLS:
        yield from dict.fromkeys(word for word in first_words(program, project or "/dev/null") if word in _OF_BASH)


def _placed(word: str, project: str | None, *, has_shell: bool) -> str | None:
    """Return a word with the workspace or the user's home put in, or None where it would still mean something to a shell."""
    if has_shell and word.startswith("~/"):
        home = os.environ.get("HOME")
        return home + word[1:] if home and _OPEN.isdisjoint(word[1:]) else None
    for variable in ("${CLAUDE_PROJECT_DIR}", *(("$CLAUDE_PROJECT_DIR",) if has_shell else ())):
        if variable in word:
            if project is None:
                return None
            # The path itself may hold anything; it is what the shell puts in, not what it reads.
            return None if has_shell and not _OPEN.isdisjoint(word.replace(variable, "")) else word.replace(variable, project)
    return None if has_shell and not _OPEN.isdisjoint(word) else word


def _what_is_wrong(path: str | None) -> str:
    if path is None:
        return "which is not among your programs"
    if os.path.isfile(path):
        return "which may not be executed (`chmod +x` lets it)"
    return f"and there is no file `{os.path.normpath(path)}`"


def _what_follows(hook: Hook) -> str:
    return "until it can run, each call that it stands before is denied" if hook.event == "PreToolUse" else "until it can run, it fails"
