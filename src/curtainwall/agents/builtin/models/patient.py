"""Patience with any model: what passes is tried again, a little later each time, as long as nobody saw a word of it."""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from curtainwall.agents.builtin.talk import Delta, Model, ModelFault, Prompt, Reply

OnRetry = Callable[[int, float, str], None]
"""Told of each new try before its wait: which it is, the seconds until then, and why."""

_GROWTH: Final = 2.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long: tries in all, the first wait, the longest one, and all waits together, in seconds."""

    tries: int = 6
    first: float = 1.0
    longest: float = 60.0
    all_waits: float = 300.0


def _untold(_attempt: int, _seconds: float, _why: str) -> None:
    """Tell nobody."""


class Patient:
    """A model that is asked again where that can help. INVARIANT: what was shown is never shown twice."""

    def __init__(
        self,
        model: Model,
        sleep: Callable[[float], Awaitable[None]],
        *,
        patience: Patience | None = None,
        on_retry: OnRetry = _untold,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._model = model
        self._sleep = sleep
        self._patience = patience or Patience()
        self._on_retry = on_retry
        self._chance = chance

    def __repr__(self) -> str:
        return f"Patient({self._model!r})"

    @property
    def name(self) -> str:
        """Return the model as the user names it."""
        return self._model.name

    @property
    def context_size(self) -> int:
        """Return how many tokens fit."""
        return self._model.context_size

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | Reply]:
        """Yield what the model replies; a fault that passes is raised only once patience is at its end, or text was shown."""
        waited = 0.0
        for attempt in range(1, self._patience.tries + 1):
            shown = False
            try:
                async with aclosing(self._model.reply(prompt)) as pieces:
                    async for piece in pieces:
                        shown = shown or isinstance(piece, Reply) or bool(piece.text)
                        yield piece
                return
            except ModelFault as fault:
                seconds = self._wait(attempt, fault)
                if shown or not fault.passes or attempt == self._patience.tries or waited + seconds > self._patience.all_waits:
                    raise
                why = str(fault)
            waited += seconds
            self._on_retry(attempt + 1, seconds, why)
            await self._sleep(seconds)

    def _wait(self, attempt: int, fault: ModelFault) -> float:
        """Return how long to wait: as long as the provider says, otherwise longer each time, and never all at the same moment."""
        if fault.retry_after is not None and fault.retry_after >= 0:
            return fault.retry_after + self._chance() * self._patience.first
        grown = min(self._patience.longest, self._patience.first * _GROWTH ** (attempt - 1))
        return grown * (0.5 + self._chance() / 2)
