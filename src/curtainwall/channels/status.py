"""How a served house is, for machines: `/health` as JSON and `/metrics` as Prometheus reads them.

INVARIANT: anybody on this machine can read these pages, so they say that something is wrong and never what. Words about a fault may quote
the configuration, with passwords in it; they are in the log, in `curtainwall doctor`, and on the web for operators.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from curtainwall.channels.measures import Measure, MeasuredSeries, Measures
from curtainwall.model import Millis, record

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_WHERE = "the log of `curtainwall serve`, `curtainwall doctor` and the web's page Health say what is wrong"


@record
class Health:
    """How everything is at one moment; a fault that is empty is none."""

    version: str
    pid: int
    began: Millis
    now: Millis
    policy: str
    fault_in_files: str
    wait_for_restart: tuple[str, ...]
    services: Mapping[str, str]
    restarts: Mapping[str, int]
    sessions: Mapping[str, int]
    asks: Mapping[str, int]
    oldest_ask: Millis | None
    attended: int
    memory: int
    cpu_seconds: float
    store_fault: str = ""
    notes: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def is_well(self) -> bool:
        """Tell whether nothing is wrong."""
        return not (self.fault_in_files or self.store_fault or any(self.services.values()))


HealthNow = Callable[[], Health]


def status_routes(health_now: HealthNow, measures: Measures) -> list[Route]:
    """Return the two pages, for whichever server shows them."""

    async def health(_: Request) -> Response:
        now = health_now()
        # What is configured wrongly does not make the process useless: only a store that cannot be read does.
        return JSONResponse(health_json(now), status_code=503 if now.store_fault else 200, headers={"Cache-Control": "no-store"})

    async def metrics(_: Request) -> Response:
        return Response(metrics_text(health_now(), measures), media_type=_TEXT, headers={"Cache-Control": "no-store"})

    return [Route("/health", health, methods=["GET"]), Route("/metrics", metrics, methods=["GET"])]


def health_json(health: Health) -> dict[str, object]:
    """Return how everything is, for any program on this machine."""
    return {
        "status": "ok" if health.is_well else "degraded",
        **({} if health.is_well else {"see": _WHERE}),
        "version": health.version,
        "pid": health.pid,
        "uptime": (health.now - health.began) / 1000,
        "policy": health.policy,
        "config": {
            "valid": not health.fault_in_files,
            "waits_for_restart": list(health.wait_for_restart),
        },
        "store": "unreadable" if health.store_fault else "ok",
        "services": {name: "failing" if fault else "ok" for name, fault in health.services.items()},
        "sessions": dict(health.sessions),
        "asks": dict(health.asks),
    }


def metrics_text(health: Health, measures: Measures) -> bytes:
    """Return the same as numbers, in the text format of Prometheus."""
    # Start-up time and memory: only a scrape loads the library. Its default registry, with metrics about Python, is not used.
    from prometheus_client import CollectorRegistry, Metric, generate_latest
    from prometheus_client.registry import Collector

    class HealthCollector(Collector):
        def collect(self) -> Iterator[Metric]:
            for name, kind, about, values in _metrics(health):
                metric = Metric(name.removesuffix("_total"), about, kind)
                for labels, value in values:
                    metric.add_sample(name, dict(labels), value)
                yield metric
            for measure, series in measures.all():
                metric = Metric(measure.page_name.removesuffix("_total"), measure.about, measure.kind)
                for name, labels, value in _samples(measure, series):
                    metric.add_sample(name, labels, value)
                yield metric

    registry = CollectorRegistry()
    registry.register(HealthCollector())
    return generate_latest(registry)


_Values = Sequence[tuple[Mapping[str, str], float]]


def _metrics(health: Health) -> Iterator[tuple[str, str, str, _Values]]:
    info = {"version": health.version, "policy": health.policy}
    oldest = 0.0 if health.oldest_ask is None else max(0.0, (health.now - health.oldest_ask) / 1000)
    yield "curtainwall_info", "gauge", "Version and rules in force.", [(info, 1)]
    yield "curtainwall_up", "gauge", "1 where nothing is wrong.", [({}, float(health.is_well))]
    yield "curtainwall_config_valid", "gauge", "1 where the files as they are now are in force.", [({}, float(not health.fault_in_files))]
    yield "curtainwall_sessions", "gauge", "Sessions by status.", _by("status", health.sessions)
    yield "curtainwall_sessions_attended", "gauge", "Sessions that this process looks after.", [({}, health.attended)]
    yield "curtainwall_asks_open", "gauge", "Asks that wait for an answer.", [({}, health.asks.get("open", 0))]
    yield "curtainwall_oldest_ask_seconds", "gauge", "How long the oldest open ask has waited.", [({}, oldest)]
    yield "curtainwall_service_up", "gauge", "1 where a service is well.", _by("service", {k: not v for k, v in health.services.items()})
    yield "curtainwall_service_restarts_total", "counter", "How often a service fell over.", _by("service", health.restarts)
    yield "process_start_time_seconds", "gauge", "When the process began.", [({}, health.began / 1000)]
    yield "process_resident_memory_bytes", "gauge", "Memory in use.", [({}, health.memory)]
    yield "process_cpu_seconds_total", "counter", "Processor time used.", [({}, health.cpu_seconds)]


def _by(label: str, values: Mapping[str, int]) -> _Values:
    return [({label: name}, float(value)) for name, value in sorted(values.items())]


def _samples(measure: Measure, all_series: Sequence[MeasuredSeries]) -> Iterator[tuple[str, dict[str, str], float]]:
    for series in all_series:
        labels = {name.replace(".", "_"): value for name, value in series.labels.items()}
        if not measure.buckets:
            yield measure.page_name, labels, series.total
            continue
        count = 0
        for edge, more in zip((*map(str, measure.buckets), "+Inf"), series.buckets, strict=True):
            count += more
            yield f"{measure.page_name}_bucket", {**labels, "le": edge}, count
        yield f"{measure.page_name}_count", labels, count
        yield f"{measure.page_name}_sum", labels, series.total
