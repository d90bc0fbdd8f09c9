"""What leaves for collectors and for the metrics page: an agent must not be able to send words of its own along."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from curtainwall.channels.measures import Measures
from curtainwall.channels.status import Health, metrics_text
from curtainwall.channels.traces import Operation, Traces
from curtainwall.compose.external.meter import TurnMeter
from curtainwall.egress import CountedUsage, Dialect, ModelCall, ModelCallEnd
from curtainwall.facts import Masker
from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    CallRequest,
    Digest,
    Limits,
    MessageId,
    Millis,
    Mode,
    ModelRequested,
    OpenSession,
    ReadySession,
    Recorded,
    SendMessage,
    SessionId,
    StartTurn,
    StreamId,
    TurnAt,
    TurnEnded,
    TurnId,
    TurnStarted,
    TurnStatus,
    Workspace,
)
from curtainwall.runtime import SessionGate, SessionJournal, SessionRegistry, SystemClock
from curtainwall.store import MemoryStore
from tests.support.covers import covers
from tests.support.houses import ANN, FarSide, events, house, tools
from tests.support.program import Program, program
from tests.support.serving import script_of
from tests.support.stores import opened
from tests.support.talking import of, run

__all__ = ["program"]

TURN = TurnId("turn")
READ = "the-launch-is-on-Tuesday"
KEY = "sk-ant-api03-" + "Zq9" * 30
HEALTH = Health(
    version="1", pid=7, began=1_000, now=3_500, policy="abc", fault_in_files="", wait_for_restart=(), services={}, restarts={},
    sessions={}, asks={}, oldest_ask=None, attended=0, memory=10, cpu_seconds=0.5,
)  # fmt: skip


class Spans:
    """Keeps everything that a span would carry."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def end(self, operation: Operation, at: Millis, error: str) -> None:
        self.told.append(f"{operation.name} {operation.attributes} {error}")


class Watched:
    """A session of an agent in a container, and what is told of it elsewhere."""

    def __init__(self, opened: SessionRegistry, session: SessionId) -> None:
        self.session = session
        self.spans, self.measures = Spans(), Measures()
        self._traces = Traces(opened.feed, 0, self.measures, self.spans, lambda *_: True)
        self._stream = frozenset((f"session:{session}",))

    @property
    def told(self) -> str:
        self._traces.read(self._stream)  # type: ignore[arg-type] - a stream's name
        return f"{self.spans.told} {metrics_text(HEALTH, self.measures).decode()}"


async def contained(opened: SessionRegistry, workspace: Path, model: str = "auto") -> Watched:
    session = SessionId(opened.mint())
    command = OpenSession(
        by=ANN, session=session, name="test", agent="codex", model=model, workspace=Workspace(path=str(workspace), own=True),
        mode=Mode.DEFAULT, limits=Limits(), policy=Digest(opened.rules().policy.version),
    )  # fmt: skip
    for each in (command, ReadySession(by=ANN), SendMessage(by=ANN, message=MessageId("m"), text="go"), StartTurn(by=ANN, turn=TURN)):
        await opened.send(session, each)
    return Watched(opened, session)


@covers("telemetry.no-content")
@pytest.mark.parametrize(
    ("named", "status", "is_told"),
    [
        (READ, 404, False),
        (f"{READ} and then", 200, False),
        (f"gpt-5\u2028{READ}", 200, False),
        (f"x{READ * 4}", 200, False),
        ("gpt-5.1-codex", 200, True),
        ("gpt-5.1", 404, True),
    ],
)
def test_the_model_that_an_agent_names_in_a_request_is_told_only_if_a_provider_knows_it(
    tmp_path: Path, named: str, status: int, is_told: bool
) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as opened:
            watched = await contained(opened, tmp_path, "openai:gpt-5.1")
            async with opened.hold(watched.session) as actor:
                at, journal = TurnAt(session=watched.session, turn=TURN), SessionJournal(opened)
                meter = TurnMeter(at, lambda: actor.state, journal, opened.clock, Masker(b"k" * 32), None)
                call = ModelCall(1, "openai", Dialect.CHAT, named, "/v1/chat/completions", 100)
                assert (await meter.begins(call)).allowed
                how = ModelCallEnd("done" if status == 200 else "refused", status)
                await meter.ended(call, CountedUsage(10, 10, stop_reason=f"{READ}, it says"), how)
            told = watched.told
            assert READ not in told
            name = named if is_told else "_OTHER"
            assert f"chat {name} " in told
            assert f'gen_ai_request_model="{name}"' in told
            (requested,) = of(ModelRequested, events(opened, watched.session))
            assert requested.model == f"openai:{named}", "people see it in the log"

    run(story())


@covers("telemetry.no-content")
def test_a_key_that_an_agent_names_as_its_model_is_not_in_the_log(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as opened:
            watched = await contained(opened, tmp_path)
            async with opened.hold(watched.session) as actor:
                at, journal = TurnAt(session=watched.session, turn=TURN), SessionJournal(opened)
                meter = TurnMeter(at, lambda: actor.state, journal, opened.clock, Masker(b"k" * 32), None)
                for number, named in enumerate((KEY, f"x {KEY}", "gpt\ud800")):
                    call = ModelCall(number, "openai", Dialect.CHAT, named, "/v1/x", 100)
                    assert (await meter.begins(call)).allowed
                    await meter.ended(call, CountedUsage(), ModelCallEnd("done", 200))
            assert "Zq9Zq9" not in str(events(opened, watched.session))
            assert "Zq9Zq9" not in watched.told

    run(story())


@covers("telemetry.no-content")
def test_the_name_of_a_tool_that_is_none_is_not_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as opened:
            watched = await contained(opened, tmp_path)
            gate = SessionGate(opened, tools(FarSide(tmp_path / "far")))
            for request in (
                CallRequest(tool=f"filesystem.{READ}", arguments={}, turn=TURN),
                CallRequest(tool=READ, arguments={}, turn=TURN, unclear="twice"),
                CallRequest(tool="filesystem.write_file", arguments={"path": "a", "content": "x"}, turn=TURN),
            ):
                await gate.request(watched.session, request)
            assert READ not in watched.told
            assert "execute_tool filesystem.write_file" in watched.told

    run(story())


class Counted:
    """A log of one session that counts how many entries were read of it."""

    def __init__(self, events: Sequence[AnyEvent]) -> None:
        self.events = [*events]
        self.read_of = 0

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Recorded]:
        page = [Recorded(stream, seq, event) for seq, event in enumerate(self.events[after:], after + 1)][:limit]
        self.read_of += len(page)
        return page

    def head(self, _: StreamId) -> int:
        return len(self.events)


@covers("telemetry.no-content")
@pytest.mark.parametrize("began", [2, 1_000_000])
def test_a_turn_of_very_many_entries_keeps_nobody_waiting_when_the_process_begins_anew(began: int) -> None:
    stream = StreamId("session:s1")
    spoken = (AgentSpoke(at=number + 2, turn=TURN, text="x") for number in range(50_000))
    begun = (opened(SessionId("s1"), agent="nobody", channel="cron"), TurnStarted(at=1, turn=TURN, messages=(MessageId("m"),)))
    log = Counted([*begun, *spoken])
    spans = Spans()
    traces = Traces(log, began, Measures(), spans, lambda *_: True)  # type: ignore[arg-type] - the part of a feed that is used
    log.events.append(TurnEnded(at=2_000_000, turn=TURN, status=TurnStatus.DONE))
    traces.read(frozenset((stream,)))
    assert log.read_of < 15_000
    assert spans.told == []
    log.events += [
        TurnStarted(at=2_000_001, turn=TurnId("next"), messages=(MessageId("m"),)),
        TurnEnded(at=2_000_002, turn=TurnId("next"), status=TurnStatus.DONE),
    ]
    traces.read(frozenset((stream,)))
    assert len(spans.told) == 1, "what comes from now on is told"


HEADER = "hcaik-01-Zq9Zq9Zq9Zq9Zq9Zq9"


@covers("telemetry.headers-are-secrets")
def test_what_signs_us_in_to_a_collector_reaches_neither_children_nor_agents(program: Program) -> None:
    seen = program.scratch / "seen"
    hook = {"type": "command", "command": f"exec env >{seen}"}
    program.configure(f'[hooks]\nfile = "{program.scratch}/hooks.json"\n')
    (program.scratch / "hooks.json").write_text(json.dumps({"hooks": {"PreToolUse": [{"hooks": [hook]}]}}))
    (program.workspace / "notes.txt").write_text(f"curl with {HEADER}, it says")
    steps = [{"tool": "filesystem.read_file", "arguments": {"path": "notes.txt"}}, {"text": "done"}]
    model = script_of(program.scratch / "script.jsonl", steps)
    variables = {"OTEL_EXPORTER_OTLP_HEADERS": f"x-team={HEADER}", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": f"a=b,x-more={HEADER}%21"}
    program("start", "--model", model, "--workspace", program.workspace, "read it", **variables)
    environ = seen.read_text()
    assert "CLAUDE_PROJECT_DIR=" in environ
    assert HEADER not in environ
    (session,) = program.sessions()
    shown = program("sessions", "export", session["id"]).stdout
    assert "curl with" in shown
    assert HEADER not in shown, "it is masked like any known secret"
