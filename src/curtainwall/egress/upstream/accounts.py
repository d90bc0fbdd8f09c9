"""Model calls, from the question to the meter to the account of what they used; a call outlives its client until that is written down.

INVARIANT: for every call that the meter let begin, `ended` is called exactly once, whoever leaves and whenever.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from curtainwall.egress.ports import CountedUsage, EgressBounds, Meter, ModelCall, ModelCallEnd
from curtainwall.egress.refusals import Refused
from curtainwall.egress.upstream.exchange import Outgoing


class Transfer(Protocol):
    """One request and its reply on their way, and what is known of them so far."""

    @property
    def is_sent(self) -> bool:
        """Tell whether the provider has the whole request, so that it costs something."""
        ...

    @property
    def counted(self) -> CountedUsage:
        """Return what was used so far."""
        ...

    @property
    def ended(self) -> ModelCallEnd:
        """Return how it ended."""
        ...

    async def run(self, outgoing: Outgoing) -> bool:
        """Pass both on and tell whether the client's connection can go on; raise `Refused` before a reply began."""
        ...


class Accounts:
    """The calls of one session's proxy that are not yet written down."""

    def __init__(self, meter: Meter, bounds: EgressBounds) -> None:
        self._meter = meter
        self._bounds = bounds
        self._open: dict[asyncio.Task[bool], _Account] = {}

    @property
    def abandoned(self) -> int:
        """Return how many calls go on without a client."""
        return sum(account.is_abandoned for account in self._open.values())

    async def settle(self, call: ModelCall, transfer: Transfer, outgoing: Outgoing, release: Callable[[], None]) -> bool:
        """Make a call and return what its transfer returns; it goes on when the caller is cancelled. `release` is called at its end."""
        account = _Account(self._meter, call, transfer)
        task = asyncio.get_running_loop().create_task(account.run(outgoing))
        self._open[task] = account
        task.add_done_callback(lambda task: self._close(task, release))
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            account.abandon(self._bounds.reading_on)
            raise
        return task.result()

    async def close(self) -> None:
        """Hang up on every provider, and return when the calls are written down; those that take too long go on by themselves."""
        for account in self._open.values():
            account.abandon(0)
        if self._open:
            await asyncio.wait(tuple(self._open), timeout=self._bounds.accounting)

    def _close(self, task: asyncio.Task[bool], release: Callable[[], None]) -> None:
        del self._open[task]
        release()
        if not task.cancelled():
            # Looked at here, because nobody else may be there to do it.
            task.exception()


class _Account:
    """One call. Its client may leave; what it used is asked of the transfer when that is over."""

    def __init__(self, meter: Meter, call: ModelCall, transfer: Transfer) -> None:
        self._meter = meter
        self._call = call
        self._transfer = transfer
        self._passing: asyncio.Task[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.is_abandoned = False

    async def run(self, outgoing: Outgoing) -> bool:
        """Ask the meter, pass the request on, and have written down what it used."""
        ruling = await self._meter.begins(self._call)
        if not ruling.allowed:
            raise Refused(403, ruling.reason or "this session may not ask a model at the moment")
        try:
            if self.is_abandoned:
                return False
            self._passing = asyncio.get_running_loop().create_task(self._transfer.run(outgoing))
            await asyncio.wait((self._passing,))
            return not self._passing.cancelled() and self._passing.result()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self._passing is not None:
                self._passing.cancel()
            await self._meter.ended(self._call, self._transfer.counted, self._transfer.ended)

    def abandon(self, seconds: float) -> None:
        """Go on without a client for so long, because providers count at the end of a reply; a request that is not yet sent stays here."""
        self.is_abandoned = True
        if self._passing is None:
            return
        if not seconds or not self._transfer.is_sent:
            self._passing.cancel()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._passing.cancel)
