"""The supervisor: keeps every service that `serve` runs going, and knows the health of each."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from curtainwall.model import CurtainwallError, record

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""How long to wait before restarting a failed service: the pause doubles up to a minute."""

_STEADY = 60.0
_CHECK_SECONDS = 5.0


class Service(Protocol):
    """Something that runs while a home is served: a channel, a schedule, a watcher."""

    @property
    def name(self) -> str:
        """The service's unique name."""
        ...

    async def run(self) -> None:
        """Run until cancelled; after an error or a return it is started again, with a pause."""
        ...

    def health(self) -> str:
        """Return what is wrong in a few words, or "" if nothing is."""
        ...


@record
class MissingService:
    """Replaces a service that could not be created, and says why."""

    name: str
    why: str

    async def run(self) -> None:
        """Wait until it is replaced."""
        await asyncio.Event().wait()

    def health(self) -> str:
        """Return why it is missing."""
        return self.why


Report = Callable[[str, str], None]
"""Logs what happened to a service: its name, and the message."""

Pause = Callable[[float], Awaitable[None]]
"""Waits for some seconds."""


@dataclass(slots=True)
class _SupervisedService:
    """One service, its task, and its last failure."""

    service: Service
    task: asyncio.Task[None]
    fault: str = ""


class Supervisor:
    """Runs services concurrently: one that fails is restarted after a pause, and the others do not notice."""

    def __init__(self, report: Report, pause: Pause = asyncio.sleep) -> None:
        self._report = report
        self._pause = pause
        self._supervised: dict[str, _SupervisedService] = {}
        self._restarts: dict[str, int] = {}

    def start(self, services: Iterable[Service]) -> None:
        """Start these services; one that already runs under the same name continues."""
        for service in services:
            if service.name not in self._supervised:
                self._restarts.setdefault(service.name, 0)
                self._supervised[service.name] = _SupervisedService(
                    service, asyncio.create_task(self._supervise(service), name=f"service {service.name}")
                )

    async def stop(self, names: Iterable[str] | None = None) -> None:
        """Stop services and wait for them to end; without names, all of them, the latest first."""
        for name in reversed(list(self._supervised) if names is None else [name for name in names if name in self._supervised]):
            task = self._supervised.pop(name).task
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def names(self) -> tuple[str, ...]:
        """The supervised services."""
        return tuple(self._supervised)

    def health(self) -> Mapping[str, str]:
        """Return the health of each service: "" if it is well."""
        return {name: entry.fault or _health_of(entry.service) for name, entry in self._supervised.items()}

    async def report_faults(self) -> None:
        """Report what services say is wrong, each time it changes and has lasted from one check to the next."""
        before: Mapping[str, str] = {}
        reported: dict[str, str] = {}
        while True:
            await self._pause(_CHECK_SECONDS)
            # A failed service is reported where the failure is noticed.
            current = {name: _health_of(entry.service) for name, entry in self._supervised.items() if not entry.fault}
            for name, fault in current.items():
                if fault == before.get(name, "") and fault != reported.get(name, ""):
                    self._report(name, fault or "it is well again")
                    reported[name] = fault
            before = current

    def restarts(self) -> Mapping[str, int]:
        """Return how often each service failed since the process began, also before its configuration changed."""
        return dict(self._restarts)

    async def _supervise(self, service: Service) -> None:
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE
        while True:
            started = loop.time()
            try:
                await service.run()
                fault = "it ended by itself"
            except Exception as error:  # noqa: BLE001 - whatever a service dies of, the others continue and it is restarted
                fault = str(error) if isinstance(error, CurtainwallError | OSError) else f"{type(error).__name__}: {error}"
            pause = FIRST_PAUSE if loop.time() - started > _STEADY else pause
            entry = self._supervised[service.name]
            self._restarts[service.name] += 1
            entry.fault = f"{fault}; it is started again in {pause:g} s at most"
            self._report(service.name, entry.fault)
            await self._pause(pause)
            entry.fault = ""
            pause = min(2 * pause, LONGEST_PAUSE)


def _health_of(service: Service) -> str:
    try:
        return service.health()
    except Exception as error:  # noqa: BLE001 - a service that cannot report its health is not well
        return f"it cannot say how it is: {type(error).__name__}: {error}"
