"""Connects what we measure to OpenTelemetry: its SDK as the `OTEL_…` variables configure it, or as the program around us did.

Telemetry never fails or holds up the program. Without a variable, nothing of OpenTelemetry is imported here.
"""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

from curtainwall import __version__
from curtainwall.compose.gate import GatedSessions
from curtainwall.model import HOUSE_CHANNELS, SessionId, session_stream

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram, Meter
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

    from curtainwall.channels.measures import Labels, Measure, Record
    from curtainwall.channels.traces import IsOurs, Operation, SpanSink

Warn = Callable[[str], None]

_SIGNALS = ("TRACES", "METRICS")
_VARIABLES = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    *(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT" for signal in _SIGNALS),
    *(f"OTEL_{signal}_EXPORTER" for signal in _SIGNALS),
)
_NANOS = 1_000_000
_LONGEST_FLUSH = 5.0
"""How many seconds the end of the program waits for a collector."""


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Tell whether the variables ask for telemetry."""
    is_disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return not is_disabled and any(environ.get(name, "").strip() for name in _VARIABLES)


@contextmanager
def exporting(warn: Warn, *, wanted: bool = True, environ: Mapping[str, str] = os.environ) -> Generator[None]:
    """Export spans and metrics as the variables say, and send what is left at the end, for a few seconds at most."""
    if not wanted or not is_wanted(environ) or _is_configured():
        yield
        return
    try:
        shut_down = _configure(warn, environ)
    except ImportError:
        warn("OTEL variables are set, but the OpenTelemetry SDK is not installed: pip install 'curtainwall[otel]'")
        yield
        return
    except Exception as error:  # noqa: BLE001 - a variable that the SDK cannot read must not stop the program
        warn(f"no telemetry is exported: {error}")
        yield
        return
    try:
        yield
    finally:
        _within(_LONGEST_FLUSH, shut_down)


def _configure(warn: Warn, environ: Mapping[str, str]) -> Callable[[], None]:
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    _warn_once(warn)
    for name in ("OTEL_EXPORTER_OTLP_PROTOCOL", *(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL" for signal in _SIGNALS)):
        if environ.get(name, "http/protobuf") != "http/protobuf":
            warn(f"`{name}` is `{environ[name]}`, but only `http/protobuf` is supported, and it is used")
    resource = _resource(environ)
    ends: list[Callable[[], object]] = []
    if (spans := _span_exporter(warn, environ)) is not None:
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracers.add_span_processor(BatchSpanProcessor(spans))
        trace.set_tracer_provider(tracers)
        ends.append(tracers.shutdown)
    if (reader := _metric_reader(warn, environ)) is not None:
        meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        metrics.set_meter_provider(meters)
        ends.append(meters.shutdown)

    def shut_down() -> None:
        # At the same time: one that waits for its collector must not use up the time of the other.
        threads = [threading.Thread(target=end, daemon=True) for end in ends]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return shut_down


def _resource(environ: Mapping[str, str]) -> "Resource":
    from opentelemetry.sdk.resources import Resource

    # `create` adds OTEL_RESOURCE_ATTRIBUTES, and what is given to it wins over them, so a name that the user set is not given.
    attributes = {"service.version": __version__}
    named = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create(attributes if named else {"service.name": "curtainwall", **attributes})


def _exporter_name(signal: str, warn: Warn, environ: Mapping[str, str]) -> str:
    name = environ.get(f"OTEL_{signal}_EXPORTER", "").strip() or "otlp"
    if name not in ("otlp", "console", "none"):
        warn(f"`OTEL_{signal}_EXPORTER` is `{name}`; supported are `otlp`, `console` and `none`, and nothing is exported")
        return "none"
    return name


def _span_exporter(warn: Warn, environ: Mapping[str, str]) -> "SpanExporter | None":
    match _exporter_name("TRACES", warn, environ):
        case "otlp":
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            return OTLPSpanExporter()
        case "console":
            from opentelemetry.sdk.trace.export import ConsoleSpanExporter

            # What a command prints on stdout is its result.
            return ConsoleSpanExporter(out=sys.stderr)
        case _:
            return None


def _metric_reader(warn: Warn, environ: Mapping[str, str]) -> "MetricReader | None":
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

    exporter: MetricExporter
    match _exporter_name("METRICS", warn, environ):
        case "otlp":
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

            exporter = OTLPMetricExporter()
        case "console":
            exporter = ConsoleMetricExporter(out=sys.stderr)
        case _:
            return None
    return PeriodicExportingMetricReader(exporter)


def _warn_once(warn: Warn) -> None:
    """Replace the SDK's messages, one for each attempt, by one warning."""

    class FirstFault(logging.Handler):
        has_warned = False

        def emit(self, record: logging.LogRecord) -> None:
            if not self.has_warned:
                self.has_warned = True
                warn(f"telemetry cannot be exported, and the program goes on without it: {record.getMessage()[:300]}")

    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    logger.handlers = [FirstFault(logging.WARNING)]


def _within(seconds: float, work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work, name="telemetry: last export", daemon=True)
    thread.start()
    thread.join(seconds)


def _is_configured() -> bool:
    """Tell whether this program has providers already, ours or its own."""
    if "opentelemetry.sdk.trace" not in sys.modules and "opentelemetry.sdk.metrics" not in sys.modules:
        return False
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

    return isinstance(trace.get_tracer_provider(), TracerProvider) or isinstance(metrics.get_meter_provider(), MeterProvider)


def export_spans() -> "SpanSink | None":
    """Return where spans go, if anywhere."""
    return OtelSpans() if _is_configured() else None


def export_measures() -> "Record | None":
    """Return what takes observations for OpenTelemetry, if anything does."""
    return OtelMeasures().record if _is_configured() else None


class OtelSpans:
    """Gives operations to the tracer of this program."""

    def __init__(self) -> None:
        from opentelemetry import trace

        self._tracer = trace.get_tracer("curtainwall", __version__)

    def end(self, operation: "Operation", at: int, error: str) -> None:
        """Report an operation that ended."""
        from opentelemetry.trace import Status, StatusCode

        span = self._span(operation)
        span.set_attributes(operation.attributes)
        if error:
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR))
        span.end(at * _NANOS)

    def _span(self, operation: "Operation") -> "Span":
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, set_span_in_context

        if operation.span is None:
            # An empty context: what the task around us happens to trace is not the parent.
            context = Context() if operation.parent is None else set_span_in_context(self._span(operation.parent), Context())
            kind = SpanKind.CLIENT if operation.is_client else SpanKind.INTERNAL
            operation.span = self._tracer.start_span(
                operation.name, context, kind, operation.attributes, start_time=operation.start * _NANOS
            )
        return operation.span


class OtelMeasures:
    """Gives observations to the meter of this program."""

    def __init__(self) -> None:
        from opentelemetry import metrics

        self._meter: Meter = metrics.get_meter("curtainwall", __version__)
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}

    def record(self, measure: "Measure", value: float, labels: "Labels") -> None:
        """Add an observation."""
        name, attributes = measure.name, dict(labels)
        if measure.buckets:
            if name not in self._histograms:
                self._histograms[name] = self._meter.create_histogram(
                    name, measure.unit, measure.about, explicit_bucket_boundaries_advisory=measure.buckets
                )
            self._histograms[name].record(value, attributes)
        else:
            if name not in self._counters:
                self._counters[name] = self._meter.create_counter(name, measure.unit, measure.about)
            self._counters[name].add(value, attributes)


def sessions_of_process(wired: GatedSessions) -> "IsOurs":
    """Return a function that tells whether this process works on a session, or was the last to do so."""
    ours: set[SessionId] = set()

    def is_ours(session: SessionId, channel: str) -> bool:
        del channel
        owner = wired.store.leases.owner(session_stream(session))
        if owner is not None and owner.pid == os.getpid():
            ours.add(session)
        return session in ours and (owner is None or owner.pid == os.getpid())

    return is_ours


def sessions_of_service(wired: GatedSessions) -> "IsOurs":
    """Return the same for `serve`, which also exports what short commands do in the sessions of its channels."""
    is_held = sessions_of_process(wired)
    return lambda session, channel: channel not in HOUSE_CHANNELS or is_held(session, channel)


@asynccontextmanager
async def reported(wired: GatedSessions) -> AsyncGenerator[None]:
    """Report the sessions of this process to OpenTelemetry while the context is open, if anybody takes reports."""
    if not _is_configured():
        yield
        return
    # Start-up time: only who exports needs it.
    from curtainwall.channels.measures import Measures
    from curtainwall.channels.traces import Traces

    traces = Traces(
        wired.registry.feed, wired.registry.clock.now(), Measures(export_measures()), export_spans(), sessions_of_process(wired)
    )
    following = asyncio.create_task(traces.run(), name="telemetry")
    try:
        yield
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
        traces.read()
