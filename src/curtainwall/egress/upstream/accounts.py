"""Model calls, from asking the meter to recording their usage; a call outlives its client until that is recorded.

INVARIANT: for every call that the meter let begin, `ended` is called exactly once, no matter who hangs up and when.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from curtainwall.egress.ports import CountedUsage, EgressBounds, Meter, ModelCall, ModelCallEnd
from curtainwall.egress.refusals import Refused
from curtainwall.egress.upstream.exchange import Outgoing


class Transfer(Protocol):
    """One request and its reply in transit, and what is known of them so far."""

    @property
    def is_sent(self) -> bool:
        """Tell whether the provider has the whole request, so that it costs money."""
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
        """Forward both and return whether the client's connection can be kept; raise `Refused` only before the reply begins."""
        ...


class Accounts:
    """The calls of one session's proxy whose usage is not yet recorded."""

    def __init__(self, meter: Meter, bounds: EgressBounds) -> None:
        self._meter = meter
        self._bounds = bounds
        self._open: dict[asyncio.Task[bool], _Account] = {}

    @property
    def abandoned(self) -> int:
        """Return how many calls continue without a client."""
        return sum(account.is_abandoned for account in self._open.values())

    async def settle(self, call: ModelCall, transfer: Transfer, outgoing: Outgoing, release: Callable[[], None]) -> bool:
        """Make a call and return the result of its transfer. It continues if the caller is cancelled; `release` is called at its end."""
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
        """Hang up on every provider and wait until the calls are recorded; those that take too long finish in the background."""
        for account in self._open.values():
            account.abandon(0)
        if self._open:
            await asyncio.wait(tuple(self._open), timeout=self._bounds.accounting)

    def _close(self, task: asyncio.Task[bool], release: Callable[[], None]) -> None:
        del self._open[task]
        release()
        if not task.cancelled():
            # Retrieved here, because nobody else may be left to do it.
            task.exception()


class _Account:
    """One call. Its client may leave; its usage is read from the transfer at the end."""

    def __init__(self, meter: Meter, call: ModelCall, transfer: Transfer) -> None:
        self._meter = meter
        self._call = call
        self._transfer = transfer
        self._passing: asyncio.Task[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.is_abandoned = False

    async def run(self, outgoing: Outgoing) -> bool:
        """Ask the meter, forward the request, and record its usage."""
        decision = await self._meter.begins(self._call)
        if not decision.allowed:
            raise Refused(403, decision.reason or "this session may not ask a model at the moment")
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
        """Continue without a client for this long, because providers report usage at the end of a reply; an unsent request is dropped."""
        self.is_abandoned = True
        if self._passing is None:
            return
        if not seconds or not self._transfer.is_sent:
            self._passing.cancel()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._passing.cancel)
