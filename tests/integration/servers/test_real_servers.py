"""Servers of others, as they are: what they offer is proposed roles for, and every call of theirs goes through the gate."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from curtainwall.model import AnswerApproval, ApprovalAsked, CallRequest, Effect, Meaning, Role, ToolEffect
from curtainwall.tools.servers import ToolRoles
from tests.support.covers import covers
from tests.support.houses import ANN, events, run, until
from tests.support.real_parts import EVERYTHING_SERVER, FILES_SERVER, GIT_SERVER
from tests.support.servers import Desk, desk, processes_with, real_server, review

WORKSPACE = "{workspace}"


@pytest.fixture(autouse=True)
def _parts(real_part: Callable[[str], str], bubblewrap: str) -> None:
    real_part("mcp-servers")


async def granted(at: Desk, tool: str, **arguments: object) -> object:
    """Make a call that asks, say yes, and return what came of it."""
    call = asyncio.create_task(at.call(tool, **arguments))  # type: ignore[arg-type] - JSON all the same
    asked = await until(lambda: next((event for event in reversed(events(at.house, at.session)) if isinstance(event, ApprovalAsked)), None))
    await at.house.send(at.session, AnswerApproval(by=ANN, approval=asked.approval, granted=True))
    answer = await call
    assert answer.result is not None, answer.verdict
    return answer.result.value


@covers("servers.judged-like-our-own")
def test_the_filesystem_server_is_allowed_in_the_workspace_asked_outside_and_denied_nonsense(tmp_path: Path) -> None:
    async def story() -> None:
        outside = tmp_path / "outside.txt"
        outside.write_text("private")
        (spec,) = await review(tmp_path, real_server("files", FILES_SERVER, WORKSPACE, write=(WORKSPACE,)))
        async with desk(tmp_path, spec) as at:
            names = {tool.full_name for tool in at.hub.listing() if tool.server == "files"}
            assert {"files.read_text_file", "files.write_file", "files.move_file", "files.edit_file"} <= names
            assert "Successfully wrote" in str(await at.value("files.write_file", path="a.txt", content="hello\n"))
            assert (at.workspace / "a.txt").read_text() == "hello\n"
            assert await at.value("files.read_text_file", path="./a.txt") == "hello\n"
            await at.value("files.move_file", source="a.txt", destination="b.txt")
            assert [path.name for path in at.workspace.iterdir()] == ["b.txt"]
            assert "hello" in str(await at.value("files.read_multiple_files", paths=["b.txt"]))
            # The human says yes; the sandbox does not hold the file, whatever anyone says.
            told = await granted(at, "files.read_text_file", path=str(outside))
            assert "private" not in str(told)
            wrong = await at.call("files.read_text_file", pfad="b.txt")
            assert (wrong.verdict.effect, wrong.verdict.because) == (Effect.DENY, ("invalid-arguments",))
            unknown = await at.call("files.format_disk")
            assert (unknown.verdict.effect, unknown.verdict.because) == (Effect.DENY, ("unknown-tool",))
            assert "servers annotate files" in unknown.verdict.reason

    run(story())


def test_what_was_judged_is_what_the_server_gets(tmp_path: Path) -> None:
    async def story() -> None:
        (spec,) = await review(tmp_path, real_server("files", FILES_SERVER, WORKSPACE, write=(WORKSPACE,)))
        async with desk(tmp_path, spec) as at:
            (at.workspace / "real").mkdir()
            (at.workspace / "real" / "x").write_text("found")
            (at.workspace / "link").symlink_to("real")
            prepared = at.hub.prepare("files.read_text_file", {"path": "link/../link/x"}, at.place)
            assert prepared.arguments["path"] == str(at.workspace / "real" / "x")
            assert await at.value("files.read_text_file", path="link/x") == "found"
            (at.workspace / "out").symlink_to(tmp_path)
            asked = await at.gate.request(
                at.session, CallRequest(tool="files.read_text_file", arguments={"path": "out/outside"}), wait=False
            )
            assert asked.waiting

    run(story())


@covers("servers.environment")
def test_the_everything_server_sees_an_environment_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-house")
    monkeypatch.setenv("SOMETHING_ELSE", "private")

    async def story() -> None:
        (spec,) = await review(tmp_path, real_server("everything", EVERYTHING_SERVER))
        async with desk(tmp_path, spec) as at:
            seen = json.loads(str(await at.value("everything.get-env")))
            assert {"ANTHROPIC_API_KEY", "SOMETHING_ELSE", "CURTAINWALL_HOME"}.isdisjoint(seen)
            assert seen["HOME"] == "/home/agent"
            assert await at.value("everything.get-sum", a=2, b=40) == "The sum of 2 and 40 is 42."
            weather = await at.value("everything.get-structured-content", location="Chicago")
            assert isinstance(weather, dict)
            assert "temperature" in weather
            image = await at.value("everything.get-tiny-image")
            assert "image/png" in str(image)
            assert "iVBORw0KGgo" not in str(image)

    run(story())


@covers("servers.killed-mid-call")
def test_a_real_server_killed_in_the_middle_of_a_call(tmp_path: Path) -> None:
    mark = str(tmp_path / "workspace")

    async def story() -> None:
        (spec,) = await review(tmp_path, real_server("everything", EVERYTHING_SERVER, "{workspace}"))
        async with desk(tmp_path, spec) as at:
            call = asyncio.create_task(at.failure("everything.trigger-long-running-operation", duration=30, steps=5))
            await until(lambda: len(processes_with(mark)) >= 2)
            await at.value("everything.echo", message="it runs")
            os.kill(max(processes_with(mark)), signal.SIGKILL)
            assert "died during the call" in await call
            assert await at.value("everything.echo", message="again") == "Echo: again"
        await until(lambda: not processes_with(mark))

    run(story())


@covers("servers.judged-like-our-own")
def test_the_git_server_works_in_the_workspace_and_asks_in_a_project(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    quiet = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    for words in (("init", "-q"), ("config", "user.name", "Ann"), ("config", "user.email", "ann@example.org")):
        subprocess.run(["git", *words], cwd=workspace, check=True, env=quiet)
    # Whoever owns the files outside, inside the sandbox everything belongs to somebody else.
    (workspace / "a.txt").write_text("hello\n")

    async def story() -> None:
        # Its names say nothing that could be relied on, so somebody who knows it has said what a log is.
        looks = ToolRoles(ToolEffect.INSPECT, (Meaning(argument="repo_path", roles=(Role.READ_PATH,)),))
        (spec,) = await review(tmp_path, replace(real_server("repo", GIT_SERVER, write=(WORKSPACE,)), tools={"git_log": looks}))
        async with desk(tmp_path, spec) as at:
            assert "a.txt" in str(await at.value("repo.git_status", repo_path="."))
            assert "staged" in str(await at.value("repo.git_add", repo_path=".", files=["a.txt"]))
            assert "committed" in str(await at.value("repo.git_commit", repo_path=".", message="first")).lower()
            assert "first" in str(await at.value("repo.git_log", repo_path="."))
            hook = workspace / ".git" / "hooks" / "pre-commit"
            assert not hook.exists()
        async with desk(tmp_path, spec, own=False) as at:
            assert "first" in str(await at.value("repo.git_log", repo_path="."))
            (workspace / "b.txt").write_text("more\n")
            told = await granted(at, "repo.git_add", repo_path=".", files=["b.txt"])
            assert "staged" in str(told)

    run(story())
