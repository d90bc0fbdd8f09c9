"""The pages of figures: what was used, how asks were answered and how quickly, and how the house is."""

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from statistics import median, quantiles

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from curtainwall.channels.web.house import Spending
from curtainwall.channels.web.pages.charts import Series, bars
from curtainwall.channels.web.pages.site import Site, visitor_of
from curtainwall.model import ApprovalQuery, ApprovalRow, Millis

_DAYS = 30
_MOST_ASKS = 20_000
_ENDS = ("granted", "denied", "expired", "withdrawn", "open")
_FEW = 2


class Measuring:
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
        house = self._site.house
        today = datetime.fromtimestamp(house.line.clock.now() / 1000, UTC).date()
        days = [(today - timedelta(days=_DAYS - 1 - back)).isoformat() for back in range(_DAYS)]
        since = int(datetime.fromisoformat(f"{days[0]}T00:00:00+00:00").timestamp() * 1000)
        # Every session's log is read up to where it was read before; that may take a while, and nobody else should wait.
        spent = {it.day: it for it in await run_in_threadpool(house.records.spending, since)}
        asks = [row for row in house.index.approvals(ApprovalQuery(open_only=False, limit=_MOST_ASKS)) if row.asked >= since]
        used = [spent.get(day, Spending(day)) for day in days]
        charts = (
            bars("Tokens", days, (Series("in", [it.tokens_in for it in used]), Series("out", [it.tokens_out for it in used]))),
            bars("Money", days, (Series("USD", [it.dollars for it in used]),), "$"),
            bars("Asks, and how they were answered", days, _ends(asks, days)),
            bars("Time to an answer", days, _latency(asks, days), "s"),
        )
        sums = {
            "tokens": sum(it.tokens_in + it.tokens_out for it in used),
            "dollars": sum(it.dollars for it in used),
            "requests": sum(it.requests for it in used),
            "asks": len(asks),
            "estimated": any(it.estimated for it in used),
            "answered": _percentiles([row.settled - row.asked for row in asks if row.settled and row.status in ("granted", "denied")]),
        }
        return self._site.page(request, "usage.html", charts=charts, sums=sums, days=_DAYS)

    async def _health(self, request: Request) -> Response:
        findings = await run_in_threadpool(self._site.house.records.health)
        visitor = visitor_of(request)
        if visitor is None or not visitor.is_operator:
            # What is wrong may quote the configuration.
            findings = [it if it.standing == "ok" else replace(it, what="operators see what it is", todo="") for it in findings]
        # What somebody should look at stands first.
        findings = sorted(findings, key=lambda it: ("fail", "warn", "ok").index(it.standing))
        bad = [it for it in findings if it.standing != "ok"]
        return self._site.page(request, "health.html", findings=findings, bad=len(bad), fails=any(it.standing == "fail" for it in bad))


def _day(at: Millis) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).date().isoformat()


def _ends(asks: list[ApprovalRow], days: list[str]) -> tuple[Series, ...]:
    counted: dict[tuple[str, str], int] = defaultdict(int)
    for row in asks:
        counted[row.status, _day(row.asked)] += 1
    return tuple(Series(end, [counted[end, day] for day in days]) for end in _ENDS)


def _latency(asks: list[ApprovalRow], days: list[str]) -> tuple[Series, ...]:
    took: dict[str, list[float]] = defaultdict(list)
    for row in asks:
        if row.settled and row.status in ("granted", "denied"):
            took[_day(row.asked)].append((row.settled - row.asked) / 1000)
    return (Series("median", [median(took[day]) if took[day] else 0 for day in days]),)


def _percentiles(millis: list[Millis]) -> tuple[float, float] | None:
    """Return the median and the ninetieth hundredth in seconds, None where there is nothing to tell."""
    if not millis:
        return None
    high = quantiles(millis, n=10)[-1] if len(millis) >= _FEW else millis[0]
    return median(millis) / 1000, high / 1000
