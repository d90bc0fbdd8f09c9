"""Connections to providers: opened to checked addresses, and a few fresh ones kept for the next request."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from time import monotonic
from typing import Final

from curtainwall.host import Dialler, Wire
from curtainwall.model import HostFacts

_KEPT: Final = 16
_KEPT_SECONDS: Final = 50.0


@dataclass(slots=True)
class _Idle:
    facts: HostFacts
    wire: Wire
    until: float


class UpstreamPool:
    """A pool that sessions share; a connection carries no state from one request to the next."""

    def __init__(self, dialler: Dialler) -> None:
        self._dialler = dialler
        self._idle: OrderedDict[int, _Idle] = OrderedDict()
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> int:
        """Return how many connections wait for a request."""
        return len(self._idle)

    async def take(self, facts: HostFacts) -> Wire:
        """Return a connection that nobody else uses; raise `Unreachable`."""
        for number in [number for number, each in reversed(self._idle.items()) if each.facts is facts or each.facts == facts]:
            wire = self._idle.pop(number).wire
            # An unread byte would become the beginning of the next reply.
            if wire.is_quiet:
                return wire
            wire.abort()
        return await self._dialler.wire(facts)

    def give_back(self, facts: HostFacts, wire: Wire) -> None:
        """Keep a connection whose last reply was read to its end."""
        if not wire.is_quiet:
            wire.abort()
            return
        self._idle[id(wire)] = _Idle(facts, wire, monotonic() + _KEPT_SECONDS)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._drop_expired)
        while len(self._idle) > _KEPT:
            self._drop(next(iter(self._idle)))

    def close(self) -> None:
        """Close every idle connection."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for number in tuple(self._idle):
            self._drop(number)

    def _drop(self, number: int) -> None:
        self._idle.pop(number).wire.abort()

    def _drop_expired(self) -> None:
        """Close the connections that were idle too long, and schedule the next sweep; the oldest come first."""
        now = monotonic()
        while self._idle and (first := next(iter(self._idle.items())))[1].until <= now:
            self._drop(first[0])
        oldest = next(iter(self._idle.values()), None)
        self._sweep = None if oldest is None else asyncio.get_running_loop().call_later(oldest.until - now, self._drop_expired)
