"""Spans and metrics of real processes, as a collector on loopback and a scraper get them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from prometheus_client.parser import text_string_to_metric_families

from tests.support.collector import Collector, attributes, collecting
from tests.support.covers import covers
from tests.support.ports import free_port
from tests.support.program import Program
from tests.support.serving import Home, health, page, script_of
from tests.support.waiting import until
from tests.support.without import without

CONVENTIONS = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
UNITS = {
    "gen_ai.client.token.usage": "{token}",
    "gen_ai.client.operation.duration": "s",
    "gen_ai.invoke_agent.duration": "s",
    "gen_ai.execute_tool.duration": "s",
}
"""The metrics of the conventions; those of agents and tools are newer than the package that lists the others."""

SECRET = "what-the-notes-say"
READ = {"tool": "filesystem.read_file", "arguments": {"path": "notes.txt"}}
OUTSIDE = {"tool": "filesystem.read_file", "arguments": {"path": "/etc/hostname"}}


def environ(collector: Collector) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}


def points(collector: Collector, name: str) -> list[Any]:
    metric = collector.latest[name]
    return list(getattr(metric, metric.WhichOneof("data")).data_points)


def all_points(collector: Collector) -> list[Any]:
    return [point for name in collector.latest for point in points(collector, name)]


def started(program: Program, *words: str, collector: Collector) -> Any:
    (program.workspace / "notes.txt").write_text(SECRET)
    model = script_of(program.scratch / "script.jsonl", [READ, {"text": f"it says {SECRET}"}])
    return program("start", "--model", model, "--workspace", program.workspace, *words, "read it", **environ(collector))


@covers("telemetry.arrives", "telemetry.no-content")
def test_one_task_is_a_tree_of_spans_and_metrics_without_any_content(program: Program) -> None:
    with collecting() as collector:
        started(program, collector=collector)
    (turn,) = collector.spans_named("invoke_agent builtin")
    chats, (tool,) = collector.spans_named("chat script"), collector.spans_named("execute_tool filesystem.read_file")
    assert (turn.kind, tool.kind, {chat.kind for chat in chats}) == (
        Span.SPAN_KIND_INTERNAL, Span.SPAN_KIND_INTERNAL, {Span.SPAN_KIND_CLIENT},
    )  # fmt: skip
    assert len(chats) == 2
    assert turn.parent_span_id == b""
    assert {span.parent_span_id for span in (*chats, tool)} == {turn.span_id}
    assert {span.trace_id for span in collector.spans} == {turn.trace_id}
    (session,) = program.sessions()
    common = {"gen_ai.agent.name": "builtin", "gen_ai.conversation.id": session["id"]}
    for span, operation in ((turn, "invoke_agent"), (tool, "execute_tool"), (chats[0], "chat")):
        assert attributes(span).items() >= {"gen_ai.operation.name": operation, **common}.items()
        assert span.start_time_unix_nano <= span.end_time_unix_nano
    assert attributes(turn)["curtainwall.turn.status"] == "done"
    assert (attributes(turn)["gen_ai.provider.name"], attributes(turn)["gen_ai.request.model"]) == ("curtainwall", "script")
    told = attributes(tool)
    assert (told["gen_ai.tool.name"], told["curtainwall.verdict"], told["curtainwall.outcome"]) == (
        "filesystem.read_file", "allow", "finished",
    )  # fmt: skip
    assert told["gen_ai.tool.call.id"]
    asked = attributes(chats[0])
    assert (asked["gen_ai.provider.name"], asked["gen_ai.request.model"]) == ("curtainwall", "script")
    assert asked["gen_ai.usage.input_tokens"] > 0
    assert collector.resource.items() >= {"service.name": "curtainwall"}.items()
    assert collector.resource["service.version"]
    tokens = {attributes(point)["gen_ai.token.type"]: point for point in points(collector, "gen_ai.client.token.usage")}
    assert tokens["input"].sum == sum(attributes(chat)["gen_ai.usage.input_tokens"] for chat in chats)
    assert list(tokens["input"].explicit_bounds)[:3] == [1, 4, 16]
    assert [point.count for point in points(collector, "gen_ai.client.operation.duration")] == [2]
    assert [point.count for point in points(collector, "gen_ai.execute_tool.duration")] == [1]
    assert [(attributes(it)["verdict"], it.as_double or it.as_int) for it in points(collector, "curtainwall.verdicts")] == [("allow", 1)]
    names = {key for thing in (*collector.spans, *all_points(collector)) for key in attributes(thing)}
    assert {name for name in names if name.startswith("gen_ai.")} <= CONVENTIONS
    assert {name: metric.unit for name, metric in collector.latest.items() if name.startswith("gen_ai.")} == UNITS
    assert SECRET.encode() not in collector.bytes
    assert b"notes.txt" not in collector.bytes
    assert str(program.scratch).encode() not in collector.bytes


@covers("telemetry.never-in-the-way")
def test_a_dead_collector_is_one_warning_and_a_short_wait(program: Program) -> None:
    dead = Collector(f"http://127.0.0.1:{free_port()}")
    began = time.monotonic()
    done = started(program, collector=dead)
    assert SECRET in done.stdout
    assert time.monotonic() - began < 60
    assert done.stderr.count("telemetry cannot be exported") == 1, done.stderr


def test_a_disabled_sdk_sends_nothing_and_each_signal_can_be_turned_off(program: Program) -> None:
    with collecting() as collector:
        (program.workspace / "notes.txt").write_text(SECRET)
        model = script_of(program.scratch / "script.jsonl", [{"text": "hello"}])
        program("start", "--model", model, "say hello", OTEL_SDK_DISABLED="true", **environ(collector))
        program("start", "--model", model, "say hello", OTEL_TRACES_EXPORTER="none", **environ(collector))
    assert collector.traces == []
    assert collector.metrics


def counters(port: int) -> dict[str, float]:
    """Return every counter, and every count and sum of a histogram."""
    return {
        f"{sample.name}{json.dumps(sample.labels, sort_keys=True)}": sample.value
        for family in text_string_to_metric_families(page(port, "/metrics"))
        if family.type in ("counter", "histogram")
        for sample in family.samples
    }


@covers("telemetry.arrives", "telemetry.counters-never-decrease")
def test_serve_exports_asks_and_no_counter_decreases_when_sessions_are_deleted(program: Program) -> None:
    port = free_port()
    program.configure(f'[serve]\nstatus-port = {port}\n[web]\nenabled = false\n[channels.web]\noperators = ["ann"]\n')
    home = Home(program.environ)
    with collecting() as collector:
        running = program.begin("serve", **environ(collector))
        until(lambda: health(port).get("pid") == running.child.pid, 60)
        before = counters(port)
        settled = 'curtainwall_asks_settled_total{"how": "granted"}'
        assert before[settled] == 0
        model = script_of(program.scratch / "asks.jsonl", [OUTSIDE, {"text": "done"}])
        (session,) = home.born(model)
        approval = until(lambda: [row["id"] for row in program.json("approvals", "list")])[0]
        home.answer(approval, session)
        until(lambda: counters(port)[settled] == 1, 60)
        until(lambda: next(row for row in program.sessions() if row["id"] == session)["status"] == "ready", 60)
        until(lambda: counters(port).get('gen_ai_execute_tool_duration_seconds_count'
            '{"gen_ai_agent_name": "builtin", "gen_ai_tool_name": "filesystem.read_file"}') == 1, 60)  # fmt: skip
        full = counters(port)
        program("sessions", "delete", session, "--yes")
        until(lambda: session not in [row["id"] for row in program.sessions()])
        program.configure(f'[serve]\nstatus-port = {port}\ngrace = 4\n[web]\nenabled = false\n[channels.web]\noperators = ["ann"]\n')
        running.says("in force from now on: tables serve")
        after = until(lambda: counters(port), 60)
        assert {name: (value, after.get(name)) for name, value in full.items() if after.get(name, -1) < value} == {}
        assert full['curtainwall_verdicts_total{"verdict": "ask"}'] == 1
        running.child.send_signal(signal.SIGTERM)
        assert running.code() == 0
    (ask,) = collector.spans_named("curtainwall.ask")
    assert attributes(ask)["curtainwall.ask.outcome"] == "granted"
    assert ask.parent_span_id in {span.span_id for span in collector.spans_named("invoke_agent builtin")}
    (tool,) = collector.spans_named("execute_tool filesystem.read_file")
    assert attributes(tool)["curtainwall.verdict"] == "ask"
    assert tool.status.code == Status.STATUS_CODE_UNSET
    assert [it.as_int or it.as_double for it in points(collector, "curtainwall.asks.settled")] == [1]


def test_without_the_sdk_the_variables_are_one_warning_and_the_task_is_done(tmp_path: Path) -> None:
    done = without("otel", tmp_path, "start", "write 'hello' to greeting.txt", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
    assert done.returncode == 0, done.stderr
    assert [path.read_text() for path in tmp_path.rglob("greeting.txt")] == ["hello"]
    assert done.stderr.count("pip install 'curtainwall[otel]'") == 1, done.stderr


def test_the_providers_of_a_program_around_us_are_not_replaced(tmp_path: Path) -> None:
    script = """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from curtainwall.compose.telemetry import exporting
tracers, meters = TracerProvider(), MeterProvider()
trace.set_tracer_provider(tracers)
metrics.set_meter_provider(meters)
with exporting(print):
    assert trace.get_tracer_provider() is tracers
    assert metrics.get_meter_provider() is meters
with trace.get_tracer("theirs").start_as_current_span("still alive") as span:
    assert span.is_recording()
"""
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    done = subprocess.run((sys.executable, "-c", script), env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@covers("telemetry.never-in-the-way")
def test_a_collector_that_never_answers_delays_the_end_by_five_seconds_at_most() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        script = """
import time
from curtainwall.compose.telemetry import exporting, export_spans
from curtainwall.channels.traces import Operation
with exporting(print):
    export_spans().end(Operation("work", 1, {}), 2, "")
    began = time.monotonic()
print(time.monotonic() - began, time.monotonic())
"""
        environ = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": url}
        done = subprocess.run((sys.executable, "-c", script), env=environ, capture_output=True, text=True, timeout=100, check=True)
        ended = time.monotonic()
    waited, exported = map(float, done.stdout.splitlines()[-1].split())
    assert 4.5 < waited < 7, done.stdout
    # And the end of the interpreter does not wait for it once more.
    assert ended - exported < 8
