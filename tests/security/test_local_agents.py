"""From inside a local agent's process: nothing of the project's, of ours or of the network, but by its two ways out."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from curtainwall.model import AnyEvent, CallRequested
from tests.support.covers import covers
from tests.support.houses import run
from tests.support.machines import SECRET
from tests.support.processed import processed, short_path

__all__ = ["short_path"]

PROBE = """#!/usr/bin/python3 -I
import json, os, socket, sys
def tried(work):
    try:
        return str(work())
    except Exception as fault:
        return f"no: {fault}"
def reached(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as there:
        there.settimeout(2)
        there.connect(address)
        return "reached"
for line in sys.stdin:
    event = json.loads(line)
    if event["type"] != "user":
        continue
    asked = json.loads(event["message"]["content"])
    told = {
        "read": {path: tried(lambda: open(path).read()) for path in asked["read"]},
        "write": {path: tried(lambda: open(path, "w").write("x")) for path in asked["write"]},
        "unix": {path: tried(lambda: reached(socket.AF_UNIX, path)) for path in asked["unix"]},
        "tcp": {str(port): tried(lambda: reached(socket.AF_INET, ("127.0.0.1", port))) for port in asked["tcp"]},
        "far": tried(lambda: reached(socket.AF_INET, ("1.1.1.1", 443))),
        "listing": tried(lambda: os.listdir(os.getcwd())),
        "cwd": os.getcwd(),
        "environment": dict(os.environ),
        "processes": [each for each in os.listdir("/proc") if each.isdigit()],
    }
    session = sys.argv[sys.argv.index("--session-id") + 1]
    said = {"content": [{"type": "text", "text": json.dumps(told)}]}
    print(json.dumps({"type": "assistant", "parent_tool_use_id": None, "message": said}))
    print(json.dumps({"type": "result", "subtype": "success", "is_error": False, "session_id": session}), flush=True)
"""


@covers("process.sees-nothing-of-ours")
def test_a_local_agent_reaches_nothing_but_its_own_state_and_its_two_sockets(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_SECRET", SECRET)
    probe, project = short_path / "probe", short_path / "project"
    probe.write_text(PROBE)
    probe.chmod(0o755)
    project.mkdir()
    (project / "secret.txt").write_text(SECRET)
    (short_path / "keys").write_text(SECRET)

    async def scenario() -> None:
        async with processed(short_path, program=probe) as rig:
            session, other = await rig.open(project), await rig.open(project)
            folders, foreign = rig.folders(session), rig.folders(other)
            wish = {
                "read": [str(short_path / "keys"), str(project / "secret.txt"), "/root/.bashrc", "/etc/shadow", str(foreign.state)],
                "write": [str(project / "made"), str(folders.orientation / "x"), "/run/curtainwall/x", str(folders.state / "fine")],
                "unix": [str(folders.run / "mcp.sock"), str(foreign.run / "mcp.sock"), "/run/curtainwall/mcp.sock"],
                "tcp": [rig.provider.port, 18080],
            }
            # The other one's sockets are there meanwhile.
            await rig.say(other, json.dumps({"read": [], "write": [], "unix": [], "tcp": []}))
            turned = await rig.say(session, json.dumps(wish))
            told = json.loads(turned.text)
            assert all(each.startswith("no: ") for each in told["read"].values()), told["read"]
            assert [path for path, each in told["write"].items() if not each.startswith("no: ")] == [str(folders.state / "fine")]
            assert [path for path, each in told["unix"].items() if each == "reached"] == ["/run/curtainwall/mcp.sock"]
            assert [port for port, each in told["tcp"].items() if each == "reached"] == ["18080"], "only the bridge to our proxy"
            assert told["far"].startswith("no: ")
            assert (told["cwd"], told["listing"]) == (str(project), "[]")
            assert SECRET not in turned.text
            assert len(told["processes"]) < 10
            assert not (project / "made").exists()

    run(scenario())


@covers("process.sees-nothing-of-ours", "process.only-our-tools")
def test_what_a_project_brings_along_neither_runs_nor_comes_before_the_model(short_path: Path, real_part: Callable[[str], str]) -> None:
    real_part("claude-code")
    project = short_path / "project"
    (project / ".claude" / "commands").mkdir(parents=True)
    hook = {"hooks": [{"type": "command", "command": f"touch {short_path}/hooked"}]}
    settings = {"hooks": {"SessionStart": [hook], "UserPromptSubmit": [hook]}, "permissions": {"allow": ["Bash(*)"]}}
    (project / ".claude" / "settings.json").write_text(json.dumps(settings))
    shutil.copy(project / ".claude" / "settings.json", project / ".claude" / "settings.local.json")
    (project / ".claude" / "commands" / "evil.md").write_text("word=planted")
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"evil": {"command": "touch", "args": [f"{short_path}/served"]}}}))
    (project / "CLAUDE.md").write_text("word=instructed")
    (project / "secret.txt").write_text("word=secret")

    async def scenario() -> None:
        async with processed(short_path) as rig:
            session = await rig.open(project)
            for text in ("see @secret.txt word=mine", f"@{project}/secret.txt", "/evil", "!touch x", 'CALL Bash {"command": "id"}'):
                turned = await rig.say(session, text)
                assert turned.is_done
            sent = json.dumps([asked.body for asked in rig.provider.asked])
            assert "word=mine" in sent
            for planted in ("word=secret", "word=planted", "word=instructed"):
                assert planted not in sent, planted
            assert "there is no tool Bash" in turned.text
            assert not _calls(rig.events(session))
            assert not (short_path / "hooked").exists()
            assert not (short_path / "served").exists()

    run(scenario())


def _calls(events: list[AnyEvent]) -> list[CallRequested]:
    return [event for event in events if isinstance(event, CallRequested)]
