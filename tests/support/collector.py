"""An OpenTelemetry collector on loopback: takes OTLP over HTTP, decodes it, and keeps it."""

import gzip
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest, ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """What arrived so far."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.bytes = b""

    @property
    def spans(self) -> list[Span]:
        return [span for request in self.traces for part in request.resource_spans for scope in part.scope_spans for span in scope.spans]

    def spans_named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    @property
    def latest(self) -> dict[str, Metric]:
        """The last state of each metric."""
        return {
            metric.name: metric
            for request in self.metrics
            for part in request.resource_metrics
            for scope in part.scope_metrics
            for metric in scope.metrics
        }

    @property
    def resource(self) -> dict[str, Any]:
        return attributes(self.traces[0].resource_spans[0].resource)

    def take(self, path: str, body: bytes) -> bytes:
        self.bytes += body
        if path == "/v1/traces":
            self.traces.append(ExportTraceServiceRequest.FromString(body))
            return ExportTraceServiceResponse().SerializeToString()
        assert path == "/v1/metrics", path
        self.metrics.append(ExportMetricsServiceRequest.FromString(body))
        return ExportMetricsServiceResponse().SerializeToString()


def attributes(thing: Any) -> dict[str, Any]:
    """Return the attributes of a span, a data point or a resource."""
    return {pair.key: _value(pair.value) for pair in thing.attributes}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None


@contextmanager
def collecting() -> Generator[Collector]:
    """Run a collector on a free port."""

    class Take(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = collector.take(self.path, gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that the library gives it
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Take) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
