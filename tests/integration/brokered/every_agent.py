"""Every external agent in its shipped image, with its own default model, through everything that a session can go through.

It takes about a quarter of an hour, so it is not collected with the other tests. Run it before a release, and read the rows that it prints:

    .venv/bin/python -m pytest -n 0 -s -p no:randomly tests/integration/brokered/every_agent.py

`-k "codex and root"` runs one row.
"""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.integration.brokered.conftest import AGENTS, Brokered, OrdinaryUser, configuration
from tests.integration.cli.test_start_terminal import READY
from tests.support.docker_engine import DockerEngine
from tests.support.shipped_images import shipped_image
from tests.support.waiting import until

PATIENCE = 300
APPROVE = r"`curtainwall approve (\w{6})`"
CONNECT = '@id("connect") permit (principal, action == Action::"use-tool", resource == Tool::"egress.connect");\n'
WORDS = "authorization: Bearer $TOKEN and password: hunter2 please explain; authorization: Digest realm is explained below"
HTML = "<details><summary>the sum</summary></details>"
FILL = "head -c 500000000 /dev/zero >/workspace/filled; sleep 600"
GREEDY = "const kept = []; for (;;) kept.push(Buffer.alloc(8e6, 1))"
# Asks the agent's provider by itself: `node ask.js METHOD PATH KEY reset`, where `own` stands for the agent's stand-in key.
ASK = """
const net = require('net'), tls = require('tls'), fs = require('fs');
const {host, header, variable, body} = JSON.parse(fs.readFileSync('/workspace/provider.json', 'utf8'));
const [method, path, wanted, leaves] = process.argv.slice(2);
const environ = pid => { try { return fs.readFileSync(`/proc/${pid}/environ`, 'utf8').split('\\0') } catch { return [] } };
const all = fs.readdirSync('/proc').filter(name => /^\\d+$/.test(name)).flatMap(environ);
const own = all.find(line => line.startsWith(variable + '=')).slice(variable.length + 1);
const key = (header === 'authorization' ? 'Bearer ' : '') + (wanted === 'own' ? own : wanted);
const content = JSON.stringify(body);
const way = net.connect(18080, '127.0.0.1', () => way.write(`CONNECT ${host}:443 HTTP/1.1\\r\\nHost: ${host}\\r\\n\\r\\n`));
way.once('data', () => {
  let came = '';
  const safe = tls.connect({socket: way, servername: host, ca: fs.readFileSync('/etc/curtainwall/ca.pem')}, () => safe.write(
    `${method} ${path} HTTP/1.1\\r\\nhost: ${host}\\r\\n${header}: ${key}\\r\\ncontent-type: application/json\\r\\n` +
    `content-length: ${content.length}\\r\\n\\r\\n${content}`));
  safe.on('data', bytes => {
    came += bytes;
    if (!came.includes('\\r\\n\\r\\n') || (leaves && !came.endsWith('0\\r\\n\\r\\n'))) return;
    if (leaves) way.resetAndDestroy();
    console.log('status', came.split(' ')[1]);
    process.exit(0);
  });
});
setTimeout(() => process.exit(1), 60000);
"""


class Traits(NamedTuple):
    """What is special about an agent: its own shell, and the provider that its default model belongs to."""

    shell: str
    argument: str
    host: str
    header: str
    variable: str
    path: str
    unlisted: str

    def call(self, command: str) -> str:
        """Return the instruction to run a command in the agent's own shell."""
        # Codex leaves a command running in the background after ten seconds unless it is told to wait longer.
        more = {"description": "as the user wishes"} if self.argument == "command" else {"yield_time_ms": 30_000}
        return f"CALL {self.shell} {json.dumps({self.argument: command, **more})}"


ANTHROPIC = ("api.anthropic.com", "x-api-key", "ANTHROPIC_API_KEY", "/v1/messages", "/v1/files")
OPENAI = ("api.openai.com", "authorization", "OPENAI_API_KEY", "/v1/responses", "/v1/files")
GEMINI = (
    *("generativelanguage.googleapis.com", "x-goog-api-key", "GEMINI_API_KEY"),
    *("/v1beta/models/gemini-left:streamGenerateContent?alt=sse", "/v1beta/files"),
)
TRAITS = {
    "claude-code": Traits("Bash", "command", *ANTHROPIC),
    "codex": Traits("exec_command", "cmd", *OPENAI),
    "opencode": Traits("bash", "command", *ANTHROPIC),
    "gemini": Traits("run_shell_command", "command", *GEMINI),
}
BODIES: dict[str, dict[str, Any]] = {
    "api.anthropic.com": {"model": "left", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "hello"}]},
    "api.openai.com": {"model": "left", "stream": True, "store": False, "input": [{"role": "user", "content": "hello"}]},
    "generativelanguage.googleapis.com": {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]},
}


@pytest.mark.timeout(6000)
@pytest.mark.parametrize("who", ["root", "ordinary"])
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent(
    agent: str, who: str, brokered: Brokered, docker_engine: DockerEngine, ordinary_user: OrdinaryUser, real_part: Callable[[str], str]
) -> None:
    version = real_part(agent)
    images = {agent: asyncio.run(shipped_image(docker_engine, agent))}
    brokered.configure(configuration(brokered.provider, images=images))
    if who != "root":
        ordinary_user.take(brokered)
    brokered.patience = PATIENCE
    steps = Steps(agent, brokered, images)
    row: dict[str, str] = {}
    for name, step in steps.all.items():
        try:
            step()
            row[name] = "yes"
            print(f"{agent}, {who}, {name}: yes", flush=True)
        except Exception as fault:  # noqa: BLE001 - whatever it is, the other steps are tried as well
            row[name] = "NO"
            print(f"\n{agent}, {who}, {name}: {type(fault).__name__}: {str(fault)[:3000]}", flush=True)
    print(f"\n| {agent} {version} | {who} | " + " | ".join(f"{name}: {outcome}" for name, outcome in row.items()) + " |", flush=True)
    assert set(row.values()) == {"yes"}, row


class Steps:
    """One agent, asked for one thing after the other."""

    def __init__(self, agent: str, program: Brokered, images: dict[str, str]) -> None:
        self.agent, self.program, self.images, self.traits = agent, program, images, TRAITS[agent]
        self.session = self.killed_session = ""
        self.all: dict[str, Callable[[], None]] = {
            "one-shot": self.one_shot,
            "second turn": self.second_turn,
            "edits a mediated file": self.edits,
            "own tools recorded": self.reported,
            "refusals recorded": self.refused,
            "counted after a reset": self.counted,
            "words unaltered": self.unaltered,
            "HTML visible": self.html,
            "ask, approve elsewhere": self.approved,
            "deny": self.denied,
            "on-ask deny": self.denied_by_option,
            "park": self.parked,
            "asks for no connection": self.connects_nowhere,
            "kill -9: container ends": self.killed,
            "resume": self.resumed,
            "disk limit": self.disk,
            "memory limit": self.memory,
            "budget": self.budget,
        }

    @property
    def workspace(self) -> Path:
        return self.program.home / "sessions" / self.session / "workspace"

    def outside(self, name: str) -> tuple[Path, str]:
        """Return a file outside of the workspace and the call that writes it."""
        path = self.program.scratch / "W" / name
        return path, f"CALL write_file {json.dumps({'path': str(path), 'content': 'hello'})}"

    def own_shell(self, command: str) -> dict[str, Any]:
        """Have the agent run a command by itself, and return its answer."""
        return self.program.resumed(self.session, self.traits.call(command))

    def limited(self, more: str) -> None:
        """Configure the program with limits."""
        self.program.configure(configuration(self.program.provider, more, images=self.images))

    def one_shot(self) -> None:
        done = self.program.start(self.agent, 'CALL write_file {"path": "/workspace/notes.txt", "content": "full moon"} word=apple')
        self.session = done["session"]
        assert done["status"] == "done", done
        assert (self.workspace / "notes.txt").read_text() == "full moon"
        calls = [call["subject"]["tool"] for call in self.program.events(self.session, "CallRequested")]
        assert calls == ["filesystem.write_file"], calls

    def second_turn(self) -> None:
        assert self.program.resumed(self.session, "word=pear")["text"] == "HEARD: apple, pear"

    def edits(self) -> None:
        assert {path.stat().st_uid for path in (self.workspace, self.workspace / "notes.txt")} == {self.program.user or 1000}
        done = self.own_shell("echo ' tonight' >>/workspace/notes.txt && mv /workspace/notes.txt /workspace/moved.txt")
        assert done["status"] == "done", done
        assert (self.workspace / "moved.txt").read_text() == "full moon tonight\n", done
        status = self.program.resumed(self.session, 'CALL git__init {"path": "/workspace/code"}')
        assert "a new repository" in status["text"], status
        self.own_shell("echo x >/workspace/code/x && git -C /workspace/code add x")
        assert (self.workspace / "code" / ".git" / "index").exists()

    def reported(self) -> None:
        uses = [use for event in self.program.events(self.session, "ToolUsesReported") for use in event["uses"]]
        assert any("mv /workspace/notes.txt" in use["arguments"] for use in uses), uses
        lines = map(json.loads, (self.program.home / "sessions" / self.session / "audit.jsonl").read_text().splitlines())
        audit = [use for line in lines if line["type"] == "ToolUsesReported" for use in line["by_its_own_account"]]
        assert audit == uses

    def ask_provider(self, *words: str) -> dict[str, Any]:
        """Have the agent ask its provider from its own shell, without its program."""
        traits = self.traits
        about = {"host": traits.host, "header": traits.header, "variable": traits.variable, "body": BODIES[traits.host]}
        (self.workspace / "provider.json").write_text(json.dumps(about))
        (self.workspace / "ask.js").write_text(ASK)
        return self.own_shell(f"node /workspace/ask.js {' '.join(words)}")

    def refused(self) -> None:
        foreign = "sk-ant-api03-" + "stolen0123456789" * 5
        self.ask_provider("POST", self.traits.path, foreign)
        self.ask_provider("POST", self.traits.unlisted, "own")
        requests = [request for event in self.program.events(self.session, "RequestsRefused") for request in event["requests"]]
        path = self.traits.path.partition("?")[0]
        assert [(request["kind"], request["path"]) for request in requests] == [("key", path), ("endpoint", self.traits.unlisted)]
        text = (self.program.home / "sessions" / self.session / "audit.jsonl").read_text()
        refused = [each for line in map(json.loads, text.splitlines()) if line["type"] == "RequestsRefused" for each in line["refused"]]
        assert len(refused) == len(requests), refused
        assert foreign not in text

    def counted(self) -> None:
        before = len(self.program.events(self.session, "ModelRequested"))
        done = self.ask_provider("POST", f"'{self.traits.path}'", "own", "reset")
        assert "status 200" in done["text"], done
        calls = self.program.events(self.session, "ModelRequested")[before:]
        (left,) = [call["request"] for call in calls if "left" in call["model"]]
        answers = {each["request"]: each["usage"] for each in self.program.events(self.session, "ModelResponded")}
        assert (answers[left]["input_tokens"], answers[left]["output_tokens"]) == (1000, 100), answers[left]

    def unaltered(self) -> None:
        before = len(self.program.provider.asked)
        assert self.program.resumed(self.session, WORDS)["status"] == "done"
        bodies = [json.dumps(asked.body, ensure_ascii=False) for asked in self.program.provider.asked[before:]]
        assert any(WORDS in body for body in bodies), bodies

    def html(self) -> None:
        with self.program.terminal("start", "--agent", self.agent) as screen:
            screen.until(READY, PATIENCE)
            screen.enter(f"SAY one\\n\\n{HTML}\\n\\ntwo")
            shown = screen.until(lambda seen: re.search(r"^\W*two\s*$", seen, re.MULTILINE) is not None, PATIENCE)
            assert re.search(rf"^[^\w<]*{HTML}\s*$", shown, re.MULTILINE), shown
            screen.enter("/quit")
            assert screen.exit_code() == 0

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
        done = self.program.resumed(self.session, "--on-ask", "deny", call)
        assert (done["status"], "--on-ask deny" in done["text"]) == ("done", True), done
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

    def connects_nowhere(self) -> None:
        rules = self.program.home / "policy"
        rules.mkdir(mode=0o755, exist_ok=True)
        (rules / "mine.cedar").write_text(CONNECT)
        try:
            done = self.program.start(self.agent, "--on-ask", "park", "word=apple")
            again = self.program.resumed(done["session"], "--on-ask", "park", "word=pear")
        finally:
            (rules / "mine.cedar").unlink()
        assert (again["status"], again["text"]) == ("done", "HEARD: apple, pear")
        assert self.program.events(done["session"], "CallRequested") == []
        assert self.program.events(done["session"], "RequestsRefused") == []

    def killed(self) -> None:
        known = {row["id"] for row in self.program.sessions()}
        running = self.program.starting(self.agent, "HANG word=plum")
        (container,) = until(lambda: self.program.containers("running"), PATIENCE)
        (self.killed_session,) = {row["id"] for row in self.program.sessions()} - known
        # An agent that had not told its conversation's name is told the message again, and hangs again.
        until(lambda: any("delivered" in note["data"] for note in self.program.events(self.killed_session, "ExtensionNoted")), PATIENCE)
        running.kill_everything()
        until(lambda: container not in self.program.containers("running"), 20)

    def resumed(self) -> None:
        done = self.program.resumed(self.killed_session)
        assert (done["status"], "plum" in done["text"]) == ("done", True), done

    def disk(self) -> None:
        self.limited("[containers]\ndisk = 400\n")
        done = self.program("start", "--resume", self.session, "--output", "json", self.traits.call(FILL), fails=True)
        assert (done.returncode, json.loads(done.stdout)["status"]) == (1, "failed"), done
        assert "the disk space of the session is used up: the workspace and the agent's home hold more than 400 MB" in done.stderr, done
        (self.workspace / "filled").unlink()
        assert self.program.resumed(self.session, "word=lime")["status"] == "done"

    def memory(self) -> None:
        self.limited("[containers]\nmemory = 40\n")
        (self.workspace / "greedy.js").write_text(GREEDY)
        call = self.traits.call("exec node /workspace/greedy.js")
        done = self.program("start", "--agent", self.agent, "--output", "json", call, fails=True)
        assert (done.returncode, json.loads(done.stdout)["status"]) == (1, "failed"), done
        assert f"{self.agent} used up the memory of its container (40 MB; `memory` in [containers])" in done.stderr, done
        self.limited("")

    def budget(self) -> None:
        self.limited("[limits]\ntokens = 5000\n")
        done = self.program("start", "--agent", self.agent, "--output", "json", "LONG word=apple", fails=True)
        stopped = json.loads(done.stdout)
        assert stopped["status"] == "waiting", done
        assert [event["kind"] for event in self.program.events(stopped["session"], "BudgetExhausted")] == ["tokens"]
