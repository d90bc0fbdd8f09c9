"""Configuration and rules while the house is served: a change is taken over as a whole, or refused as a whole and said so."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import cast

from curtainwall.compose.approvals import approver_needs_restart
from curtainwall.compose.config_checks import missing_references, unshown_targets
from curtainwall.compose.policy import own_files
from curtainwall.compose.setup import ActiveSetup, Setup, load_setup
from curtainwall.config.loader import load_config
from curtainwall.config.schema import Config
from curtainwall.host.home import Home
from curtainwall.model import CurtainwallError
from curtainwall.serve.logs import Logbook

LIVE = frozenset({"lists", "approvals", "limits", "breaker", "log", "channels"})
"""Tables that hold from the next decision on; others need whatever stands on them to be made anew."""

APPROVER = "approvals.approver"
"""The key of a live table that waits for the next start all the same."""

Restart = Callable[[frozenset[str]], Iterable[str]]
"""Makes anew what stands on these tables, and returns those that it took care of."""


class ConfigReload:
    """The service that watches the files."""

    name = "reload"

    def __init__(self, in_force: ActiveSetup, restart: Restart, book: Logbook) -> None:
        self._in_force = in_force
        self._restart = restart
        self._book = book
        self._wanted = asyncio.Event()
        self._elsewhere = asyncio.Event()
        """Other files are to be watched than before."""
        self._watched: frozenset[Path] = frozenset()
        self._begun = in_force.setup.config
        self.fault = ""
        """Why the files as they are now are not in force; nothing where they are."""
        self.waiting: frozenset[str] = frozenset()
        """Tables, and a key, whose new values hold from the next start on."""

    async def run(self) -> None:
        """Look at the files whenever they change, and whenever somebody asks for it."""
        home = self._in_force.setup.home
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(home))
            # Something may have changed between the start and now.
            self._wanted.set()
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                await self.reload()
                if self._named() != self._watched:
                    self._elsewhere.set()

    def health(self) -> str:
        """Return why the files are not in force."""
        return f"{self.fault}; what was valid before stays in force" if self.fault else ""

    def look(self) -> None:
        """Look at the files soon."""
        self._wanted.set()

    async def reload(self) -> None:
        """Take over what the files say now, or keep what is in force and say why."""
        before = self._in_force.setup
        try:
            # Reading rules takes a while, and everybody else goes on meanwhile.
            setup = await asyncio.to_thread(load_setup, before.given, before.environ)
        except (CurtainwallError, OSError) as fault:
            if str(fault) != self.fault:
                self._book.say(f"refused: {fault}; what was valid before stays in force", "error", service=self.name)
            self.fault = str(fault)
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
        approver = frozenset[str]() if approver_needs_restart(self._begun, setup.config) else frozenset({APPROVER})
        taken = changed & (LIVE | approver | frozenset(self._restart(changed)))
        # What says again what it said at the start waits for nothing.
        self.waiting = ((self.waiting | changed) - taken) & changed_tables(self._begun, setup.config)
        told = [f"tables {', '.join(sorted(taken))}"] if taken else []
        told += [f"{name} {version[:12]}" for name, version in renewed.items()]
        if told:
            self._book.say(f"in force from now on: {'; '.join(told)}", policy=setup.policy.version)
        for warning in (*setup.warnings, *((*unshown_targets(setup.config), *missing_references(setup.config)) if changed else ())):
            self._book.say(warning, "warning")
        if waiting := self.waiting & changed:
            self._book.say(f"restart `curtainwall serve` for: {', '.join(sorted(waiting))}", "warning")

    def _named(self) -> frozenset[Path]:
        """Return the rule files outside our home: those in force, and those that only wait for somebody to correct them."""
        setup = self._in_force.setup
        named = {*setup.given, *own_files(setup.config).values()}
        with suppress(CurtainwallError, OSError):
            named |= set(own_files(load_config(setup.home.config)).values())
        return frozenset(path.absolute() for path in named)

    async def _watch(self, home: Home) -> None:
        def concerns(_: object, path: str) -> bool:
            found = Path(path)
            # The log lies beside the configuration and changes all the time.
            return found == home.config or found in self._watched or (found.parent == home.policy and found.suffix.lower() == ".cedar")

        while True:
            self._elsewhere.clear()
            self._watched = self._named()
            places = {home.root, home.policy, *(path.parent for path in self._watched)}
            async for _ in _changes([place for place in places if place.is_dir()], concerns, self._elsewhere):
                self._wanted.set()
            # Something may have changed before the new files were watched.
            self._wanted.set()


def changed_tables(before: Config, after: Config) -> frozenset[str]:
    """Return the tables that say something else than before, with the approver as one of its own."""
    return frozenset(name for name in (*Config.model_fields, APPROVER) if _table(before, name) != _table(after, name))


def _table(config: Config, name: str) -> object:
    if name == APPROVER:
        return config.approvals.approver
    return config.approvals.model_copy(update={"approver": ()}) if name == "approvals" else getattr(config, name)


async def _changes(places: list[Path], concerns: Callable[[object, str], bool], until: asyncio.Event) -> AsyncIterator[object]:
    import watchfiles

    watch = cast("Callable[..., AsyncIterator[object]]", watchfiles.awatch)  # pyright: ignore[reportUnknownMemberType] - it names an optional library
    async for change in watch(*places, watch_filter=concerns, step=100, debounce=400, recursive=False, stop_event=until):
        yield change
