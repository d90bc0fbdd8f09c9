"""Programs of a workspace, run as what was looked at: as copies in a directory of ours, where no agent can exchange them."""

import asyncio
import fcntl
import os
import secrets
import shutil
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from curtainwall.facts import is_beneath
from curtainwall.tools.hooks.command_line import CommandWord, assigned_variables, replace_words, started_words
from curtainwall.tools.hooks.pins import KEPT, Pins, WorkspaceHooks, named_paths
from curtainwall.tools.hooks.process import SEARCHED
from curtainwall.tools.hooks.scripts import ScriptFile, is_activation, is_module, script_interpreter, search_directory, workspace_path
from curtainwall.tools.hooks.settings import CommandHook, Hook

_LOCK: Final = ".lock"
_A_MOMENT, _MOST_MOMENTS = 0.01, 500


class Copies:
    """Copies of what pins name: a directory for each pin, in which they lie as in the workspace, and nothing else does.

    What is there already is compared, and not made again.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @classmethod
    def of(cls, pins: Pins) -> Self:
        """Return the copies that lie beside pins."""
        return cls(pins.directory / "pinned")

    def hooks(self, found: WorkspaceHooks, event: str, *, is_free: bool) -> tuple[Hook, ...]:
        """Return a workspace's hooks of an event as they may run: with copies of their programs, but for those that are kept from agents.

        Where the workspace `is_free` for its agent to change, none is kept. Raise `OSError` where a copy cannot be made.
        """
        return tuple(self._with_copies(hook, found, is_free=is_free) for hook in found.settings.of(event))

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        """Keep what is there from being removed. Where that cannot be done, a copy that is gone makes its hook fail, as it should."""
        lock: int | None = None
        try:
            with suppress(OSError):
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                lock = os.open(self._directory / _LOCK, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                for _ in range(_MOST_MOMENTS):
                    with suppress(BlockingIOError):
                        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                        break
                    await asyncio.sleep(_A_MOMENT)
            yield
        finally:
            if lock is not None:
                os.close(lock)

    def sweep(self, pins: Pins) -> None:
        """Remove the copies that no pin names any more; while any hook runs, all of them stay, and a later sweep removes them.

        INVARIANT: whoever runs a copy has looked at the pin while it held the lock, so what is removed under the lock is nobody's.
        """
        with suppress(OSError), open(self._directory / _LOCK, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            named = {_LOCK, *pins.all().values()}
            for place in self._directory.iterdir():
                if place.name not in named:
                    shutil.rmtree(place, ignore_errors=True)

    def _with_copies(self, hook: Hook, found: WorkspaceHooks, *, is_free: bool) -> Hook:
        if not isinstance(hook.action, CommandHook):
            return hook
        instead: dict[int, str] = {}
        for word, path in exchangeable(hook.action, found, is_free=is_free):
            instead[word.start] = self._instead(path, found)
        return replace(hook, runs=replace_words(hook.action, instead)) if instead else hook

    def _instead(self, path: str, found: WorkspaceHooks) -> str:
        """Return what runs in the place of a program: where its link leads out of the workspace, or a copy with what it needs beside it."""
        looked = found.looked.get(path)
        if looked is None:
            # What is not there when it is looked for must not have come until it runs.
            return str(self._directory / "missing" / os.path.basename(path))
        if looked.leads_to is not None:
            return looked.leads_to
        around = found.beside.get(path, ())
        for needed in around:
            self._copy(needed, found.looked[needed], found)
        has_modules = any(is_module(each, found.looked[each].content) for each in (path, *around))
        if has_modules and f"{found.workspace}/package.json" not in found.looked:
            self._write(self._directory / found.digest / "package.json", b'{"type": "module"}', 0o400)
        return self._copy(search_directory(looked, path), looked, found)

    def _copy(self, place: str, looked: ScriptFile, found: WorkspaceHooks) -> str:
        """Return the path of a copy that holds exactly what was looked at, or leads where that led."""
        copy = self._directory / found.digest / os.path.relpath(place, found.workspace)
        if looked.leads_to is None:
            self._write(copy, looked.content, 0o500 if looked.is_executable else 0o400)
        elif not copy.is_symlink():
            self._make_room(copy)
            with suppress(FileExistsError):
                copy.symlink_to(looked.leads_to)
        return str(copy)

    def _write(self, copy: Path, content: bytes, mode: int) -> None:
        with suppress(OSError):
            if copy.read_bytes() == content and copy.stat().st_mode & 0o777 == mode:
                return
        self._make_room(copy)
        draft = copy.with_name(f".{secrets.token_hex(8)}")
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), mode)
            draft.replace(copy)
        finally:
            draft.unlink(missing_ok=True)

    def _make_room(self, copy: Path) -> None:
        for above in reversed(copy.relative_to(self._directory).parents):
            (self._directory / above).mkdir(mode=0o700, parents=True, exist_ok=True)


def copied_programs(found: WorkspaceHooks) -> frozenset[str]:
    """Return the files that run as copies, wherever they are named."""
    programs = [hook.action for hook in found.settings.hooks if isinstance(hook.action, CommandHook)]
    named = {path for program in programs for _, path in exchangeable(program, found) if path in found.looked}
    return frozenset(path for path in named if found.looked[path].leads_to is None)


def exchange_warnings(found: WorkspaceHooks) -> Iterator[str]:
    """Yield a sentence for each thing that a hook of the workspace may run and that an agent could exchange unseen."""
    programs = [hook.action for hook in found.settings.hooks if isinstance(hook.action, CommandHook)]
    yield from dict.fromkeys(sentence for program in programs for sentence in _exchange_warnings(program, found))


def _exchange_warnings(program: CommandHook, found: WorkspaceHooks) -> Iterator[str]:
    copied, words = {path for _, path in exchangeable(program, found)}, started_words(program, found.workspace)
    can_be_told = words is not None and all(word.value is not None for word in words)
    for path in named_paths(program, found.workspace):
        looked = found.looked.get(path)
        if looked is not None and path not in copied and not is_kept(path, found):
            yield (
                f"`{path}` is not run as a copy: an agent that may edit there can exchange it between the look and the run; "
                f"{'start it by its own path in the line, or ' if can_be_told else ''}keep it in `.claude`"
            )
        if looked is not None and is_activation(path):
            yield (
                f"`{path}` has programs looked for in `{os.path.dirname(path)}` in the workspace, and whatever those load there: "
                "an agent that may edit there can exchange them between the look and the run"
            )
        for each in (path, *found.beside.get(path, ())) if looked is not None else ():
            interpreter = script_interpreter(found.looked[each])
            if interpreter is not None and workspace_path(found.workspace, interpreter) is not None:
                yield (
                    f"`{each}` is run by `{interpreter}` in the workspace, and whatever that loads there: "
                    "an agent that may edit there can exchange it between the look and the run"
                )
    if not can_be_told or not SEARCHED.isdisjoint(assigned_variables(program, found.workspace)):
        yield (
            f"only a shell can tell what `{program}` starts; what it finds in the workspace so is neither pinned nor copied, "
            "unless the line names it by its path from there"
        )


def exchangeable(program: CommandHook, found: WorkspaceHooks, *, is_free: bool = False) -> Iterator[tuple[CommandWord, str]]:
    """Yield the words that start something which an agent could exchange before it runs, each with the path that it names."""
    for word in started_words(program, found.workspace) or ():
        path = workspace_path(found.workspace, word.value or "")
        if path is None:
            continue
        if (is_free or not is_kept(path, found)) if path in found.looked else not word.may_be_a_value:
            yield word, path


def is_kept(path: str, found: WorkspaceHooks) -> bool:
    """Tell whether a program is kept from agents where it lies, with what it needs: in `.claude`, without links and second names."""
    return all(
        is_beneath(each, f"{found.workspace}/{KEPT}") and os.path.realpath(each) == each and found.looked[each].has_one_name
        for each in (path, *found.beside.get(path, ()))
    )
