"""`curtainwall` with foreign agents: the real program, a real engine, the real CLI programs, and a provider that does what it is told."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from curtainwall.agents.container import Program as Lent
from tests.integration.app.conftest import Program, Running, finished, make_program, tmux
from tests.integration.container.conftest import docker_engine, short_path
from tests.support.contained import LENT
from tests.support.docker_engine import IMAGE, DockerEngine
from tests.support.prompted import Prompted, prompted_beside
from tests.support.upstream import KEY

__all__ = ["docker_engine", "short_path", "tmux"]

MODELS = {
    "claude-code": "anthropic:claude-sonnet-4-5",
    # Its own models find tools by a search; one that it does not know is told all of them.
    "codex": "openai:gpt-5.1",
    "opencode": "anthropic:claude-sonnet-4-5",
    "gemini": "gemini:gemini-2.5-pro",
}
SHELL = "shell"
"""An agent of the user's own that does what it is told: the message is its script."""


@dataclass
class Brokered(Program):
    """The program, set up for foreign agents."""

    patience: float = 120
    engine: DockerEngine | None = None
    provider: Prompted | None = None

    @property
    def environ(self) -> dict[str, str]:
        assert self.engine is not None
        keys = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), KEY)
        return {**super().environ, **keys, "DOCKER_HOST": self.engine.address}

    def start(self, agent: str, *words: str | Path, **options: Any) -> Any:
        """Do one task and return what came of it."""
        return self.json("start", "--agent", agent, *self.model(agent), *words, **options)

    def starting(self, agent: str, *words: str | Path) -> Running:
        """Begin one task beside the test."""
        return self.begin("start", "--agent", agent, *self.model(agent), "--output", "json", *words)

    def model(self, agent: str) -> tuple[str, ...]:
        return ("--model", MODELS[agent]) if agent in MODELS else ()

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


def configuration(provider: Prompted, more: str = "") -> str:
    models = "".join(f'[models.{name}]\nurl = "{provider.url}"\n' for name in ("anthropic", "openai", "gemini"))
    agents = "".join(_section(agent, lent) for agent, lent in LENT.items())
    return f'{models}{agents}[agents.{SHELL}]\nimage = "{IMAGE}"\ncommand = ["sh"]\n{more}'


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
                docker_engine.docker("rm", "-f", container)
