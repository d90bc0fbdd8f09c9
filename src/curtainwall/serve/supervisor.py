"""Everything that `serve` runs is a service; the supervisor keeps them running, and knows how each of them is."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from curtainwall.model import CurtainwallError

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""How long a service that fell over rests before it is started again: the pause doubles up to a minute."""

_STEADY = 60.0
_LOOK = 5.0


class Service(Protocol):
    """Something that runs for as long as the house is served: a channel, a schedule, a watcher."""

    @property
    def name(self) -> str:
        """What people call it; no two services have the same."""
        ...

    async def run(self) -> None:
        """Run until cancelled; whatever it raises, or a return, lets it be started again after a pause."""
        ...

    def health(self) -> str:
        """Return what is wrong with it in a few words, or nothing where it is well."""
        ...


@dataclass(frozen=True, slots=True)
class MissingService:
    """Stands for a service that could not be made, and says why."""

    name: str
    why: str

    async def run(self) -> None:
        """Wait until another takes its place."""
        await asyncio.Event().wait()

    def health(self) -> str:
        """Return why it is missing."""
        return self.why


Report = Callable[[str, str], None]
"""Tells whoever reads the logs what happened to a service: its name, and what."""

Pause = Callable[[float], Awaitable[None]]
"""Waits for so many seconds."""


@dataclass(slots=True)
class _SupervisedService:
    """One service, its task, and how often it fell over."""

    service: Service
    task: asyncio.Task[None]
    restarts: int = 0
    fault: str = ""


class Supervisor:
    """Runs services side by side: one that falls over rests and is started again, and the others do not notice."""

    def __init__(self, report: Report, pause: Pause = asyncio.sleep) -> None:
        self._report = report
        self._pause = pause
        self._kept: dict[str, _SupervisedService] = {}

    def start(self, services: Iterable[Service]) -> None:
        """Run these from here on; one that runs already under the same name goes on as it is."""
        for service in services:
            if service.name not in self._kept:
                self._kept[service.name] = _SupervisedService(
                    service, asyncio.create_task(self._keep(service), name=f"service {service.name}")
                )

    async def stop(self, names: Iterable[str] | None = None) -> None:
        """Stop services and wait for their ends; without names, all of them, the last that was started first."""
        for name in reversed(list(self._kept) if names is None else [name for name in names if name in self._kept]):
            task = self._kept.pop(name).task
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def names(self) -> tuple[str, ...]:
        """The services that are kept running."""
        return tuple(self._kept)

    def health(self) -> Mapping[str, str]:
        """Return how each service is: nothing where it is well."""
        return {name: kept.fault or _health_of(kept.service) for name, kept in self._kept.items()}

    async def report_faults(self) -> None:
        """Report what services say is wrong with them, each time it changes and has lasted from one look to the next."""
        before: Mapping[str, str] = {}
        reported: dict[str, str] = {}
        while True:
            await self._pause(_LOOK)
            # One that fell over is reported where that is noticed.
            now = {name: _health_of(kept.service) for name, kept in self._kept.items() if not kept.fault}
            for name, fault in now.items():
                if fault == before.get(name, "") and fault != reported.get(name, ""):
                    self._report(name, fault or "it is well again")
                    reported[name] = fault
            before = now

    def restarts(self) -> Mapping[str, int]:
        """Return how often each service fell over."""
        return {name: kept.restarts for name, kept in self._kept.items()}

    async def _keep(self, service: Service) -> None:
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE
        while True:
            began = loop.time()
            try:
                await service.run()
                fault = "it ended by itself"
            except Exception as error:  # noqa: BLE001 - whatever a service dies of, the others live on and it is tried again
                fault = str(error) if isinstance(error, CurtainwallError | OSError) else f"{type(error).__name__}: {error}"
            pause = FIRST_PAUSE if loop.time() - began > _STEADY else pause
            kept = self._kept[service.name]
            kept.restarts += 1
            kept.fault = f"{fault}; it is started again in {pause:g} s at most"
            self._report(service.name, kept.fault)
            await self._pause(pause)
            kept.fault = ""
            pause = min(2 * pause, LONGEST_PAUSE)


def _health_of(service: Service) -> str:
    try:
        return service.health()
    except Exception as error:  # noqa: BLE001 - one that cannot even say how it is is not well
        return f"it cannot say how it is: {type(error).__name__}: {error}"
