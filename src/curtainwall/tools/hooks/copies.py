"""Run a workspace's programs exactly as inspected: as copies in our own directory, where no agent can swap them."""

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
    """Copies of pinned programs: one directory per pin, laid out like the workspace and holding nothing else.

    An existing copy is compared and reused.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @classmethod
    def of(cls, pins: Pins) -> Self:
        """Return the copies stored next to the pins."""
        return cls(pins.directory / "pinned")

    def hooks(self, inspected: WorkspaceHooks, event: str, *, is_free: bool) -> tuple[Hook, ...]:
        """Return a workspace's hooks for an event, running copies of their programs unless agents cannot change the originals.

        If the workspace `is_free` for its agent to change, every program is copied. Raise `OSError` if a copy cannot be made.
        """
        return tuple(self._with_copies(hook, inspected, is_free=is_free) for hook in inspected.settings.of(event))

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        """Keep copies from being removed. If the lock cannot be taken, a hook whose copy is gone fails, as it should."""
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
        """Remove the copies that no pin names any more. While any hook runs, keep all of them for a later sweep.

        INVARIANT: a process that runs a copy read the pin while holding the lock, so nothing removed under the lock is in use.
        """
        with suppress(OSError), open(self._directory / _LOCK, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            named = {_LOCK, *pins.all().values()}
            for entry in self._directory.iterdir():
                if entry.name not in named:
                    shutil.rmtree(entry, ignore_errors=True)

    def _with_copies(self, hook: Hook, inspected: WorkspaceHooks, *, is_free: bool) -> Hook:
        if not isinstance(hook.action, CommandHook):
            return hook
        replacements: dict[int, str] = {}
        for word, path in exchangeable(hook.action, inspected, is_free=is_free):
            replacements[word.start] = self._replacement(path, inspected)
        return replace(hook, runs=replace_words(hook.action, replacements)) if replacements else hook

    def _replacement(self, path: str, inspected: WorkspaceHooks) -> str:
        """Return what runs instead of a program: the target of its link out of the workspace, or a copy with the files it needs."""
        script = inspected.looked.get(path)
        if script is None:
            # A file that was missing at inspection must not appear before the run.
            return str(self._directory / "missing" / os.path.basename(path))
        if script.leads_to is not None:
            return script.leads_to
        companions = inspected.beside.get(path, ())
        for needed in companions:
            self._copy(needed, inspected.looked[needed], inspected)
        has_modules = any(is_module(each, inspected.looked[each].content) for each in (path, *companions))
        if has_modules and f"{inspected.workspace}/package.json" not in inspected.looked:
            self._write(self._directory / inspected.digest / "package.json", b'{"type": "module"}', 0o400)
        return self._copy(search_directory(script, path), script, inspected)

    def _copy(self, place: str, script: ScriptFile, inspected: WorkspaceHooks) -> str:
        """Return the path of a copy with exactly the inspected content, or of a link to the same target."""
        copy = self._directory / inspected.digest / os.path.relpath(place, inspected.workspace)
        if script.leads_to is None:
            self._write(copy, script.content, 0o500 if script.is_executable else 0o400)
        elif not copy.is_symlink():
            self._make_directories(copy)
            with suppress(FileExistsError):
                copy.symlink_to(script.leads_to)
        return str(copy)

    def _write(self, copy: Path, content: bytes, mode: int) -> None:
        with suppress(OSError):
            if copy.read_bytes() == content and copy.stat().st_mode & 0o777 == mode:
                return
        self._make_directories(copy)
        draft = copy.with_name(f".{secrets.token_hex(8)}")
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), mode)
            draft.replace(copy)
        finally:
            draft.unlink(missing_ok=True)

    def _make_directories(self, copy: Path) -> None:
        for above in reversed(copy.relative_to(self._directory).parents):
            (self._directory / above).mkdir(mode=0o700, parents=True, exist_ok=True)


def copied_programs(inspected: WorkspaceHooks) -> frozenset[str]:
    """Return the paths of the files that run as copies."""
    programs = [hook.action for hook in inspected.settings.hooks if isinstance(hook.action, CommandHook)]
    named = {path for program in programs for _, path in exchangeable(program, inspected) if path in inspected.looked}
    return frozenset(path for path in named if inspected.looked[path].leads_to is None)


def exchange_warnings(inspected: WorkspaceHooks) -> Iterator[str]:
    """Yield a sentence for each thing that a hook of the workspace may run and an agent could swap unnoticed."""
    programs = [hook.action for hook in inspected.settings.hooks if isinstance(hook.action, CommandHook)]
    yield from dict.fromkeys(sentence for program in programs for sentence in _exchange_warnings(program, inspected))


def _exchange_warnings(program: CommandHook, inspected: WorkspaceHooks) -> Iterator[str]:
    copied, words = {path for _, path in exchangeable(program, inspected)}, started_words(program, inspected.workspace)
    is_readable = words is not None and all(word.value is not None for word in words)
    for path in named_paths(program, inspected.workspace):
        script = inspected.looked.get(path)
        if script is not None and path not in copied and not is_kept(path, inspected):
            yield (
                f"`{path}` is not run as a copy: an agent that may edit there can exchange it between the look and the run; "
                f"{'start it by its own path in the line, or ' if is_readable else ''}keep it in `.claude`"
            )
        if script is not None and is_activation(path):
            yield (
                f"`{path}` has programs looked for in `{os.path.dirname(path)}` in the workspace, and whatever those load there: "
                "an agent that may edit there can exchange them between the look and the run"
            )
        for file in (path, *inspected.beside.get(path, ())) if script is not None else ():
            interpreter = script_interpreter(inspected.looked[file])
            if interpreter is not None and workspace_path(inspected.workspace, interpreter) is not None:
                yield (
                    f"`{file}` is run by `{interpreter}` in the workspace, and whatever that loads there: "
                    "an agent that may edit there can exchange it between the look and the run"
                )
    if not is_readable or not SEARCHED.isdisjoint(assigned_variables(program, inspected.workspace)):
        yield (
            f"only a shell can tell what `{program}` starts; what it finds in the workspace so is neither pinned nor copied, "
            "unless the line names it by its path from there"
        )


def exchangeable(program: CommandHook, inspected: WorkspaceHooks, *, is_free: bool = False) -> Iterator[tuple[CommandWord, str]]:
    """Yield the words that start something an agent could swap before it runs, each with the path that it names."""
    for word in started_words(program, inspected.workspace) or ():
        path = workspace_path(inspected.workspace, word.value or "")
        if path is None:
            continue
        if (is_free or not is_kept(path, inspected)) if path in inspected.looked else not word.may_be_a_value:
            yield word, path


def is_kept(path: str, inspected: WorkspaceHooks) -> bool:
    """Tell whether agents cannot change a program or what it needs: all of it is in `.claude`, without symbolic or hard links."""
    return all(
        is_beneath(each, f"{inspected.workspace}/{KEPT}") and os.path.realpath(each) == each and inspected.looked[each].has_one_name
        for each in (path, *inspected.beside.get(path, ()))
    )
