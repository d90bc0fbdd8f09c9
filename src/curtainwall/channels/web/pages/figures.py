"""The pages of figures: usage, how asks were answered and how quickly, and health, with daily bars as SVG without scripts."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from statistics import median, quantiles

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from curtainwall.channels.web.pages.site import Site, visitor_of
from curtainwall.channels.web.ports import Spending
from curtainwall.model import ApprovalQuery, ApprovalRow, Millis, record

WIDTH, HEIGHT = 640, 230
_LEFT, _RIGHT, _BOTTOM, _TOP = 74, 16, 42, 12
_MINUTE, _HOUR = 60, 3_600


@record
class Bar:
    """One rectangle, and its description."""

    x: float
    y: float
    width: float
    height: float
    series: int
    words: str


@record
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


@record
class Series:
    """One count, with its figure for each day."""

    name: str
    values: Sequence[float]


def bars(title: str, days: Sequence[str], series: Sequence[Series], unit: str = "") -> Chart:
    """Return a chart of stacked bars, one for each day."""
    totals = [sum(line.values[index] for line in series) for index in range(len(days))]
    top = _top(max(totals, default=0), unit)
    step = (WIDTH - _LEFT - _RIGHT) / max(len(days), 1)
    rectangles: list[Bar] = []
    for index, day in enumerate(days):
        base = HEIGHT - _BOTTOM
        for number, line in enumerate(series):
            height = (HEIGHT - _BOTTOM - _TOP) * line.values[index] / top
            if height > 0:
                words = f"{day}: {words_of(line.values[index], unit)} {line.name}"
                rectangles.append(
                    Bar(
                        round(_LEFT + index * step + 1, 1),
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
        (round(_LEFT + index * step + step / 2, 1), day[5:]) for index, day in enumerate(days) if (len(days) - 1 - index) % 7 == 0
    )
    rows = tuple((day, tuple(words_of(line.values[index], unit) for line in series)) for index, day in enumerate(days) if totals[index])
    return Chart(title, tuple(line.name for line in series), tuple(rectangles), ticks, marks, rows, not any(totals))


def words_of(value: float, unit: str) -> str:
    """Return a short form of a figure."""
    if unit == "$":
        return f"${value:,.2f}"
    if unit == "s":
        return f"{value:.3g} s" if value < 2 * _MINUTE else f"{value / _MINUTE:.3g} min" if value < 2 * _HOUR else f"{value / _HOUR:,.1f} h"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _top(value: float, unit: str) -> float:
    """Return the top of the scale: a figure not below this one that is round in its display unit, as is its half."""
    if unit == "s":
        size = 1 if value < 2 * _MINUTE else _MINUTE if value < 2 * _HOUR else _HOUR
        return size * _round_up(value / size)
    # Half an ask or half a token cannot be counted.
    return _round_up(value) if unit else max(2.0, _round_up(value))


def _round_up(value: float) -> float:
    if value <= 0:
        return 1.0
    size = 10 ** math.floor(math.log10(value))
    return next(step * size for step in (1, 2, 4, 6, 8, 10) if step * size >= value)


_DAYS = 30
_MOST_ASKS = 20_000
_ENDS = ("granted", "denied", "expired", "withdrawn", "open")
_FEW = 2


class FigurePages:
    """Usage and health."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/usage", self._site.guarded(self._usage), methods=["GET"]),
            Route("/health", self._site.guarded(self._health), methods=["GET"]),
        ]

    async def _usage(self, request: Request) -> Response:
        ports = self._site.ports
        today = datetime.fromtimestamp(ports.line.clock.now() / 1000, UTC).date()
        days = [(today - timedelta(days=_DAYS - 1 - back)).isoformat() for back in range(_DAYS)]
        since = int(datetime.fromisoformat(f"{days[0]}T00:00:00+00:00").timestamp() * 1000)
        # Every session's log is read from where the last reading stopped; that may take a while and must not block others.
        spent = {usage.day: usage for usage in await run_in_threadpool(ports.records.spending, since)}
        asks = [row for row in ports.index.approvals(ApprovalQuery(open_only=False, limit=_MOST_ASKS)) if row.asked >= since]
        used = [spent.get(day, Spending(day)) for day in days]
        charts = (
            bars("Tokens", days, (Series("in", [usage.tokens_in for usage in used]), Series("out", [usage.tokens_out for usage in used]))),
            bars("Money", days, (Series("USD", [usage.dollars for usage in used]),), "$"),
            bars("Asks, and how they were answered", days, _ends(asks, days)),
            bars("Time to an answer", days, _latency(asks, days), "s"),
        )
        sums = {
            "tokens": sum(usage.tokens_in + usage.tokens_out for usage in used),
            "dollars": sum(usage.dollars for usage in used),
            "requests": sum(usage.requests for usage in used),
            "asks": len(asks),
            "estimated": any(usage.estimated for usage in used),
            "answered": _percentiles([row.settled - row.asked for row in asks if row.settled and row.status in ("granted", "denied")]),
        }
        return self._site.page(request, "usage.html", charts=charts, sums=sums, days=_DAYS)

    async def _health(self, request: Request) -> Response:
        findings = await run_in_threadpool(self._site.ports.records.health)
        visitor = visitor_of(request)
        if visitor is None or not visitor.is_operator:
            # The details may quote the configuration.
            findings = [
                finding if finding.standing == "ok" else replace(finding, what="operators see what it is", todo="") for finding in findings
            ]
        # Problems come first.
        findings = sorted(findings, key=lambda finding: ("fail", "warn", "ok").index(finding.standing))
        bad = [finding for finding in findings if finding.standing != "ok"]
        return self._site.page(
            request, "health.html", findings=findings, bad=len(bad), fails=any(finding.standing == "fail" for finding in bad)
        )


def _day(at: Millis) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).date().isoformat()


def _ends(asks: list[ApprovalRow], days: list[str]) -> tuple[Series, ...]:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for row in asks:
        counts[row.status, _day(row.asked)] += 1
    return tuple(Series(end, [counts[end, day] for day in days]) for end in _ENDS)


def _latency(asks: list[ApprovalRow], days: list[str]) -> tuple[Series, ...]:
    seconds: dict[str, list[float]] = defaultdict(list)
    for row in asks:
        if row.settled and row.status in ("granted", "denied"):
            seconds[_day(row.asked)].append((row.settled - row.asked) / 1000)
    return (Series("median", [median(seconds[day]) if seconds[day] else 0 for day in days]),)


def _percentiles(millis: list[Millis]) -> tuple[float, float] | None:
    """Return the median and the 90th percentile in seconds; None if there are no figures."""
    if not millis:
        return None
    high = quantiles(millis, n=10)[-1] if len(millis) >= _FEW else millis[0]
    return median(millis) / 1000, high / 1000
