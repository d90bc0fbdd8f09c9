"""How a figure comes about: warm-up, several rounds, both sides in turn, medians."""

import gc
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

Seconds = float
Side = Callable[[int], Awaitable[Sequence[Seconds]]]
"""One round of one side: given the round's number, how long each repetition took."""

clock = time.perf_counter


@dataclass(frozen=True, slots=True)
class Target:
    """What was promised: a figure, or its ratio to the peer's, at most or at least this."""

    limit: float
    of: Literal["ours", "ratio"] = "ours"
    way: Literal["at most", "at least"] = "at most"

    def is_met(self, ours: float, ratio: float | None) -> bool:
        """Tell whether the promise was kept; a ratio that is missing keeps nothing."""
        value = ours if self.of == "ours" else ratio
        if value is None:
            return False
        return value <= self.limit if self.way == "at most" else value >= self.limit


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. The ratio is ours to the peer's; for rates as well."""

    name: str
    ours: float
    unit: str
    peer: float | None = None
    beside: str = ""
    ratio: float | None = None
    target: Target | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Tell whether the target was met, or None where there is none."""
        return None if self.target is None else self.target.is_met(self.ours, self.ratio)


@dataclass(frozen=True, slots=True)
class Rounds:
    """The medians of every round of one side, in seconds."""

    each: tuple[Seconds, ...]

    @property
    def p50(self) -> Seconds:
        """Return the median round."""
        return median(self.each)

    def to(self, other: "Rounds") -> float:
        """Return how many times as long as another side this one took: the median over rounds that ran side by side."""
        return median(mine / theirs for mine, theirs in zip(self.each, other.each, strict=True))


async def interleave(sides: Mapping[str, Side], *, rounds: int = 9, warm_up: int = 2) -> dict[str, Rounds]:
    """Run the sides in turn, round after round, and return each one's medians; the first rounds do not count."""
    kept: dict[str, list[Seconds]] = {name: [] for name in sides}
    for number in range(warm_up + rounds):
        for name, side in sides.items():
            gc.collect()
            samples = await side(number)
            if number >= warm_up:
                kept[name].append(median(samples))
    return {name: Rounds(tuple(values)) for name, values in kept.items()}


def repeat_plainly(times: int, work: Callable[[], object]) -> list[Seconds]:
    """Return how long each of several repetitions took, for work that waits for nothing."""
    took: list[Seconds] = []
    for _ in range(times):
        began = clock()
        work()
        took.append(clock() - began)
    return took
