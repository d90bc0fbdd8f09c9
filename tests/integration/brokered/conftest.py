"""`curtainwall` with foreign agents: the real program, a real engine, the real CLI programs, and a provider that does what it is told."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from curtainwall.agents.external.container import LentProgram as Lent
from tests.integration.container.conftest import docker_engine, short_path
from tests.support.contained import LENT
from tests.support.docker_engine import IMAGE, DockerEngine
from tests.support.program import Program, Running, finished, make_program, tmux
from tests.support.prompted import Prompted, prompted_beside
from tests.support.real_parts import RealPart, require
from tests.support.upstream import KEY

__all__ = ["docker_engine", "short_path", "tmux"]

AGENTS = ("claude-code", "codex", "opencode", "gemini")
"""Each works with the model that it chooses by itself, unless a test names one."""

MODELS = {
    "claude-code": "anthropic:claude-sonnet-4-5",
    "codex": "openai:gpt-5.1",
    "opencode": "anthropic:claude-sonnet-4-5",
    "gemini": "gemini:gemini-2.5-pro",
}
SYSTEM_PYTHON = "/usr/bin/python3"
"""An ordinary user may not be able to run the Python of the tests, which can lie in root's home."""

SHELL = "shell"
"""An agent of the user's own that does what it is told: the message is its script."""


@dataclass
class Brokered(Program):
    """The program, set up for foreign agents."""

    patience: float = 120
    engine: DockerEngine | None = None
    provider: Prompted | None = None
    user: int | None = None
    """Who runs the program; left out, whoever runs the tests."""

    def __call__(
        self, *words: str | Path, given: str | bytes = "", fails: bool = False, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        if self.user is None:
            return super().__call__(*words, given=given, fails=fails, **environ)
        content = given.decode() if isinstance(given, bytes) else given
        told = subprocess.run(
            self._command(words), input=content, env={**self.environ, **environ}, cwd=self.workspace, user=self.user, group=self.user,
            extra_groups=(), capture_output=True, text=True, timeout=self.patience, check=False,
        )  # fmt: skip
        assert "Traceback" not in told.stderr, told.stderr
        assert fails or told.returncode == 0, (told.args, told.returncode, told.stdout, told.stderr)
        return told

    def begin(self, *words: str | Path, **environ: str) -> Running:
        if self.user is None:
            return super().begin(*words, **environ)
        place = self.scratch / f"process-{len(self.started)}"
        with place.with_suffix(".out").open("w") as out, place.with_suffix(".err").open("w") as err:
            child: Any = subprocess.Popen(
                self._command(words), stdin=subprocess.DEVNULL, stdout=out, stderr=err, env={**self.environ, **environ},
                cwd=self.workspace, user=self.user, group=self.user, extra_groups=(),
            )  # fmt: skip
        self.started.append(child)
        return Running(child, place)

    def _command(self, words: tuple[str | Path, ...]) -> tuple[str, ...]:
        return SYSTEM_PYTHON, "-m", "curtainwall", *map(str, words)

    @property
    def python(self) -> tuple[str, ...]:
        if self.user is None:
            return super().python
        return ("setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", SYSTEM_PYTHON)

    @property
    def environ(self) -> dict[str, str]:
        assert self.engine is not None
        keys = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), KEY)
        own = {"PYTHONPATH": os.pathsep.join(sys.path)} if self.user is not None else {}
        return {**super().environ, **keys, **own, "DOCKER_HOST": self.engine.address}

    def start(self, agent: str, *words: str | Path, **options: Any) -> Any:
        """Do one task and return what came of it."""
        return self.json("start", "--agent", agent, *words, **options)

    def starting(self, agent: str, *words: str | Path) -> Running:
        """Begin one task beside the test."""
        return self.begin("start", "--agent", agent, "--output", "json", *words)

    def resumed(self, session: str, *words: str | Path, **options: Any) -> Any:
        return self.json("start", "--resume", session, *words, **options)

    def library(self, body: str, word: str) -> str:
        """Run a program that uses the library, and return what it prints; `ID` and `WORDS` in it are the word."""
        lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
        head = f"import asyncio, curtainwall\nfrom curtainwall.model import BudgetKind\nID = WORDS = {word!r}\n"
        script = f"{head}async def main():\n{lines}\nasyncio.run(main())"
        done = subprocess.run((sys.executable, "-c", script), env=self.environ, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def told(self, session: str, kind: str) -> list[dict[str, Any]]:
        """Return the events of one kind in a session's log."""
        lines = map(json.loads, self("sessions", "export", session).stdout.splitlines())
        return [line["event"] for line in lines if line["type"] == kind]

    def containers(self, state: str = "") -> list[str]:
        """Return the containers of this home, in any state or in one."""
        assert self.engine is not None
        wanted = ("--filter", f"status={state}") if state else ()
        found = self.engine.docker("ps", "-aq", "--filter", f"label=curtainwall.house={self.home}", *wanted)
        return found.split()


def _section(agent: str, lent: tuple[Lent, ...]) -> str:
    programs = ", ".join(f'"{each.here}:{each.inside}"' for each in lent)
    return f'[agents.{agent}]\nimage = "{IMAGE}"\nready = true\nprograms = [{programs}]\n'


def configuration(provider: Prompted, more: str = "", images: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the configuration; agents that `images` does not name are lent their programs."""
    models = "".join(f'[models.{name}]\nurl = "{provider.url}"\n' for name in ("anthropic", "openai", "gemini"))
    agents = "".join(_section(agent, lent) for agent, lent in LENT.items() if agent not in images)
    agents += "".join(f'[agents.{agent}]\nimage = "{image}"\nready = true\n' for agent, image in images.items())
    return f'{models}{agents}[agents.{SHELL}]\nimage = "{IMAGE}"\ncommand = ["sh"]\n{more}'


@dataclass(frozen=True)
class OrdinaryUser:
    """Somebody without rights, whom the program can be given to; uid 1000 is the agent's where root starts it, so they are another."""

    engine: DockerEngine
    uid: int = 1234

    def take(self, program: Brokered) -> None:
        """Have the program run as this user from now on, in a home that is theirs."""
        for path in (program.scratch, *program.scratch.rglob("*")):
            os.chown(path, self.uid, self.uid, follow_symlinks=False)
        # As a member of the engine's group would.
        self.engine.socket.parent.chmod(0o711)
        self.engine.socket.chmod(0o666)
        program.user = self.uid


@pytest.fixture
def ordinary_user(docker_engine: DockerEngine) -> OrdinaryUser:
    user = OrdinaryUser(docker_engine)

    def version() -> str | None:
        done = subprocess.run(
            (SYSTEM_PYTHON, "-c", "import platform, pydantic_core; print(platform.python_version())"),
            env={"PYTHONPATH": os.pathsep.join(sys.path)}, cwd="/", user=user.uid, group=user.uid, extra_groups=(),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stdout if done.returncode == 0 else None

    require(RealPart("a Python that an ordinary user can run", version, "apt-get install python3, the version of the tests' own"))
    return user


@pytest.fixture
def brokered(short_path: Path, docker_engine: DockerEngine) -> Iterator[Brokered]:
    scratch = short_path.resolve()
    make_program(scratch)
    with prompted_beside() as provider:
        program = Brokered(scratch, engine=docker_engine, provider=provider)
        program.configure(configuration(provider))
        try:
            yield program
        finally:
            finished(program)
            for container in program.containers():
                docker_engine.remove(container)
