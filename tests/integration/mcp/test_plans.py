"""A plan proposed by an MCP client, as an agent in a container does it."""

import asyncio
from pathlib import Path
from typing import Any

from curtainwall.model import AnswerApproval, ApprovalAsked
from curtainwall.runtime import SessionGate, SystemClock
from curtainwall.store import MemoryStore
from curtainwall.tools.mcp_in import McpServer
from tests.support.covers import covers
from tests.support.houses import ANN, FarSide, events, house, open_session, run, tools, until
from tests.support.mcp import client


def written(path: Path) -> dict[str, Any]:
    return {"path": str(path), "content": path.name}


@covers("mcp.plans-work-over-the-socket")
def test_a_plan_over_the_socket_is_one_question_and_its_steps_then_run(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()

    async def story() -> None:
        far = FarSide(tmp_path / "far")
        async with house(MemoryStore(SystemClock())) as rooms:
            hands = tools(far)
            session = await open_session(rooms, project, own=False)
            door = McpServer(session, SessionGate(rooms, hands), rooms.feed, hands.listing, rooms.clock)
            socket = tmp_path / "one.sock"
            async with door.open(socket), client(socket) as agent:
                steps = [{"tool": "filesystem.write_file", "arguments": written(project / name)} for name in "ab"]
                plan = asyncio.create_task(agent.call_tool("session__propose_plan", {"steps": steps}))

                def asked() -> list[ApprovalAsked]:
                    return [event for event in events(rooms, session) if isinstance(event, ApprovalAsked)]

                await until(asked)
                assert len(asked()[0].covers) == 2
                await rooms.send(session, AnswerApproval(by=ANN, approval=asked()[0].approval, granted=True))
                assert not (await plan).is_error
                for name in "ba":
                    assert not (await agent.call_tool("filesystem__write_file", written(project / name))).is_error
                third = asyncio.create_task(agent.call_tool("filesystem__write_file", written(project / "c")))
                await until(lambda: len(asked()) == 2)
                third.cancel()
        assert [Path(line.split()[1]).name for line in far.lines if "write_file" in line] == ["b", "a"]

    run(story())
