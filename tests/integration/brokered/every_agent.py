"""Every external agent in its shipped image with the model that it chooses by itself, through all that a session can go through.

It takes minutes, so it is not collected with the other tests. Run it before a release, and read the rows that it prints:

    .venv/bin/python -m pytest -n 0 -s -p no:randomly tests/integration/brokered/every_agent.py
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.brokered.conftest import AGENTS, Brokered, OrdinaryUser, configuration
from tests.support.docker_engine import DockerEngine
from tests.support.shipped_images import shipped_image
from tests.support.waiting import until

PATIENCE = 600
APPROVE = r"`curtainwall approve (\w{6})`"


@pytest.mark.timeout(6000)
@pytest.mark.parametrize("who", ["root", "ordinary"])
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent(
    agent: str, who: str, brokered: Brokered, docker_engine: DockerEngine, ordinary_user: OrdinaryUser, real_part: Callable[[str], str]
) -> None:
    real_part(agent)
    images = {agent: asyncio.run(shipped_image(docker_engine, agent))}
    brokered.configure(configuration(brokered.provider, images=images))
    if who != "root":
        ordinary_user.take(brokered)
    brokered.patience = PATIENCE
    tried = Tried(agent, brokered, images)
    row: dict[str, str] = {}
    for name, step in tried.steps.items():
        try:
            step()
            row[name] = "yes"
        except Exception as fault:  # noqa: BLE001 - whatever it is, the other steps are tried as well
            row[name] = "NO"
            print(f"\n{agent}, {who}, {name}: {str(fault)[:1500]}")
    print(f"\n| {agent} | {who} | " + " | ".join(f"{name}: {told}" for name, told in row.items()) + " |", flush=True)
    assert set(row.values()) == {"yes"}, row


class Tried:
    """One agent, asked for one thing after the other."""

    def __init__(self, agent: str, program: Brokered, images: dict[str, str]) -> None:
        self.agent, self.program, self.images = agent, program, images
        self.session = self.killed_session = ""
        self.steps: dict[str, Callable[[], None]] = {
            "one-shot": self.one_shot,
            "second turn": self.second_turn,
            "mediated file is its own": self.owned,
            "ask, approve elsewhere": self.approved,
            "deny": self.denied,
            "on-ask deny": self.denied_by_option,
            "park": self.parked,
            "kill -9: container ends": self.killed,
            "resume": self.resumed,
            "budget": self.budget,
        }

    def outside(self, name: str) -> tuple[Path, str]:
        """Return a file outside of the workspace and the call that writes it."""
        path = self.program.scratch / "W" / name
        return path, f"CALL write_file {json.dumps({'path': str(path), 'content': 'hello'})}"

    def one_shot(self) -> None:
        done = self.program.start(self.agent, 'CALL write_file {"path": "/workspace/notes.txt", "content": "full moon"} word=apple')
        self.session = done["session"]
        assert done["status"] == "done", done
        assert (self.program.home / "sessions" / self.session / "workspace" / "notes.txt").read_text() == "full moon"
        calls = [call["subject"]["tool"] for call in self.program.told(self.session, "CallRequested")]
        assert calls == ["filesystem.write_file"], calls

    def second_turn(self) -> None:
        assert self.program.resumed(self.session, "word=pear")["text"] == "HEARD: apple, pear"

    def owned(self) -> None:
        workspace = self.program.home / "sessions" / self.session / "workspace"
        assert {path.stat().st_uid for path in (workspace, workspace / "notes.txt")} == {self.program.user or 1000}
        status = self.program.resumed(self.session, 'CALL git__init {"path": "/workspace/code"}')
        assert "a new repository" in status["text"], status

    def approved(self) -> None:
        path, call = self.outside("approved.txt")
        running = self.program.begin("start", "--resume", self.session, "--on-ask", "wait", "--output", "json", call)
        approval = running.says(APPROVE, PATIENCE)
        assert not path.exists()
        self.program("approve", approval)
        assert running.code(PATIENCE) == 0, running.err
        assert path.read_text() == "hello"

    def denied(self) -> None:
        path, call = self.outside("denied.txt")
        running = self.program.begin("start", "--resume", self.session, "--on-ask", "wait", "--output", "json", call)
        self.program("deny", running.says(APPROVE, PATIENCE), "--reason", "not there")
        assert running.code(PATIENCE) == 0, running.err
        assert "not there" in json.loads(running.out)["text"], running.out
        assert not path.exists()

    def denied_by_option(self) -> None:
        path, call = self.outside("denied-too.txt")
        done = json.loads(self.program("start", "--resume", self.session, "--on-ask", "deny", "--output", "json", call, fails=True).stdout)
        assert done["status"] == "done", done
        assert not path.exists()

    def parked(self) -> None:
        path, call = self.outside("parked.txt")
        done = self.program("start", "--agent", self.agent, "--output", "json", f"{call} word=fig", fails=True)
        parked = json.loads(done.stdout)
        assert (done.returncode, parked["status"]) == (3, "waiting"), done
        (pending,) = parked["pending"]
        self.program("approve", pending["id"])
        again = self.program.resumed(parked["session"])
        assert again["status"] == "done", again
        assert path.read_text() == "hello"

    def killed(self) -> None:
        before, known = len(self.program.provider.asked), {row["id"] for row in self.program.sessions()}
        running = self.program.starting(self.agent, "HANG word=plum")
        until(lambda: any("HANG" in json.dumps(asked.body) for asked in self.program.provider.asked[before:]), PATIENCE)
        (container,) = until(lambda: self.program.containers("running"), 60)
        (self.killed_session,) = {row["id"] for row in self.program.sessions()} - known
        running.kill_everything()
        until(lambda: container not in self.program.containers("running"), 20)

    def resumed(self) -> None:
        done = self.program.resumed(self.killed_session)
        assert (done["status"], "plum" in done["text"]) == ("done", True), done

    def budget(self) -> None:
        self.program.configure(configuration(self.program.provider, "[limits]\ntokens = 5000\n", images=self.images))
        done = self.program("start", "--agent", self.agent, "--output", "json", "LONG word=apple", fails=True)
        stopped = json.loads(done.stdout)
        assert stopped["status"] == "waiting", done
        assert [event["kind"] for event in self.program.told(stopped["session"], "BudgetExhausted")] == ["tokens"]
