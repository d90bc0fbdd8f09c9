"""The real program in processes of its own, with a home that belongs to one test."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.forks import COMMANDS_OF_OURS, LIBRARY, PROVIDERS, SERVED, Begun, begun, curtainwall, forked
from tests.support.tmux import Tmux, terminal
from tests.support.upstream import Upstream, upstream_beside
from tests.support.waiting import replace, until

T = TypeVar("T")

_NOT_OURS = ("CURTAINWALL", "COV_", "COVERAGE", "ANTHROPIC", "OPENAI")


@dataclass
class Running:
    """`curtainwall` at work beside the test; what it said so far can be read at any time."""

    child: Begun
    place: Path

    @property
    def out(self) -> str:
        return self.place.with_suffix(".out").read_text()

    @property
    def err(self) -> str:
        return self.place.with_suffix(".err").read_text()

    def says(self, words: str, bound: float = 90) -> str:
        """Wait until it has said something on stderr, and return the first group of the pattern."""
        until(lambda: re.search(words, self.err) or self.child.poll() is not None, bound)
        # One that ended meanwhile may have said it as its last word.
        found = re.search(words, self.err)
        assert found is not None, f"it ended with {self.child.returncode} without a word of {words!r}: {self.err}"
        return found[1] if found.re.groups else found[0]

    def interrupt(self) -> None:
        self.child.send_signal(signal.SIGINT)

    def kill_everything(self) -> None:
        """Kill the process and everything that it started, none of which can do anything about it."""
        for pid in (self.child.pid, *_below(self.child.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.child.wait()

    def code(self, bound: float = 90) -> int:
        """Wait for its end and return the exit code."""
        code = self.child.wait(timeout=bound)
        assert "Traceback" not in self.err, self.err
        return code


@dataclass
class Program:
    """`curtainwall`, run by a user whose home directory is in a scratch place."""

    scratch: Path
    started: list[Begun] = field(default_factory=list)
    patience: float = 120
    loaded: tuple[str, ...] = ()

    @property
    def home(self) -> Path:
        return self.scratch / "cw"

    @property
    def workspace(self) -> Path:
        return self.scratch / "W"

    @property
    def far(self) -> Path:
        return self.scratch / "far.jsonl"

    @property
    def python(self) -> tuple[str, ...]:
        """The command that runs Python for a program in a terminal."""
        return (sys.executable,)

    @property
    def environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)}
        return {**kept, "CURTAINWALL_HOME": str(self.home), "HOME": str(self.scratch / "user"), "NO_COLOR": "1"}

    def __call__(
        self, *words: str | Path, given: str | bytes = "", fails: bool = False, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. What is begun in a terminal is started from nothing, as a user does it."""
        content = given.encode() if isinstance(given, str) else given
        told = curtainwall(
            *words, environ={**self.environ, **environ}, given=content, place=self.workspace, bound=self.patience, imported=self.loaded
        )  # fmt: skip
        assert "Traceback" not in told.stderr, told.stderr
        assert fails or told.returncode == 0, (told.args, told.returncode, told.stdout, told.stderr)
        return told

    def from_nothing(self, *words: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end in a process that has nothing loaded before it begins."""
        command = (sys.executable, "-m", "curtainwall", *map(str, words))
        environ = {**self.environ, **environ}
        return subprocess.run(
            command, env=environ, cwd=self.workspace, capture_output=True, text=True, timeout=self.patience, check=True
        )  # fmt: skip

    def json(self, *words: str | Path, **options: Any) -> Any:
        """Return the one document of a command."""
        return json.loads(self(*words, "--output", "json", **options).stdout)

    def check(self, *calls: dict[str, Any], options: tuple[str | Path, ...] = ()) -> list[dict[str, Any]]:
        """Return the verdicts of `policy check`, judged in the workspace."""
        words = options if "--project" in options else ("--workspace", self.workspace, *options)
        given = "".join(json.dumps(call) + "\n" for call in calls)
        return [json.loads(line) for line in self("policy", "check", *words, given=given).stdout.splitlines()]

    def ask(self, *words: str | Path) -> Begun:
        """Start the example that makes one wish at the gate; what it says can be read line by line."""
        told, says = os.pipe()
        with (self.scratch / "ask.err").open("a") as err, Path(os.devnull).open() as nothing, os.fdopen(says, "w") as out:
            child = begun(
                "examples.ask", "--far", self.far, *words, files=(nothing.fileno(), out.fileno(), err.fileno()),
                environ=self.environ, place=self.workspace, imported=LIBRARY,
            )  # fmt: skip
        child.stdout = os.fdopen(told)
        self.started.append(child)
        return child

    def asked(self, *words: str | Path) -> list[dict[str, Any]]:
        """Run that example to its end and return what it said."""
        told = forked("examples.ask", "--far", self.far, *words, environ=self.environ, place=self.workspace, imported=LIBRARY)
        assert told.returncode in (0, 3), told.stderr
        return [json.loads(line) for line in told.stdout.splitlines()]

    def begin(self, *words: str | Path, **environ: str) -> Running:
        """Run the program beside the test, without a terminal."""
        place = self.scratch / f"process-{len(self.started)}"
        known = (*COMMANDS_OF_OURS, *self.loaded, *(SERVED if words[0] == "serve" else ()))
        with place.with_suffix(".out").open("w") as out, place.with_suffix(".err").open("w") as err, Path(os.devnull).open() as nothing:
            child = begun(
                "curtainwall.__main__", *words, files=(nothing.fileno(), out.fileno(), err.fileno()),
                environ={**self.environ, **environ}, place=self.workspace, imported=known,
            )  # fmt: skip
        self.started.append(child)
        return Running(child, place)

    @contextmanager
    def terminal(self, *words: str | Path, size: tuple[int, int] = (100, 40), err: Path | None = None, **environ: str) -> Iterator[Tmux]:
        """Run the program in a terminal, or all but its stderr; a variable that is empty is not there."""
        wanted = {name: value for name, value in {**self.environ, "TERM": "xterm-256color", **environ}.items() if value}
        command = ("env", "-i", *(f"{name}={value}" for name, value in wanted.items()), *self.python, "-m", "curtainwall")
        with terminal((*command, *map(str, words)), self.workspace, size=size, err=err) as tmux:
            yield tmux

    def configure(self, text: str) -> None:
        self.home.mkdir(mode=0o700, exist_ok=True)
        replace(self.home / "config.toml", text)

    def sessions(self) -> list[dict[str, Any]]:
        return self.json("sessions", "list")

    def events(self, session: str, kind: str) -> list[dict[str, Any]]:
        """Return the events of one kind in a session's log."""
        lines = map(json.loads, self("sessions", "export", session).stdout.splitlines())
        return [line["event"] for line in lines if line["type"] == kind]

    def open_approval(self) -> str:
        """Return the one approval that is open."""
        (row,) = self.json("approvals", "list")
        return row["id"]

    @property
    def effects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.far.read_text().splitlines()] if self.far.exists() else []


def _below(pid: int) -> list[int]:
    """Return every process that a process started, and those that these did."""
    try:
        children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
    return [found for child in children for found in (child, *_below(child))]


def make_program(scratch: Path) -> Program:
    for name in ("W", "user"):
        (scratch / name).mkdir()
    return Program(scratch)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = make_program(tmp_path.resolve())
    yield made
    finished(made)


def finished(program: Program) -> None:
    """End whatever a test left running."""
    for child in program.started:
        if child.poll() is None:
            child.kill()
        child.wait()
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def tmux(real_part: Callable[[str], str]) -> str:
    """Return the version of a tmux that is there."""
    return real_part("tmux")


@pytest.fixture
def provider(program: Program) -> Iterator[Upstream]:
    """Run a provider beside the test; `anthropic:…`, `openai:…` and `local:…` lead to it. Keys are for the environment."""
    with upstream_beside() as site:
        program.configure(providers_at(site))
        program.loaded = PROVIDERS
        yield site


def providers_at(site: Upstream, *, silence: str = "200s") -> str:
    urls = {"anthropic": site.url, "openai": f"{site.url}/v1", "local": f"{site.url}/v1"}
    sections = "".join(f'[models.{name}]\nurl = "{url}"\n' for name, url in urls.items())
    return f'[model]\nsilence = "{silence}"\n{sections}env = "OPENAI_API_KEY"\n'
