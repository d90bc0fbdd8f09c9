"""Configuration and rules while the house is served: a change is taken over as a whole, or refused as a whole and said so."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import cast

from curtainwall.app.config import Config
from curtainwall.app.home import Home
from curtainwall.app.logs import Logbook
from curtainwall.app.wiring import InForce, Setup, set_up
from curtainwall.model import CurtainwallError

LIVE = frozenset({"lists", "approvals", "limits", "breaker", "log", "channels"})
"""Tables that hold from the next decision on; others need whatever stands on them to be made anew."""

Restart = Callable[[frozenset[str]], Iterable[str]]
"""Makes anew what stands on these tables, and returns those that it took care of."""


class Reloading:
    """The service that watches the files."""

    name = "reload"

    def __init__(self, in_force: InForce, restart: Restart, book: Logbook, environ: Mapping[str, str] = os.environ) -> None:
        self._in_force = in_force
        self._restart = restart
        self._book = book
        self._environ = environ
        self._wanted = asyncio.Event()
        self.fault = ""
        """Why the files as they are now are not in force; nothing where they are."""
        self.waiting: frozenset[str] = frozenset()
        """Tables whose new values hold from the next start on."""

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
            setup = await asyncio.to_thread(set_up, before.given, self._environ)
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
        if not changed and setup.policy.version == before.policy.version:
            return
        self._in_force.take(setup)
        handled = LIVE | frozenset(self._restart(changed))
        self.waiting |= changed - handled
        told = [f"tables {', '.join(sorted(changed))}"] if changed else []
        told += [f"rules {setup.policy.version[:12]}"] if setup.policy.version != before.policy.version else []
        self._book.say(f"in force from now on: {'; '.join(told)}", policy=setup.policy.version)
        for warning in setup.policy.warnings:
            self._book.say(warning, "warning")
        if changed - handled:
            self._book.say(f"restart `curtainwall serve` for: {', '.join(sorted(changed - handled))}", "warning")

    async def _watch(self, home: Home) -> None:
        given = [path.absolute() for path in self._in_force.setup.given]
        places = {home.root, home.policy, *(path.parent for path in given)}

        def concerns(_: object, path: str) -> bool:
            found = Path(path)
            # The log lies beside the configuration and changes all the time.
            return found == home.config or found in given or (found.parent == home.policy and found.suffix.lower() == ".cedar")

        async for _ in _changes([place for place in places if place.is_dir()], concerns):
            self._wanted.set()


def changed_tables(before: Config, after: Config) -> frozenset[str]:
    """Return the tables that say something else than before."""
    return frozenset(name for name in Config.model_fields if getattr(before, name) != getattr(after, name))


async def _changes(places: list[Path], concerns: Callable[[object, str], bool]) -> AsyncIterator[object]:
    import watchfiles

    watch = cast("Callable[..., AsyncIterator[object]]", watchfiles.awatch)  # pyright: ignore[reportUnknownMemberType] - it names an optional library
    async for change in watch(*places, watch_filter=concerns, step=100, debounce=400, recursive=False):
        yield change
