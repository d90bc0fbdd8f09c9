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
