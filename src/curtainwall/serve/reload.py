"""Reloads configuration and rules while serving: a change is applied as a whole, or refused as a whole with a message."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import cast

from curtainwall.compose.approvals import approver_needs_restart
from curtainwall.compose.config_checks import missing_references
from curtainwall.compose.policy import own_files
from curtainwall.compose.setup import ActiveSetup, Setup, load_setup
from curtainwall.config.loader import load_config
from curtainwall.config.schema import Config
from curtainwall.host.home import Home
from curtainwall.model import CurtainwallError
from curtainwall.serve.logs import Logbook

LIVE = frozenset({"lists", "approvals", "limits", "breaker", "log", "channels"})
"""Tables that apply from the next decision on; for others, the services that depend on them must be restarted."""

APPROVER = "approvals.approver"
"""A key of a live table that nevertheless applies only at the next start."""

Restart = Callable[[frozenset[str]], Iterable[str]]
"""Restarts the services that depend on these tables, and returns the tables that it took care of."""


class ConfigReload:
    """The service that watches the files."""

    name = "reload"

    def __init__(self, in_force: ActiveSetup, restart: Restart, book: Logbook) -> None:
        self._in_force = in_force
        self._restart = restart
        self._book = book
        self._requested = asyncio.Event()
        self._files_changed = asyncio.Event()
        """Set when the set of files to watch has changed."""
        self._watched: frozenset[Path] = frozenset()
        self._initial = in_force.setup.config
        self.fault = ""
        """Why the current files are not in force; "" if they are."""
        self.waiting: frozenset[str] = frozenset()
        """Tables, and a key, whose new values apply from the next start on."""

    async def run(self) -> None:
        """Reload the files whenever they change, and on request."""
        home = self._in_force.setup.home
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(home))
            # Something may have changed since the start.
            self._requested.set()
            while True:
                await self._requested.wait()
                self._requested.clear()
                await self.reload()
                if self._rule_files() != self._watched:
                    self._files_changed.set()

    def health(self) -> str:
        """Return why the files are not in force."""
        return f"{self.fault}; what was valid before stays in force" if self.fault else ""

    def request(self) -> None:
        """Request a reload."""
        self._requested.set()

    async def reload(self) -> None:
        """Apply what the files say now, or keep what is in force and say why."""
        before = self._in_force.setup
        try:
            # Reading rules takes a while and must not block others.
            setup = await asyncio.to_thread(load_setup, before.given, before.environ)
        except (CurtainwallError, OSError) as error:
            if str(error) != self.fault:
                self._book.say(f"refused: {error}; what was valid before stays in force", "error", service=self.name)
            self.fault = str(error)
            return
        if self.fault:
            self._book.say("configuration and rules are valid again", service=self.name)
        self.fault = ""
        self._take(before, setup)

    def _take(self, before: Setup, setup: Setup) -> None:
        changed = changed_tables(before.config, setup.config)
        renewed = {name: version for name, version in setup.versions.items() if before.versions.get(name) != version}
        if not changed and setup.versions == before.versions:
            return
        self._in_force.take(setup)
        approver = frozenset[str]() if approver_needs_restart(self._initial, setup.config) else frozenset({APPROVER})
        taken = changed & (LIVE | approver | frozenset(self._restart(changed)))
        # A table that is back to what it was at the start waits for nothing.
        self.waiting = ((self.waiting | changed) - taken) & changed_tables(self._initial, setup.config)
        changes = [f"tables {', '.join(sorted(taken))}"] if taken else []
        changes += [f"{name} {version[:12]}" for name, version in renewed.items()]
        if changes:
            self._book.say(f"in force from now on: {'; '.join(changes)}", policy=setup.policy.version)
        for warning in (*setup.warnings, *(missing_references(setup.config) if changed else ())):
            self._book.say(warning, "warning")
        if waiting := self.waiting & changed:
            self._book.say(f"restart `curtainwall serve` for: {', '.join(sorted(waiting))}", "warning")

    def _rule_files(self) -> frozenset[Path]:
        """Return the rule files outside our home: those in force, and those that still have to be corrected."""
        setup = self._in_force.setup
        paths = {*setup.given, *own_files(setup.config).values()}
        with suppress(CurtainwallError, OSError):
            paths |= set(own_files(load_config(setup.home.config)).values())
        return frozenset(path.absolute() for path in paths)

    async def _watch(self, home: Home) -> None:
        def concerns(_: object, path: str) -> bool:
            file = Path(path)
            # The log is beside the configuration and changes all the time.
            return file == home.config or file in self._watched or (file.parent == home.policy and file.suffix.lower() == ".cedar")

        while True:
            self._files_changed.clear()
            self._watched = self._rule_files()
            directories = {home.root, home.policy, *(path.parent for path in self._watched)}
            async for _ in _changes([directory for directory in directories if directory.is_dir()], concerns, self._files_changed):
                self._requested.set()
            # Something may have changed before the new files were watched.
            self._requested.set()


def changed_tables(before: Config, after: Config) -> frozenset[str]:
    """Return the tables that differ, with the approver as a separate one."""
    return frozenset(name for name in (*Config.model_fields, APPROVER) if _table(before, name) != _table(after, name))


def _table(config: Config, name: str) -> object:
    if name == APPROVER:
        return config.approvals.approver
    return config.approvals.model_copy(update={"approver": ()}) if name == "approvals" else getattr(config, name)


async def _changes(directories: list[Path], concerns: Callable[[object, str], bool], until: asyncio.Event) -> AsyncIterator[object]:
    import watchfiles

    watch = cast("Callable[..., AsyncIterator[object]]", watchfiles.awatch)  # pyright: ignore[reportUnknownMemberType] - it names an optional library
    async for change in watch(*directories, watch_filter=concerns, step=100, debounce=400, recursive=False, stop_event=until):
        yield change
