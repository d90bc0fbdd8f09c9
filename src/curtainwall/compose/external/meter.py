"""The meter for one turn of an external agent: it records model calls without their text, and enforces budgets during each reply."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from curtainwall.agents.builtin.models import Price, Tokens, dollars_of
from curtainwall.agents.external.process import BETWEEN_TURNS
from curtainwall.egress import CountedUsage, HostDecision, ModelCall, ModelCallEnd
from curtainwall.facts import Masker, masked_excerpt
from curtainwall.model import (
    Basis,
    BudgetKind,
    Clock,
    CommandRefused,
    Journal,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    Payload,
    TurnAt,
    Usage,
    ordered_id,
    record,
)
from curtainwall.session import SessionState

# The rate is taken from a call of this size: the price per token may rise for very large calls.
_USUAL: Final = 10_000
_SETTLED_WITHIN: Final = 5.0
_LONGEST_NAME: Final = 100
# Providers that have another name in the price list.
_IN_THE_LIST: Final[Mapping[str, str]] = {"gemini": "google"}


@record
class _Rates:
    """Dollars per input and output token, an estimate until the call's total is known."""

    read: float = 0.0
    written: float = 0.0


@dataclass(slots=True)
class _OpenCall:
    """A call that is being answered."""

    request: str
    rates: _Rates
    counted: CountedUsage

    @property
    def tokens(self) -> int:
        return self.counted.input_tokens + self.counted.output_tokens

    @property
    def dollars(self) -> float:
        return self.counted.input_tokens * self.rates.read + self.counted.output_tokens * self.rates.written


class TurnMeter:
    """Counts usage for one turn: the session's state, as in the log, plus the calls that are still being answered."""

    def __init__(
        self, at: TurnAt, state: Callable[[], SessionState], journal: Journal, clock: Clock, masker: Masker, price: Price | None
    ) -> None:
        self._at = at
        self._turn = None if at.turn == BETWEEN_TURNS else at.turn
        self._state = state
        self._journal = journal
        self._clock = clock
        self._masker = masker
        self._price = price
        self._flowing: dict[int, _OpenCall] = {}
        self._rates: dict[tuple[str, str], _Rates] = {}
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def begins(self, call: ModelCall) -> HostDecision:
        """Let a call begin unless a budget is used up, and record that it began."""
        why = self._used_up()
        if why is None and self._state().turn != self._turn:
            why = "the turn is over"
        if why is not None:
            return HostDecision(allowed=False, reason=why)
        rates = await self._rates_of(call)
        request = ordered_id(self._clock.now(), self._clock.entropy(5))
        # The agent wrote this name: it may be any text.
        named = masked_excerpt(self._masker, call.model.encode("utf-8", "replace").decode(), _LONGEST_NAME)
        model = f"{call.provider}:{named}" if named else call.provider
        event = ModelRequested(at=self._clock.now(), turn=self._at.turn, request=request, base=None, added=Payload(), model=model)
        self._flowing[call.number] = _OpenCall(request, rates, CountedUsage())
        self._quiet.clear()
        try:
            await self._journal.record(self._at.session, (event,))
        except BaseException:
            self._forget(call)
            raise
        return HostDecision(allowed=True)

    def counts(self, call: ModelCall, so_far: CountedUsage) -> str | None:
        """Return why the reply has to stop here, or None."""
        self._flowing[call.number].counted = so_far
        return self._over()

    async def ended(self, call: ModelCall, counted: CountedUsage, ended: ModelCallEnd) -> None:
        """Record what a call used, and why the model stopped."""
        open_call = self._flowing[call.number]
        try:
            usage = await self._usage(call, counted)
            now, turn, request = self._clock.now(), self._at.turn, open_call.request
            is_whole = ended.how == "done" or (ended.how == "left" and bool(counted.stop_reason))
            event = (
                ModelResponded(
                    at=now, turn=turn, request=request, raw=Payload(), normalised=Payload(), usage=usage, stop_reason=counted.stop_reason
                )
                if is_whole
                else ModelFailed(at=now, turn=turn, request=request, failure=_why(ended), usage=usage)
            )
            # A session that was closed in the meantime has already recorded that the call failed.
            with suppress(CommandRefused):
                await self._journal.record(self._at.session, (event,))
        finally:
            self._forget(call)

    async def settled(self) -> None:
        """Wait until every call that began is recorded, but not longer than a few seconds."""
        if not self._flowing:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLED_WITHIN):
                await self._quiet.wait()

    def _forget(self, call: ModelCall) -> None:
        del self._flowing[call.number]
        if not self._flowing:
            self._quiet.set()

    def _used_up(self) -> str | None:
        """Return why no call may begin, or None."""
        kinds = self._state().exhausted
        return f"the budget of {', '.join(sorted(kinds))} is used up; a person can raise it" if kinds else self._over()

    def _over(self) -> str | None:
        """Return why replies have to stop: recorded usage and open calls together reach a limit."""
        state = self._state()
        used = state.spent.plus(state.elsewhere)
        tokens, dollars = used.tokens, used.dollars
        for open_call in self._flowing.values():
            tokens += open_call.tokens
            dollars += open_call.dollars
        for kind, used, limit in ((BudgetKind.TOKENS, tokens, state.limits.tokens), (BudgetKind.DOLLARS, dollars, state.limits.dollars)):
            if used >= limit:
                return f"the budget of {limit:g} {kind} is used up; a person can raise it"
        return None

    async def _rates_of(self, call: ModelCall) -> _Rates:
        key = call.provider, call.model
        if key not in self._rates:
            read = await self._dollars(call, call.model, Tokens(_USUAL, 0))
            written = await self._dollars(call, call.model, Tokens(0, _USUAL))
            self._rates[key] = _Rates((read or 0.0) / _USUAL, (written or 0.0) / _USUAL)
        return self._rates[key]

    async def _usage(self, call: ModelCall, counted: CountedUsage) -> Usage:
        usage = counted.usage()
        if not usage.input_tokens and not usage.output_tokens:
            return Usage()
        tokens = Tokens(usage.input_tokens, usage.output_tokens, usage.cached_tokens)
        dollars = await self._dollars(call, call.model or counted.model, tokens)
        basis = Basis.UNKNOWN if dollars is None else usage.tokens_basis
        return usage.model_copy(update={"dollars": dollars or 0.0, "dollars_basis": basis})

    async def _dollars(self, call: ModelCall, model: str, tokens: Tokens) -> float | None:
        # Loading the price list takes a while the first time.
        provider = _IN_THE_LIST.get(call.provider, call.provider)
        return await asyncio.to_thread(dollars_of, tokens, provider=provider, model=model, price=self._price)


def _why(ended: ModelCallEnd) -> str:
    if ended.how == "refused":
        return f"the provider answered with status {ended.status}"
    return ended.why or ("the agent went away before the end" if ended.how == "left" else "the reply broke off")
