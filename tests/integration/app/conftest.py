"""The real program in processes of its own, with a home that belongs to one test."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

ROOT = Path(__file__).resolve().parents[3]
T = TypeVar("T")


@dataclass
class Program:
    """`curtainwall`, run by a user whose home directory is in a scratch place."""

    scratch: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

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
    def environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CURTAINWALL", "COV_", "COVERAGE"))}
        return {**kept, "CURTAINWALL_HOME": str(self.home), "HOME": str(self.scratch / "user"), "NO_COLOR": "1"}

    def __call__(
        self, *words: str | Path, given: str | bytes = "", fails: bool = False, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        content = given.encode() if isinstance(given, str) else given
        done = subprocess.run(
            [sys.executable, "-m", "curtainwall", *map(str, words)],
            input=content, capture_output=True, env={**self.environ, **environ}, cwd=self.workspace, timeout=60, check=False,
        )  # fmt: skip
        told = subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
        assert "Traceback" not in told.stderr, told.stderr
        assert fails or told.returncode == 0, (told.args, told.returncode, told.stdout, told.stderr)
        return told

    def json(self, *words: str | Path, **options: Any) -> Any:
        """Return the one document of a command."""
        return json.loads(self(*words, "--output", "json", **options).stdout)

    def check(self, *calls: dict[str, Any], options: tuple[str | Path, ...] = ()) -> list[dict[str, Any]]:
        """Return the verdicts of `policy check`, judged in the workspace."""
        words = options if "--project" in options else ("--workspace", self.workspace, *options)
        given = "".join(json.dumps(call) + "\n" for call in calls)
        return [json.loads(line) for line in self("policy", "check", *words, given=given).stdout.splitlines()]

    def ask(self, *words: str | Path) -> subprocess.Popen[str]:
        """Start the example that makes one wish at the gate."""
        command = [sys.executable, str(ROOT / "examples" / "ask.py"), "--far", str(self.far), *map(str, words)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environ, cwd=self.workspace)
        self.started.append(child)
        return child

    def asked(self, *words: str | Path) -> list[dict[str, Any]]:
        """Run that example to its end and return what it said."""
        child = self.ask(*words)
        out, err = child.communicate(timeout=60)
        assert child.returncode in (0, 3), err
        return [json.loads(line) for line in out.splitlines()]

    def open_approval(self) -> str:
        """Return the one approval that is open."""
        (row,) = self.json("approvals", "list")
        return row["id"]

    @property
    def effects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.far.read_text().splitlines()] if self.far.exists() else []


def until(condition: Callable[[], T], bound: float = 30) -> T:
    """Wait for a condition, with a bound."""
    end = time.monotonic() + bound
    while not (found := condition()):
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)
    return found


def make_program(scratch: Path) -> Program:
    for name in ("W", "user"):
        (scratch / name).mkdir()
    return Program(scratch)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = make_program(tmp_path.resolve())
    yield made
    for child in made.started:
        if child.poll() is None:
            child.kill()
        child.wait()
        for pipe in (child.stdout, child.stderr):
            assert pipe is not None
            pipe.close()
