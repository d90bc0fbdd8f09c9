"""`curtainwall serve` as a real process: it takes up what was left, takes in what changes, and parks what runs."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from curtainwall.model import ApprovalAsked, CallDenied
from tests.integration.app.conftest import Program, Running, until
from tests.support.covers import covers
from tests.support.serving import Home, free_port, health, page, script_of

READ = {"tool": "filesystem.read_file", "arguments": {"path": "/etc/hostname"}}
FORBID = '@id("no-etc")\nforbid (principal, action == Action::"read-path", resource in Path::"/etc");\n'


class Served:
    """A home that can be served, with a port for its health."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.port = free_port()
        program.configure(self.config())
        self.home = Home(program.environ)

    def config(self, more: str = "") -> str:
        return f'[serve]\nstatus-port = {self.port}\n[channels.web]\noperators = ["ann"]\n{more}'

    def start(self, *words: str) -> Running:
        running = self.program.begin("serve", *words)
        until(lambda: health(self.port).get("pid") == running.child.pid, 60)
        return running

    def script(self, *lines: dict[str, object]) -> str:
        return script_of(self.program.scratch / f"script-{len(list(self.program.scratch.iterdir()))}", lines)

    def session(self, session: str) -> dict[str, Any]:
        return next(row for row in self.program.sessions() if row["id"] == session)


@pytest.fixture
def served(program: Program) -> Served:
    return Served(program)


@covers("serve.takes-up", "serve.parks", "serve.single")
def test_serve_takes_up_what_was_born_on_its_channels_and_parks_it_when_told_to_stop(served: Served) -> None:
    served.program("start", "--model", served.script({"text": "hello"}), "say hello")
    (local,) = served.program.sessions()
    (session,) = served.home.born(served.script(READ, {"text": "it is read"}))
    running = served.start()
    approval = until(lambda: [row["id"] for row in served.program.json("approvals", "list")])[0]
    until(lambda: served.session(session)["status"] == "waiting")
    refused = served.program("serve", fails=True)
    assert refused.returncode == 1
    assert f"is served by process {running.child.pid} already" in refused.stderr
    running.child.send_signal(signal.SIGTERM)
    assert running.code() == 0
    assert "SIGTERM: parking what runs" in running.err
    assert served.program.open_approval() == approval
    # The answer comes while nobody serves; the next start goes on from there.
    served.program("approve", approval)
    running = served.start("--log", "json")
    until(lambda: served.session(session)["status"] == "ready")
    assert "it is read" in served.program("sessions", "history", session).stdout
    assert served.session(local["id"])["turns"] == 1
    running.interrupt()
    assert running.code() == 0
    told = [json.loads(line) for line in running.err.splitlines()]
    assert told[0]["what"] == f"serving `{served.program.home}`, 1 sessions taken up"
    assert {"at", "level", "what"} <= told[0].keys()


@covers("serve.reload", "serve.refuses-invalid")
def test_a_change_that_is_not_valid_is_refused_with_its_line_and_what_was_valid_stays_in_force(served: Served) -> None:
    rules = served.program.home / "policy" / "mine.cedar"
    running = served.start()
    before = health(served.port)["policy"]
    rules.write_text(FORBID)
    version = until(lambda: (now := health(served.port)["policy"]) != before and now)
    assert _first_verdict(served) == ["no-etc"], "the new rule holds without a restart"
    for text, words in (
        ("permit (principal, action, resource)\nfoo", "`mine.cedar`, line 1, is no Cedar"),
        (f'{FORBID}\n@id("x")\npermit (principal, action == Action::"no-such", resource);', "line 4, rule `x`"),
    ):
        rules.write_text(text)
        fault = until(lambda words=words: (found := health(served.port)["config"]["fault"]) and words in found and found)
        assert health(served.port)["status"] == "degraded"
        assert f"{fault}; what was valid before stays in force" in health(served.port)["services"]["reload"]
        assert health(served.port)["policy"] == version
    assert _first_verdict(served) == ["no-etc"], "the old rules are in force"
    rules.unlink()
    until(lambda: health(served.port)["config"]["valid"])
    assert health(served.port)["policy"] == before
    served.program.configure(served.config("[lists]\nhosts = ['a.example']\nhostz = 1\n"))
    until(lambda: "line 7: unknown key `lists.hostz`" in (health(served.port)["config"]["fault"] or ""))
    assert "curtainwall_config_valid 0" in page(served.port, "/metrics")
    served.program.configure(served.config("[approvals]\ndeadline = '1h'\n[code]\nworkers = 3\n"))
    until(lambda: health(served.port)["config"]["waits_for_restart"] == ["code"])
    assert health(served.port)["status"] == "ok"
    (session,) = served.home.born(served.script(READ))
    asked = until(lambda: [event for event in served.home.events(session) if isinstance(event, ApprovalAsked)])[0]
    assert (asked.deadline, asked.policy) == (asked.at + 3_600_000, before)
    running.interrupt()
    assert running.code() == 0


def _first_verdict(served: Served) -> list[str]:
    (session,) = served.home.born(served.script(READ, {"text": "over"}))
    denied = until(lambda: [event for event in served.home.events(session) if isinstance(event, CallDenied)], 60)
    return list(denied[0].verdict.because)


@covers("serve.metrics")
def test_health_and_metrics_are_for_this_machine_and_name_no_session(served: Served) -> None:
    running = served.start()
    (session,) = served.home.born(served.script(READ))
    until(lambda: health(served.port)["asks"]["open"] == 1)
    until(lambda: 'curtainwall_sessions{status="waiting"} 1' in page(served.port, "/metrics"))
    told = page(served.port, "/metrics")
    assert "curtainwall_asks_open 1" in told
    assert 'curtainwall_service_up{service="reload"} 1' in told
    assert session not in told + page(served.port, "/health")
    listening = Path(f"/proc/{running.child.pid}/net/tcp").read_text()
    assert f"0100007F:{served.port:04X}" in listening
    running.interrupt()
    assert running.code() == 0
