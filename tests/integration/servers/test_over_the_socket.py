"""An MCP client on a session's socket, and a server of others behind it: through both protocols and the gate between."""

from collections.abc import Callable
from pathlib import Path

import pytest

from curtainwall.tools.mcp_in import McpServer
from tests.support.covers import covers
from tests.support.houses import run
from tests.support.mcp import ERAS, client
from tests.support.real_parts import EVERYTHING_SERVER
from tests.support.servers import desk, real_server, review


@pytest.fixture(autouse=True)
def _parts(real_part: Callable[[str], str], bubblewrap: str) -> None:
    real_part("mcp-servers")


@pytest.mark.parametrize("era", ERAS)
@covers("servers.progress")
def test_a_client_uses_a_server_of_others_and_hears_of_its_progress(era: str, tmp_path: Path) -> None:
    heard: list[tuple[float, float | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total))

    async def story() -> None:
        async with desk(tmp_path, *await review(tmp_path, real_server("everything", EVERYTHING_SERVER))) as at:
            door = McpServer(at.session, at.gate, at.house.feed, at.hub.listing, at.house.clock)
            async with door.open(tmp_path / "s"), client(tmp_path / "s", era) as mcp:
                listed = {tool.name: tool for tool in (await mcp.list_tools()).tools}
                assert "The server `everything` says: " in str(listed["everything__get-sum"].description)
                told = await mcp.call_tool("everything__get-sum", {"a": 1, "b": 2})
                assert told.content[0].text == "The sum of 1 and 2 is 3."
                wrong = await mcp.call_tool("everything__get-sum", {"a": 1})
                assert wrong.is_error
                long = await mcp.call_tool(
                    "everything__trigger-long-running-operation", {"duration": 1, "steps": 3}, progress_callback=hear
                )
                assert not long.is_error

    run(story())
    assert len(heard) >= 2
