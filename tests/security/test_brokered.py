"""A foreign agent attacks from inside its container, with its own shell: whatever it tries, it stays inside."""

import json
import shlex

from tests.integration.app.conftest import until
from tests.integration.brokered.conftest import SHELL, Brokered, brokered, configuration, docker_engine, short_path
from tests.support.covers import covers
from tests.support.upstream import KEY

__all__ = ["brokered", "docker_engine", "short_path"]

ROGUE = '[agents.rogue]\nimage = "curtainwall-test:1"\ncommand = ["sh"]\nproviders = { anthropic = "ANTHROPIC_API_KEY" }\n'


def call(tool: str, **arguments: object) -> str:
    """Return a shell command that calls a tool of the session, as any program inside can."""
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "sh", "version": "1"}}
    frames = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool, "arguments": arguments}},
    ]
    return f"printf '%s\\n' {shlex.join(map(json.dumps, frames))} | socat -t 20 - UNIX-CONNECT:/run/curtainwall/mcp.sock"


@covers("brokered.no-key-inside")
def test_the_key_is_nowhere_inside(brokered: Brokered) -> None:
    brokered.configure(configuration(brokered.provider, ROGUE))
    look = """
    echo "mine: $ANTHROPIC_API_KEY"
    env >/tmp/seen; cat /proc/*/environ /proc/*/cmdline >>/tmp/seen 2>/dev/null
    find / -xdev -type f -size -2000k -not -path '/proc/*' -not -path '/usr/*' -exec cat {} + >>/tmp/seen 2>/dev/null
    find /home /etc /run /workspace /tmp -type f -not -name seen -exec cat {} + >>/tmp/seen 2>/dev/null
    wc -c </tmp/seen; cp /tmp/seen /workspace/seen
    """
    done = brokered.start("rogue", look)
    assert done["status"] == "done", done
    seen = (brokered.home / "sessions" / done["session"] / "workspace" / "seen").read_bytes()
    assert b"ANTHROPIC_API_KEY=sk-ant-" in seen, "it has a stand-in"
    assert KEY.encode() not in seen


@covers("brokered.no-self-approval")
def test_an_agent_can_neither_answer_its_asks_nor_touch_what_is_ours(brokered: Brokered) -> None:
    outside = brokered.scratch / "outside.txt"
    home = brokered.home
    attack = f"""
    ({call("filesystem__write_file", path=str(outside), content="hello")} >/tmp/answer 2>&1 &)
    sleep 2
    for place in {home} /var/run/docker.sock /run/curtainwall/watch /run/curtainwall/.. ; do ls -A $place 2>&1 | sed "s|^|$place: |"; done
    ls -A /run/curtainwall
    echo '{{"decision": "approved"}}' >/run/curtainwall/response.json && echo "wrote beside the sockets"
    rm /run/curtainwall/mcp.sock && echo "removed a socket"
    echo x >>/etc/curtainwall/message && echo "changed its orientation"
    {call("session__approve", approval="aaaaaa")} | tail -n 1
    {call("filesystem__read_file", path=str(home / "curtainwall.db"))} | tail -n 1
    {call("filesystem__write_file", path=str(home / "sessions" / "audit.jsonl"), content="")} | tail -n 1
    cat /tmp/answer | tail -n 1
    """
    running = brokered.begin("start", "--agent", SHELL, "--output", "json", "--on-ask", "wait", attack)
    asked = running.says(r"`curtainwall approve (\w{6})`", 120)
    assert running.code(120) == 0
    said = json.loads(running.out)["text"]
    for boast in ("wrote beside", "removed a socket", "changed its orientation"):
        assert boast not in said
    assert f"{home}: ls: cannot access" in said
    assert "/var/run/docker.sock: ls: cannot access" in said
    assert "egress.sock\nmcp.sock" in said
    assert "unknown-tool" in said or "there is no tool" in said
    assert said.count("protected-path") >= 2, said
    assert not outside.exists()
    assert asked not in said, "ids of asks are never told to agents"


@covers("brokered.other-sockets")
def test_an_agent_cannot_reach_the_sockets_of_another_session(brokered: Brokered) -> None:
    other = brokered.starting(SHELL, "until [ -e /workspace/go ]; do sleep 0.1; done; echo over")
    (row,) = until(brokered.sessions, 60)
    socket = brokered.home / "run" / row["id"] / "mcp.sock"
    until(socket.exists, 60)
    done = brokered.start(SHELL, f"socat -u /dev/null UNIX-CONNECT:{socket} && echo reached; ls {socket.parent} && echo seen; echo tried")
    assert done["text"] == "tried\n"
    (brokered.home / "sessions" / row["id"] / "workspace" / "go").touch()
    assert other.code(120) == 0


@covers("brokered.tunnels-denied")
def test_the_network_is_closed_but_for_models_and_each_try_is_in_the_log(brokered: Brokered) -> None:
    reach = (
        "printf 'CONNECT example.com:443 HTTP/1.1\\r\\nHost: example.com:443\\r\\n\\r\\n' | socat -t 5 - TCP:127.0.0.1:18080 | head -n 1"
    )
    done = brokered.start(SHELL, f"{reach}; {reach}")
    assert done["text"].count("403") == 2
    tried = [event["subject"] for event in brokered.told(done["session"], "CallRequested")]
    assert [(it["kind"], it["tool"], it["canonical"]) for it in tried] == [("egress", "egress.connect", {"url": "https://example.com/"})]
    (denied,) = brokered.told(done["session"], "CallDenied")
    assert denied["verdict"]["effect"] == "deny"
