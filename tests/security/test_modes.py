"""Modes that change while somebody thinks: a yes is for what may be done when it is given, and never for more than its card said."""

import asyncio
from pathlib import Path

import pytest

from curtainwall.facts import Masker
from curtainwall.host import Bubblewrap, find_bubblewrap
from curtainwall.model import AnswerApproval, CallRequest, ChangeMode, Mode, ToolResult
from curtainwall.runtime import SessionGate, SystemClock
from curtainwall.session import Rules
from curtainwall.store import MemoryStore
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools, shell_runners
from tests.support.houses import ANN, house, open_session, policy, run, until

COMMANDS_ASK = '@id("commands-ask") forbid (principal, action == Action::"run-command", resource) unless { context.approved };'


@pytest.mark.parametrize(("asked_in", "answered_in"), [(Mode.ACCEPT_EDITS, Mode.DEFAULT), (Mode.DEFAULT, Mode.ACCEPT_EDITS)])
def test_a_command_writes_only_where_it_might_when_it_was_asked_for_and_still_may(
    tmp_path: Path, asked_in: Mode, answered_in: Mode
) -> None:
    assert isinstance(find_bubblewrap(), Bubblewrap)
    project = tmp_path.resolve() / "project"
    project.mkdir()
    native = NativeTools(Catalogue(NATIVE_TOOLS), home="/home/nobody", masker=Masker(key=b"k" * 32, known={}), runners=shell_runners())

    async def work() -> ToolResult | None:
        async with house(MemoryStore(SystemClock()), Rules(policy=policy(COMMANDS_ASK))) as opened:
            session = await open_session(opened, project, own=False, mode=asked_in)
            wanted = CallRequest(tool="shell.run", arguments={"command": "touch planted"})
            async with opened.hold(session) as actor:
                asking = asyncio.create_task(SessionGate(opened, native).request(session, wanted))
                await until(lambda: actor.state.approvals)
                (approval,) = actor.state.approvals
                await opened.send(session, ChangeMode(by=ANN, mode=answered_in))
                await opened.send(session, AnswerApproval(by=ANN, approval=approval, granted=True))
                return (await asking).result

    result = run(work())
    assert result is not None
    assert "Read-only file system" in str(result.value)
    assert not (project / "planted").exists()


@pytest.mark.parametrize(("before", "after"), [(Mode.DEFAULT, Mode.PLAN), (Mode.ACCEPT_EDITS, Mode.PLAN), (Mode.BYPASS, Mode.DEFAULT)])
def test_a_command_that_runs_does_not_outlive_the_mode_that_let_it_write(tmp_path: Path, before: Mode, after: Mode) -> None:
    assert isinstance(find_bubblewrap(), Bubblewrap)
    place, own = tmp_path.resolve() / "place", before is Mode.DEFAULT
    place.mkdir()
    native = NativeTools(Catalogue(NATIVE_TOOLS), home="/home/nobody", masker=Masker(key=b"k" * 32, known={}), runners=shell_runners())
    stubborn = "trap '' TERM; setsid sh -c 'while :; do date >>child; done' & while :; do date >>own; done"

    def sizes() -> list[int]:
        return [(place / name).stat().st_size if (place / name).exists() else 0 for name in ("child", "own")]

    async def work() -> ToolResult | None:
        async with house(MemoryStore(SystemClock()), Rules(policy=policy())) as opened:
            session = await open_session(opened, place, own=own, mode=before)
            wanted = CallRequest(tool="shell.run", arguments={"command": stubborn, "timeout": 3600})
            running = asyncio.create_task(SessionGate(opened, native).request(session, wanted))
            await until(lambda: all(sizes()))
            # A freer mode, or the same, ends nothing.
            await opened.send(session, ChangeMode(by=ANN, mode=Mode.BYPASS))
            so_far = sizes()
            await until(lambda: all(now > then for now, then in zip(sizes(), so_far, strict=True)))
            await opened.send(session, ChangeMode(by=ANN, mode=after))
            return (await running).result

    result = run(work())
    assert result is not None
    assert not result.ok
    assert f"the mode became `{after}` while it ran" in str(result.value)
    left = sizes()
    run(until_two_more_commands(tmp_path))
    assert sizes() == left, "nothing of it goes on"


async def until_two_more_commands(tmp_path: Path) -> None:
    """Let as much time pass as two commands take."""
    for _ in range(2):
        process = await asyncio.create_subprocess_exec("sh", "-c", "date", cwd=tmp_path, stdout=asyncio.subprocess.DEVNULL)
        await process.wait()
