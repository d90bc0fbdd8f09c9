"""Counts and durations of what agents do, for the metrics page and for OpenTelemetry. Nothing here is ever taken back.

Names, units and buckets that begin with `gen_ai` are those of OpenTelemetry's conventions for generative AI.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from curtainwall.model import record

Labels = Mapping[str, str]

_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
_OPERATION = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_AGENT = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
_PEOPLE = (1, 5, 15, 60, 300, 900, 3600, 14400, 86400, 604800)
_MOST_SERIES = 1_000
_OTHER = "_OTHER"


@record
class Measure:
    """One metric: its name for OpenTelemetry, its name on the metrics page, and for a histogram its buckets."""

    name: str
    page_name: str
    unit: str
    about: str
    buckets: tuple[float, ...] = ()

    @property
    def kind(self) -> Literal["counter", "histogram"]:
        """The type of the metric."""
        return "histogram" if self.buckets else "counter"


TOKENS = Measure("gen_ai.client.token.usage", "gen_ai_client_token_usage", "{token}", "Number of input and output tokens used.", _TOKENS)
MODEL_TIME = Measure(
    "gen_ai.client.operation.duration", "gen_ai_client_operation_duration_seconds", "s", "Duration of model requests.", _OPERATION
)
TURN_TIME = Measure("gen_ai.invoke_agent.duration", "gen_ai_invoke_agent_duration_seconds", "s", "Duration of turns.", _AGENT)
TOOL_TIME = Measure(
    "gen_ai.execute_tool.duration", "gen_ai_execute_tool_duration_seconds", "s", "Duration of tool calls that ran.", _OPERATION
)
COST = Measure("curtainwall.cost", "curtainwall_cost_dollars_total", "{USD}", "Cost of model requests in US dollars.")
VERDICTS = Measure("curtainwall.verdicts", "curtainwall_verdicts_total", "{verdict}", "Verdicts of the gate by effect.")
ASKED = Measure("curtainwall.asks.opened", "curtainwall_asks_opened_total", "{ask}", "Asks that were opened.")
SETTLED = Measure("curtainwall.asks.settled", "curtainwall_asks_settled_total", "{ask}", "Asks by how they were settled.")
ASK_TIME = Measure("curtainwall.ask.duration", "curtainwall_ask_duration_seconds", "s", "Time from an ask to its answer.", _PEOPLE)

MEASURES = (TOKENS, MODEL_TIME, TURN_TIME, TOOL_TIME, COST, VERDICTS, ASKED, SETTLED, ASK_TIME)

_FROM_THE_START: Mapping[Measure, tuple[Labels, ...]] = {
    ASKED: ({},),
    SETTLED: tuple({"how": how} for how in ("granted", "denied", "expired", "withdrawn")),
    VERDICTS: tuple({"verdict": effect} for effect in ("allow", "ask", "deny")),
}
"""MeasuredSeries whose labels are known: a scraper sees the first increase only if it saw the zero before."""

Record = Callable[[Measure, float, Labels], None]
"""Takes one observation of a metric."""


@dataclass(slots=True)
class MeasuredSeries:
    """The observations of one metric with the same labels: a sum and, for a histogram, how many fell into each bucket."""

    labels: Labels
    total: float = 0.0
    buckets: list[int] = field(default_factory=list[int])


class Measures:
    """All observations since the process began. Each also goes to `export`, unless another process exports it."""

    def __init__(self, export: Record | None = None) -> None:
        self._export = export
        self._series: dict[Measure, dict[tuple[tuple[str, str], ...], MeasuredSeries]] = {measure: {} for measure in MEASURES}
        for measure, known in _FROM_THE_START.items():
            for labels in known:
                self._find(measure, labels)

    def record(self, measure: Measure, value: float, labels: Labels | None = None, *, is_ours: bool = True) -> None:
        """Add an observation."""
        series = self._find(measure, labels or {})
        series.total += value
        if measure.buckets:
            series.buckets[bisect_left(measure.buckets, value)] += 1
        if self._export is not None and is_ours:
            self._export(measure, value, series.labels)

    def all(self) -> Iterator[tuple[Measure, list[MeasuredSeries]]]:
        """Yield each metric with its series."""
        for measure, series in self._series.items():
            yield measure, list(series.values())

    def _find(self, measure: Measure, labels: Labels) -> MeasuredSeries:
        known = self._series[measure]
        if tuple(sorted(labels.items())) not in known and len(known) >= _MOST_SERIES:
            # Agents choose the names of tools; they must not be able to fill our memory, or a collector's.
            labels = dict.fromkeys(labels, _OTHER)
        key = tuple(sorted(labels.items()))
        if key not in known:
            known[key] = MeasuredSeries(dict(labels), buckets=[0] * (len(measure.buckets) + 1) if measure.buckets else [])
        return known[key]
