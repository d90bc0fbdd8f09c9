"""Retries for any model: temporary faults are retried with growing delays, as long as no part of the reply was shown."""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final

from curtainwall.agents.builtin.language_model import Delta, LanguageModel, ModelFault, ModelReply, ModelRetry, Prompt
from curtainwall.model import record

_GROWTH: Final = 2.0


@record
class ModelRetryPolicy:
    """The limits of retries: all tries, tries of an absent server, the first wait, the longest wait, and the sum of all waits."""

    tries: int = 6
    tries_absent: int = 3
    first: float = 1.0
    longest: float = 60.0
    all_waits: float = 300.0


class RetryingModel:
    """A model that is asked again if that can help. INVARIANT: no text is shown twice."""

    def __init__(
        self,
        model: LanguageModel,
        sleep: Callable[[float], Awaitable[None]],
        *,
        patience: ModelRetryPolicy | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._model = model
        self._sleep = sleep
        self._patience = patience or ModelRetryPolicy()
        self._chance = chance

    def __repr__(self) -> str:
        return f"Patient({self._model!r})"

    @property
    def name(self) -> str:
        """Return the user's name for the model."""
        return self._model.name

    @property
    def context_size(self) -> int:
        """Return the size of the context in tokens."""
        return self._model.context_size

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelRetry | ModelReply]:
        """Yield the model's reply and each retry; raise a temporary fault once patience runs out or text was shown."""
        waited = 0.0
        for attempt in range(1, self._patience.tries + 1):
            shown = False
            try:
                async with aclosing(self._model.reply(prompt)) as pieces:
                    async for piece in pieces:
                        shown = shown or isinstance(piece, ModelReply) or (isinstance(piece, Delta) and bool(piece.text))
                        yield piece
                return
            except ModelFault as fault:
                seconds = self._wait(attempt, fault)
                tries = min(self._patience.tries, self._patience.tries_absent) if fault.is_absent else self._patience.tries
                if shown or not fault.passes or attempt >= tries or waited + seconds > self._patience.all_waits:
                    raise
                again = ModelRetry(attempt + 1, tries, seconds, str(fault))
            waited += seconds
            yield again
            await self._sleep(seconds)

    def _wait(self, attempt: int, fault: ModelFault) -> float:
        """Return how long to wait: as long as the provider says, otherwise longer each time, with jitter."""
        if fault.retry_after is not None and fault.retry_after >= 0:
            return fault.retry_after + self._chance() * self._patience.first
        grown = min(self._patience.longest, self._patience.first * _GROWTH ** (attempt - 1))
        return grown * (0.5 + self._chance() / 2)
