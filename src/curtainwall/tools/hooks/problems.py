"""Diagnose a hook's program: it is missing, or lacks something when it runs as a copy. Each diagnosis suggests a fix."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Final

from curtainwall.facts import is_beneath
from curtainwall.tools.hooks.command_line import first_words, parse_words
from curtainwall.tools.hooks.copies import exchangeable
from curtainwall.tools.hooks.pins import WorkspaceHooks, command_words
from curtainwall.tools.hooks.process import HookRun, environment_without_workspace
from curtainwall.tools.hooks.replies import HookAnswer
from curtainwall.tools.hooks.scripts import Language, environment_config, needed_packages, script_language, script_needs, search_directory
from curtainwall.tools.hooks.settings import CommandHook, Hook

_MISSING: Final = re.compile(
    rb"no such (?:file|module)|not found|cannot (?:find|open|access|import|use import)|can't open|no module named|unable to find",
    re.IGNORECASE,
)
_MOST_NAMES: Final = 5
_NOT_STARTED: Final = frozenset({126, 127})
_FINDS_LITTLE: Final = (
    "it ran as a copy of what you trusted, which finds beside itself only what `curtainwall hooks list` names; "
    "find the project by `CLAUDE_PROJECT_DIR`, or keep the program in `.claude`"
)


def missing_beside_copies(inspected: WorkspaceHooks) -> Iterator[str]:
    """Yield a sentence for each thing that a program of the workspace will not find when it runs, with a suggested fix."""
    warnings: dict[str, None] = {}
    for hook in inspected.settings.hooks:
        if isinstance(hook.action, CommandHook):
            by_default = list(_missing_from_copy(hook.action, inspected, is_free=False))
            in_bypass = [sentence for sentence in _missing_from_copy(hook.action, inspected, is_free=True) if sentence not in by_default]
            for sentence in (*by_default, *(f"in mode `bypass`, {sentence}" for sentence in in_bypass)):
                warnings[f"{sentence}; {_otherwise(hook)}"] = None
    yield from warnings


def _otherwise(hook: Hook) -> str:
    return "otherwise it fails" + (", and each call that it stands before is denied" if hook.event == "PreToolUse" else "")


def explaining_hook(hook: Hook, inspected: WorkspaceHooks, *, is_free: bool) -> Hook:
    """Return the hook with an explanation of what its copies do not find."""
    if hook.runs is None or not isinstance(hook.action, CommandHook):
        return hook
    return replace(hook, alone="; ".join(_missing_from_copy(hook.action, inspected, is_free=is_free)))


def explain_failure(answer: HookAnswer, hook: Hook, run: HookRun) -> HookAnswer:
    """Return a hook's answer, with the reason added if it failed because its copy lacks something that the original would find."""
    is_missing = run.code in _NOT_STARTED or _MISSING.search(run.err) is not None
    if hook.runs is None or run.code <= 0 or not (is_missing or (answer.failure and hook.alone)):
        return answer
    reason = hook.alone or _FINDS_LITTLE
    if answer.failure:
        return replace(answer, failure=f"{answer.failure} ({reason})")
    return answer if answer.refusal is None else replace(answer, refusal=f"{answer.refusal} ({reason})")


def _missing_from_copy(program: CommandHook, inspected: WorkspaceHooks, *, is_free: bool) -> Iterator[str]:
    paths = dict.fromkeys(path for _, path in exchangeable(program, inspected, is_free=is_free) if path in inspected.looked)
    for path in paths:
        yield from _missing_for_script(path, program, inspected)
        if os.path.basename(path).startswith("python") and environment_config(path) in inspected.looked:
            yield from _missing_for_environment(path, program, list(paths), inspected)


def _missing_for_script(path: str, program: CommandHook, inspected: WorkspaceHooks) -> Iterator[str]:
    script, language = inspected.looked[path], script_language(path, inspected.looked[path].content)
    if language is None:
        return
    needs, companions = script_needs(language, script.content), inspected.beside.get(path, ())
    names = list(dict.fromkeys(name for each in (path, *companions) for name in _packages(each, inspected)))
    if names:
        yield f"`{path}` needs {_listed(names)} from `node_modules`, which its copy does not find; {_instead(path, program, inspected)}"
    if needs.changes_directory:
        yield f'`{path}` goes to the directory that it lies in, which is that of its copy; write `cd "$CLAUDE_PROJECT_DIR"` there'
    elif needs.finds_itself and not companions:
        yield (
            f"`{path}` looks for files from where it lies, and beside its copy there are none; find them by `CLAUDE_PROJECT_DIR`, "
            f"or {_instead(path, program, inspected)}"
        )


def _packages(path: str, inspected: WorkspaceHooks) -> Iterator[str]:
    script = inspected.looked[path]
    if script_language(path, script.content) is Language.NODE:
        yield from needed_packages(
            script_needs(Language.NODE, script.content), os.path.dirname(search_directory(script, path)), inspected.workspace
        )


def _missing_for_environment(path: str, program: CommandHook, paths: list[str], inspected: WorkspaceHooks) -> Iterator[str]:
    """Yield what an interpreter does not find because it runs without its environment in the workspace."""
    missing = list(dict.fromkeys(name for each in paths for name in _modules(each, inspected)))
    words = [word.value or "" for word in parse_words(program, inspected.workspace) or ()]
    for option, name in pairwise(words):
        top = name.partition(".")[0]
        is_here = any(os.path.exists(f"{inspected.workspace}/{top}{ending}") for ending in ("", ".py"))
        if option == "-m" and top not in sys.stdlib_module_names and not is_here:
            missing.append(name)
    if missing:
        leads_to = inspected.looked[path].leads_to
        yield (
            f"`{path}` runs as {f'`{leads_to}`' if leads_to else 'a copy'}, without the packages of its environment, "
            f"and {_listed(missing)} may be one of them; name an environment outside the workspace, or {_where_it_lies(program)}"
        )


def _modules(path: str, inspected: WorkspaceHooks) -> Iterator[str]:
    """Yield the imports of a script and the files beside it that are neither in the standard library nor among those files."""
    files = (path, *inspected.beside.get(path, ()))
    local_names = {part.removesuffix(".py") for each in files for part in each.removeprefix(inspected.workspace).split("/")}
    for each in files:
        if script_language(each, inspected.looked[each].content) is Language.PYTHON:
            yield from (name for name in script_needs(Language.PYTHON, inspected.looked[each].content).modules if name not in local_names)


def _instead(path: str, program: CommandHook, inspected: WorkspaceHooks) -> str:
    if path.endswith(f"/node_modules/.bin/{os.path.basename(path)}"):
        return f"write `npx --no-install {os.path.basename(path)}`, which runs whatever lies there, also what an agent put there"
    advice = "" if is_beneath(path, f"{inspected.workspace}/.claude") else "keep it in `.claude`, or "
    return advice + _where_it_lies(program)


def _where_it_lies(program: CommandHook) -> str:
    line = program.line if program.arguments is None else shlex.join((program.line, *program.arguments))
    return f"write `sh -c {shlex.quote(line)}`, which runs what lies there, also what an agent put there"


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:_MOST_NAMES]) + (" and others" if len(names) > _MOST_NAMES else "")


# Words that may precede the program, and programs that take a script to run.
_BEFORE: Final = frozenset("exec command env nohup".split())
_INTERPRETERS: Final = frozenset("sh bash zsh python python3 node ruby perl".split())
# Shell builtins, and words after which only a shell can parse the rest.
_OF_THE_SHELL: Final = frozenset(
    ". : ! { ( (( [[ alias break builtin case cd continue declare eval exit export for function if let local read readonly return select "
    "set shift shopt source time times trap type typeset ulimit umask unset until wait while".split()
)
# Words that bash knows and a plain shell does not.
_OF_BASH: Final = frozenset("source [[ (( shopt declare typeset let pushd popd select function".split())
_PLAIN_SHELLS: Final = frozenset({"dash", "busybox"})
_ASSIGNS: Final = re.compile(r"[A-Za-z_]\w*=")
_OPEN: Final = frozenset("$`*?[]{}()<>&;|~'\"\\\n")


def missing_programs(hooks: Iterable[Hook], project: str | None = None) -> Iterator[str]:
    """Yield a sentence for each hook whose program is missing; `project` is the workspace that they are for, if known."""
    searched = environment_without_workspace(os.environ, project or "/dev/null").get("PATH")
    for hook in hooks:
        if not isinstance(hook.action, CommandHook):
            continue
        for word, is_script in _program_and_script(hook.action, project):
            path = os.path.join(hook.directory, word) if is_script or "/" in word else None
            if shutil.which(word, path=searched) if path is None else os.path.isfile(path) and (is_script or os.access(path, os.X_OK)):
                continue
            yield f"{hook.event} runs `{word}`, {_what_is_wrong(path)}; {_what_follows(hook)}"
        for word in _bash_words(hook.action, project):
            lets = 'which `/bin/sh` does not know here (`"shell": "bash"` beside the command lets it)'
            yield f"{hook.event} runs `{word}`, {lets}; {_what_follows(hook)}"


def _program_and_script(program: CommandHook, project: str | None) -> Iterator[tuple[str, bool]]:
    """Yield the program that a command starts and the script that it runs; stop at a word that only a shell can read.

    INVARIANT: skip anything ambiguous. A false warning is worse than none.
    """
    has_shell = program.arguments is None
    words = (_expanded(word, project, has_shell=has_shell) for word in command_words(program))
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


def _bash_words(program: CommandHook, project: str | None) -> Iterator[str]:
    """Yield the words of a plain shell's line that only bash knows."""
    if program.shell == "/bin/sh" and os.path.basename(os.path.realpath(program.shell)) in _PLAIN_SHELLS:
        yield from dict.fromkeys(word for word in first_words(program, project or "/dev/null") if word in _OF_BASH)


def _expanded(word: str, project: str | None, *, has_shell: bool) -> str | None:
    """Return a word with the workspace or the user's home substituted, or None if a shell would still expand it."""
    if has_shell and word.startswith("~/"):
        home = os.environ.get("HOME")
        return home + word[1:] if home and _OPEN.isdisjoint(word[1:]) else None
    for variable in ("${CLAUDE_PROJECT_DIR}", *(("$CLAUDE_PROJECT_DIR",) if has_shell else ())):
        if variable in word:
            if project is None:
                return None
            # The path itself may hold any character: the shell substitutes it and does not parse it.
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
