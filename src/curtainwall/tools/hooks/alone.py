"""What programs do not find that run as copies, or without the environment that they are of; and what to write in their place."""

import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Final

from curtainwall.facts import is_beneath
from curtainwall.tools.hooks.copies import exchangeable
from curtainwall.tools.hooks.lines import words_in
from curtainwall.tools.hooks.neighbours import Language, configuration, language_of, needs_of, packages, place_of
from curtainwall.tools.hooks.pins import Found
from curtainwall.tools.hooks.process import Ran
from curtainwall.tools.hooks.replies import Said
from curtainwall.tools.hooks.settings import Hook, Program

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


def standing_alone(found: Found) -> Iterator[str]:
    """Yield a sentence for each thing that a program of the workspace will not find as it runs, with what to write instead."""
    told: dict[str, None] = {}
    for hook in found.settings.hooks:
        if isinstance(hook.action, Program):
            usual = list(_alone(hook.action, found, is_free=False))
            free = [sentence for sentence in _alone(hook.action, found, is_free=True) if sentence not in usual]
            for sentence in (*usual, *(f"in mode `bypass`, {sentence}" for sentence in free)):
                told[f"{sentence}; {_otherwise(hook)}"] = None
    yield from told


def _otherwise(hook: Hook) -> str:
    return "otherwise it fails" + (", and each call that it stands before is denied" if hook.event == "PreToolUse" else "")


def with_what_is_missing(hook: Hook, found: Found, *, is_free: bool) -> Hook:
    """Return a hook that can say what its copies do not find."""
    if hook.runs is None or not isinstance(hook.action, Program):
        return hook
    return replace(hook, alone="; ".join(_alone(hook.action, found, is_free=is_free)))


def explained(said: Said, hook: Hook, ran: Ran) -> Said:
    """Return what a hook says, with the reason where it failed for want of something that only its copy does not find."""
    is_missing = ran.code in _NOT_STARTED or _MISSING.search(ran.err) is not None
    if hook.runs is None or ran.code <= 0 or not (is_missing or (said.failure and hook.alone)):
        return said
    why = hook.alone or _FINDS_LITTLE
    if said.failure:
        return replace(said, failure=f"{said.failure} ({why})")
    return said if said.refusal is None else replace(said, refusal=f"{said.refusal} ({why})")


def _alone(program: Program, found: Found, *, is_free: bool) -> Iterator[str]:
    paths = dict.fromkeys(path for _, path in exchangeable(program, found, is_free=is_free) if path in found.looked)
    for path in paths:
        yield from _of_script(path, program, found)
        if os.path.basename(path).startswith("python") and configuration(path) in found.looked:
            yield from _of_environment(path, program, list(paths), found)


def _of_script(path: str, program: Program, found: Found) -> Iterator[str]:
    looked, language = found.looked[path], language_of(path, found.looked[path].content)
    if language is None:
        return
    needs, around = needs_of(language, looked.content), found.beside.get(path, ())
    names = list(dict.fromkeys(name for each in (path, *around) for name in _packages(each, found)))
    if names:
        yield f"`{path}` needs {_listed(names)} from `node_modules`, which its copy does not find; {_instead(path, program, found)}"
    if needs.goes_there:
        yield f'`{path}` goes to the directory that it lies in, which is that of its copy; write `cd "$CLAUDE_PROJECT_DIR"` there'
    elif needs.finds_itself and not around:
        yield (
            f"`{path}` looks for files from where it lies, and beside its copy there are none; find them by `CLAUDE_PROJECT_DIR`, "
            f"or {_instead(path, program, found)}"
        )


def _packages(path: str, found: Found) -> Iterator[str]:
    looked = found.looked[path]
    if language_of(path, looked.content) is Language.NODE:
        yield from packages(needs_of(Language.NODE, looked.content), os.path.dirname(place_of(looked, path)), found.workspace)


def _of_environment(path: str, program: Program, paths: list[str], found: Found) -> Iterator[str]:
    """Yield what an interpreter does not find that is run without the environment in the workspace that it is of."""
    missing = list(dict.fromkeys(name for each in paths for name in _modules(each, found)))
    words = [word.value or "" for word in words_in(program, found.workspace) or ()]
    for option, name in pairwise(words):
        top = name.partition(".")[0]
        is_here = any(os.path.exists(f"{found.workspace}/{top}{ending}") for ending in ("", ".py"))
        if option == "-m" and top not in sys.stdlib_module_names and not is_here:
            missing.append(name)
    if missing:
        leads_to = found.looked[path].leads_to
        yield (
            f"`{path}` runs as {f'`{leads_to}`' if leads_to else 'a copy'}, without the packages of its environment, "
            f"and {_listed(missing)} may be one of them; name an environment outside the workspace, or {_where_it_lies(program)}"
        )


def _modules(path: str, found: Found) -> Iterator[str]:
    """Yield what a script and the files beside it import that is neither Python's own nor one of them."""
    around = (path, *found.beside.get(path, ()))
    here = {part.removesuffix(".py") for each in around for part in each.removeprefix(found.workspace).split("/")}
    for each in around:
        if language_of(each, found.looked[each].content) is Language.PYTHON:
            yield from (name for name in needs_of(Language.PYTHON, found.looked[each].content).modules if name not in here)


def _instead(path: str, program: Program, found: Found) -> str:
    if path.endswith(f"/node_modules/.bin/{os.path.basename(path)}"):
        return f"write `npx --no-install {os.path.basename(path)}`, which runs whatever lies there, also what an agent put there"
    keep = "" if is_beneath(path, f"{found.workspace}/.claude") else "keep it in `.claude`, or "
    return keep + _where_it_lies(program)


def _where_it_lies(program: Program) -> str:
    line = program.line if program.arguments is None else shlex.join((program.line, *program.arguments))
    return f"write `sh -c {shlex.quote(line)}`, which runs what lies there, also what an agent put there"


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:_MOST_NAMES]) + (" and others" if len(names) > _MOST_NAMES else "")
