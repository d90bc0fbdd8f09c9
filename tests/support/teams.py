"""Teams for tests: a home with projects and a configuration, and looks into what came of the talk."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from curtainwall.compose.gate import GatedSessions
from curtainwall.library.teams import Teams
from curtainwall.model import AnyEvent, SessionId, SessionQuery, session_stream
from curtainwall.runtime import SessionRegistry
from curtainwall.session import SessionState, fold
from tests.support import fake_claude
from tests.support.upstream import KEY

LISTED = '[lists]\nteams = ["*"]\n'
LOCAL = {"agent": '"claude-local"', "model": '"anthropic:claude-sonnet-4-5"'}


@dataclass
class TeamHome:
    """A home of one test, with a project for each team."""

    scratch: Path
    more: str = LISTED

    @property
    def home(self) -> Path:
        return self.scratch / "cw"

    def project(self, team: str) -> Path:
        place = self.scratch / "projects" / team
        place.mkdir(parents=True, exist_ok=True)
        return place

    def script(self, team: str, *lines: str) -> str:
        """Return the model that plays these lines of JSON."""
        place = self.scratch / f"{team}.jsonl"
        place.write_text("".join(f"{line}\n" for line in lines))
        return f"script:{place}"

    def write(self, **teams: Mapping[str, str] | str) -> None:
        """Write the configuration: for each team its model, or several keys as they stand in the file."""
        text = self.more
        for name, told in teams.items():
            keys = {"model": f'"{told}"'} if isinstance(told, str) else dict(told)
            text += f'[teams.{name}]\nproject = "{self.project(name)}"\n' + "".join(f"{key} = {value}\n" for key, value in keys.items())
        self.home.mkdir(exist_ok=True)
        (self.home / "config.toml").write_text(text)


@pytest.fixture
def team_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TeamHome:
    """Return a home that this process uses from here on."""
    made = TeamHome(tmp_path)
    monkeypatch.setenv("CURTAINWALL_HOME", str(made.home))
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return made


@pytest.fixture
def short_home(bubblewrap: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[TeamHome]:
    """Return a home whose sockets have short names, on a machine that can confine."""
    with tempfile.TemporaryDirectory(prefix="cw-") as name:
        made = TeamHome(Path(name).resolve())
        monkeypatch.setenv("CURTAINWALL_HOME", str(made.home))
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        yield made


@pytest.fixture
def fake(short_home: TeamHome) -> Path:
    """Return a program that stands in for Claude Code and misbehaves on request; it serves the team `backend`."""
    program = short_home.scratch / "fake"
    shutil.copy(fake_claude.__file__, program)
    program.chmod(0o755)
    serve_with(short_home, program)
    return program


def serve_with(home: TeamHome, program: Path, more: str = "silence = 3\n", **teams: str) -> None:
    """Let a program serve the team `backend`, beside other teams."""
    home.more = f'{LISTED}[processes]\nprogram = "{program}"\n{more}'
    home.write(backend=LOCAL, **teams)


def keep_a_secret(home: TeamHome) -> Mapping[str, str]:
    """Return the keys of a team that reads a secret of its project and answers with it, unasked."""
    secret = home.project("vault") / ".env"
    secret.write_text("COLOUR=swordfish-blue\n")
    read = {"tool": "filesystem.read_file", "arguments": {"path": str(secret)}}
    script = home.script("vault", json.dumps(read), json.dumps({"text": "the word is swordfish-blue"}))
    return {"model": f'"{script}"', "mode": '"bypass"'}


def wired_of(teams: Teams) -> GatedSessions:
    return teams._wired


def house_of(teams: Teams) -> SessionRegistry:
    return wired_of(teams).registry


def events_in(teams: Teams, session: SessionId) -> list[AnyEvent]:
    return [recorded.event for recorded in house_of(teams).feed.read(session_stream(session))]


def pair_sessions(teams: Teams) -> list[SessionId]:
    """Return the sessions of all pairs, oldest first."""
    rows = house_of(teams).stores.index.sessions(SessionQuery(channel="teams", limit=10_000))
    return [row.session for row in reversed(rows)]


def state_in(teams: Teams, session: SessionId) -> SessionState:
    return fold(events_in(teams, session))


def caller_of(teams: Teams) -> SessionId:
    return teams._caller.session
