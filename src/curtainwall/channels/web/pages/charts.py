"""Bars by day, laid out here and drawn by a template as SVG, so that no script is needed to see them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 640, 230
_LEFT, _RIGHT, _BOTTOM, _TOP = 74, 16, 42, 12
_MINUTE, _HOUR = 60, 3_600


@dataclass(frozen=True, slots=True)
class Bar:
    """One rectangle, with the words that it stands for."""

    x: float
    y: float
    width: float
    height: float
    series: int
    words: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Everything that the template draws."""

    title: str
    names: tuple[str, ...]
    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, str], ...]
    days: tuple[tuple[float, str], ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    is_empty: bool
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT


@dataclass(frozen=True, slots=True)
class Series:
    """What is counted, and its figure for each day."""

    name: str
    values: Sequence[float]


def bars(title: str, days: Sequence[str], series: Sequence[Series], unit: str = "") -> Chart:
    """Return the chart of stacked bars, one for each day."""
    totals = [sum(it.values[place] for it in series) for place in range(len(days))]
    top = _top(max(totals, default=0), unit)
    step = (WIDTH - _LEFT - _RIGHT) / max(len(days), 1)
    drawn: list[Bar] = []
    for place, day in enumerate(days):
        base = HEIGHT - _BOTTOM
        for number, it in enumerate(series):
            height = (HEIGHT - _BOTTOM - _TOP) * it.values[place] / top
            if height > 0:
                words = f"{day}: {words_of(it.values[place], unit)} {it.name}"
                drawn.append(
                    Bar(
                        round(_LEFT + place * step + 1, 1),
                        round(base - height, 1),
                        round(max(step - 2, 1), 1),
                        round(height, 1),
                        number,
                        words,
                    )
                )
            base -= height
    ticks = tuple((round(HEIGHT - _BOTTOM - (HEIGHT - _BOTTOM - _TOP) * share, 1), words_of(top * share, unit)) for share in (0, 0.5, 1))
    marks = tuple(
        (round(_LEFT + place * step + step / 2, 1), day[5:]) for place, day in enumerate(days) if (len(days) - 1 - place) % 7 == 0
    )
    rows = tuple((day, tuple(words_of(it.values[place], unit) for it in series)) for place, day in enumerate(days) if totals[place])
    return Chart(title, tuple(it.name for it in series), tuple(drawn), ticks, marks, rows, not any(totals))


def words_of(value: float, unit: str) -> str:
    """Return a figure in few letters."""
    if unit == "$":
        return f"${value:,.2f}"
    if unit == "s":
        return f"{value:.3g} s" if value < 2 * _MINUTE else f"{value / _MINUTE:.3g} min" if value < 2 * _HOUR else f"{value / _HOUR:,.1f} h"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _top(value: float, unit: str) -> float:
    """Return the top of the scale: a figure that is not below this one, round in the unit that it is told in, as is its half."""
    if unit == "s":
        size = 1 if value < 2 * _MINUTE else _MINUTE if value < 2 * _HOUR else _HOUR
        return size * _round_up(value / size)
    # Half an ask, or half a token, is nothing that anybody counts.
    return _round_up(value) if unit else max(2.0, _round_up(value))


def _round_up(value: float) -> float:
    if value <= 0:
        return 1.0
    size = 10 ** math.floor(math.log10(value))
    return next(step * size for step in (1, 2, 4, 6, 8, 10) if step * size >= value)
