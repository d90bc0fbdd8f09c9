"""The program in this process: its own `main`, with arguments, environment and home of one test."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from curtainwall.agents.registry import AgentRegistry
from curtainwall.cli.main import main
from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.host.user import local_user
from curtainwall.model import (
    Answer,
    CallPermitted,
    CallRequest,
    LabelSource,
    Mode,
    OpenSession,
    Place,
    Prepared,
    ReadySession,
    Route,
    SessionId,
    ToolResult,
)
from curtainwall.operations.desk import DeskPorts, SessionDesk
from curtainwall.operations.open import SessionSpec
from curtainwall.tools import NATIVE_TOOLS


class Said(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Places(NamedTuple):
    """The directories of one test."""

    home: Path
    user: Path
    workspace: Path


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    root = tmp_path.resolve()
    made = Places(root / "cw", root / "user", root / "W")
    made.user.mkdir()
    made.workspace.mkdir()
    monkeypatch.setenv("CURTAINWALL_HOME", str(made.home))
    monkeypatch.setenv("HOME", str(made.user))
    monkeypatch.delenv("CURTAINWALL_DEBUG", raising=False)
    monkeypatch.chdir(made.workspace)
    return made


@pytest.fixture
def run(places: Places, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def command(*words: str | Path) -> Said:
        monkeypatch.setattr(sys, "argv", ["curtainwall", *map(str, words)])
        code = main()
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return command


async def _done(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
    return ToolResult(ok=True, value="done")


async def opened(
    wired: GatedSessions,
    workspace: Path,
    *,
    own: bool = True,
    mode: Mode = Mode.DEFAULT,
    labels: tuple[str, ...] = (),
    routes: tuple[Route, ...] = (),
) -> SessionId:
    """Open a session that is ready for calls."""
    session, me = SessionId(wired.registry.mint()), local_user()
    wired.setup.home.session(session).prepare()
    command = OpenSession(
        by=me, session=session, name="test", agent="builtin", model="demo", workspace=wired.setup.workspace_at(workspace, own=own),
        mode=mode, limits=wired.setup.limits, policy=wired.setup.policy.version, routes=routes,
        labels=tuple(LabelSource.model_validate({"label": label, "origin": "a test"}) for label in labels),
    )  # fmt: skip
    await wired.registry.send(session, command)
    await wired.registry.send(session, ReadySession(by=me))
    return session


def session_in(workspace: Path, *wishes: CallRequest, **options: Any) -> tuple[SessionId, list[Answer]]:
    """Open a session, make wishes that nobody waits for, and let go of it."""

    async def work() -> tuple[SessionId, list[Answer]]:
        async with open_gate(load_setup(), {spec.full_name: _done for spec in NATIVE_TOOLS}) as wired:
            session = await opened(wired, workspace, **options)
            return session, [await wired.gate.request(session, wish, wait=False) for wish in wishes]

    return asyncio.run(asyncio.wait_for(work(), 60))


def desk_in(wired: GatedSessions) -> SessionDesk:
    """Return a desk in a process that lets no agent work."""
    surface = DeskPorts(wired.incoming, AgentRegistry(wired.sessions.names.of), lambda _: None, SessionSpec("demo"), None)
    return SessionDesk(wired.sessions, surface)
