"""Programs of a workspace, run as what was looked at: as copies in a directory of ours, where no agent can exchange them."""

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from curtainwall.facts import is_beneath
from curtainwall.tools.hooks.lines import Word, assigned, started, with_words
from curtainwall.tools.hooks.pins import Found, Looked, named_by, path_in
from curtainwall.tools.hooks.running import SEARCHED
from curtainwall.tools.hooks.settings import Hook, Program

_KEPT: Final = ".claude"


class Copies:
    """Copies by the digest of their content, each under its own name; what is there already is compared, and not made again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def hooks(self, found: Found, event: str, *, is_free: bool) -> tuple[Hook, ...]:
        """Return a workspace's hooks of an event as they may run: with copies of their programs, but for those that are kept from agents.

        Where the workspace `is_free` for its agent to change, none is kept. Raise `OSError` where a copy cannot be made.
        """
        return tuple(self._with_copies(hook, found, is_free=is_free) for hook in found.settings.of(event))

    def _with_copies(self, hook: Hook, found: Found, *, is_free: bool) -> Hook:
        if not isinstance(hook.action, Program):
            return hook
        instead: dict[int, str] = {}
        for word, path in _exchangeable(hook.action, found, is_free=is_free):
            looked = found.looked.get(path)
            # What is not there when it is looked for must not have come until it runs.
            instead[word.start] = str(self._directory / "missing" / os.path.basename(path)) if looked is None else self._copy(path, looked)
        return replace(hook, runs=with_words(hook.action, instead)) if instead else hook

    def _copy(self, path: str, looked: Looked) -> str:
        """Return the path of a copy that holds exactly what was looked at."""
        mode = 0o500 if looked.is_executable else 0o400
        place = self._directory / f"{looked.digest}{'-x' if looked.is_executable else ''}" / os.path.basename(path)
        with suppress(OSError):
            if place.read_bytes() == looked.content and place.stat().st_mode & 0o777 == mode:
                return str(place)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = place.with_name(f".{secrets.token_hex(8)}")
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(looked.content)
                file.flush()
                os.fchmod(file.fileno(), mode)
            draft.replace(place)
        finally:
            draft.unlink(missing_ok=True)
        return str(place)


def copied_programs(found: Found) -> frozenset[str]:
    """Return the files that run as copies, wherever they are named."""
    programs = [hook.action for hook in found.settings.hooks if isinstance(hook.action, Program)]
    return frozenset(path for program in programs for _, path in _exchangeable(program, found) if path in found.looked)


def within_reach(found: Found) -> Iterator[str]:
    """Yield a sentence for each thing that a hook of the workspace may run and that an agent could exchange unseen."""
    programs = [hook.action for hook in found.settings.hooks if isinstance(hook.action, Program)]
    yield from dict.fromkeys(sentence for program in programs for sentence in _reached(program, found))


def _reached(program: Program, found: Found) -> Iterator[str]:
    copied = {path for _, path in _exchangeable(program, found)}
    for path in named_by(program, found.workspace):
        looked = found.looked.get(path)
        if looked is not None and path not in copied and not _is_kept(path, found):
            yield (
                f"`{path}` is not run as a copy: an agent that may edit there can exchange it between the look and the run; "
                "start it by its own path in the line, or keep it in `.claude`"
            )
        interpreter = None if looked is None else _interpreter(looked)
        if interpreter is not None and path_in(found.workspace, interpreter) is not None:
            yield f"`{path}` is run by `{interpreter}` in the workspace, which is not pinned: an agent that may edit there can exchange it"
    words = started(program, found.workspace)
    if words is None or any(word.value is None for word in words) or not SEARCHED.isdisjoint(assigned(program, found.workspace)):
        yield f"only a shell can tell what `{program}` starts; what it finds in the workspace so is neither pinned nor copied"


def _interpreter(looked: Looked) -> str | None:
    """Return what the first line of a script says that runs it."""
    first = looked.content[:256].partition(b"\n")[0]
    words = os.fsdecode(first[2:]).split(maxsplit=1) if first.startswith(b"#!") else []
    return words[0] if words else None


def _exchangeable(program: Program, found: Found, *, is_free: bool = False) -> Iterator[tuple[Word, str]]:
    """Yield the words that start something which an agent could exchange before it runs, each with the path that it names."""
    for word in started(program, found.workspace) or ():
        path = path_in(found.workspace, word.value or "")
        if path is None:
            continue
        if (is_free or not _is_kept(path, found)) if path in found.looked else not word.may_be_a_value:
            yield word, path


def _is_kept(path: str, found: Found) -> bool:
    """Tell whether a file is kept from agents where it lies: in `.claude`, without a link on the way, and under no other name."""
    return is_beneath(path, f"{found.workspace}/{_KEPT}") and os.path.realpath(path) == path and found.looked[path].has_one_name
