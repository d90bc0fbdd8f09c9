"""Whose files mediated calls make for an agent in a container: the agent's own, also where Curtainwall runs as root."""

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.integration.brokered.conftest import SHELL, Brokered, OrdinaryUser
from tests.support.covers import covers

ABOUT = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "sh", "version": "1"}}
BEGIN = (
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": ABOUT},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
)
STEPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("filesystem__create_directory", {"path": "/workspace/deep/deeper"}),
    ("filesystem__write_file", {"path": "/workspace/deep/deeper/notes.txt", "content": "one\n"}),
    ("filesystem__move_file", {"source": "/workspace/deep/deeper/notes.txt", "destination": "/workspace/deep/moved.txt"}),
    ("git__init", {"path": "/workspace/code"}),
    ("filesystem__write_file", {"path": "/workspace/code/a.txt", "content": "one\n"}),
    ("git__set_working_dir", {"path": "/workspace/code"}),
    ("git__add", {"files": ["/workspace/code/a.txt"]}),
    ("git__commit", {"message": "one"}),
    ("git__status", {}),
    ("shell__run", {"command": "echo two >>code/a.txt && mkdir made && cat code/a.txt"}),
)
CHANGE = "echo more >>deep/moved.txt && echo more >>code/a.txt && rm -r made && mv deep/deeper deep/other && git -C code commit -qam two"


def calls(*steps: tuple[str, dict[str, Any]]) -> str:
    """Return a script that makes mediated calls one after the other and prints what came of each."""
    lines = []
    for name, arguments in steps:
        frames = (*BEGIN, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": name, "arguments": arguments}})
        told = f"printf '%s\\n' {shlex.join(map(json.dumps, frames))}"
        lines.append(f"{told} | socat -t 60 - UNIX-CONNECT:/run/curtainwall/mcp.sock | grep '\"id\":2'")
    return "\n".join(lines)


def outcomes(text: str) -> list[dict[str, Any]]:
    return [json.loads(line)["result"] for line in text.splitlines() if line.startswith("{")]


@covers("container.mediated-files-are-the-agents")
@pytest.mark.parametrize("who", ["root", "an ordinary user"])
def test_mediated_calls_work_in_the_sessions_workspace_and_the_agent_can_change_what_they_made(
    who: str, brokered: Brokered, ordinary_user: OrdinaryUser
) -> None:
    if who != "root":
        ordinary_user.take(brokered)
    identity = "git config --global user.name a; git config --global user.email a@example.org\n"
    done = brokered.start(SHELL, f"{calls(*STEPS)}\n{identity}{CHANGE}; echo changed $?; id -u")
    said = outcomes(done["text"])
    assert [result.get("isError", False) for result in said] == [False] * len(STEPS), said
    assert json.loads(said[-1]["content"][0]["text"])["stdout"] == "one\ntwo\n", said[-1]
    assert done["text"].splitlines()[-2:] == ["changed 0", str(ordinary_user.uid if who != "root" else 1000)]
    workspace = brokered.home / "sessions" / done["session"] / "workspace"
    owners = {path.lstat().st_uid for path in (workspace, *workspace.rglob("*"))}
    assert owners == {ordinary_user.uid if who != "root" else 1000}


@covers("container.mediated-files-are-the-agents")
def test_mediated_calls_in_a_project_of_somebody_else_work_as_its_owner(brokered: Brokered, ordinary_user: OrdinaryUser) -> None:
    project = brokered.scratch / "project"
    project.mkdir(mode=0o700)
    (project / "README").write_text("hello\n")
    for path in (project, project / "README"):
        os.chown(path, ordinary_user.uid, ordinary_user.uid)
    steps = (
        ("git__init", {"path": "/workspace/code"}),
        ("filesystem__write_file", {"path": "/workspace/new.txt", "content": "one\n"}),
        ("shell__run", {"command": "cat README; touch touched"}),
    )
    done = brokered.start(SHELL, "--workspace", project, "--mode", "accept-edits", calls(*steps))
    assert [result.get("isError", False) for result in outcomes(done["text"])] == [False] * len(steps), done["text"]
    assert {path.lstat().st_uid for path in project.rglob("*")} == {ordinary_user.uid}
    assert {path.name for path in project.iterdir()} == {"README", "code", "new.txt", "touched"}


def test_what_root_writes_beside_its_own_files_stays_roots(brokered: Brokered) -> None:
    place = brokered.scratch / "W"
    done = brokered.start(SHELL, "--mode", "bypass", calls(("filesystem__write_file", {"path": str(Path(place, "x.txt")), "content": "x"})))
    assert [result.get("isError", False) for result in outcomes(done["text"])] == [False], done
    assert (place / "x.txt").stat().st_uid == 0
