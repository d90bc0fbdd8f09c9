"""The SDK's own client on a session's socket, in both eras: list, read, write, be refused, wait for a human."""

import asyncio
from pathlib import Path

import pytest

from curtainwall.model import AnswerApproval, ApprovalAsked, CallDropped
from curtainwall.runtime import SystemClock
from curtainwall.session import lift
from curtainwall.store import SqliteStore
from tests.support.covers import covers
from tests.support.houses import ANN, events, kinds, run, until
from tests.support.mcp import ERAS, Served, bare, calling, client, serving


def asked(served: Served) -> ApprovalAsked | None:
    return next((event for event in reversed(events(served.house, served.session)) if isinstance(event, ApprovalAsked)), None)


@pytest.mark.parametrize("era", ERAS)
@covers("mcp-in.both-eras")
def test_a_client_lists_reads_and_writes(era: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served, client(served.socket, era) as mcp:
            assert mcp.protocol_version == ("2025-11-25" if era == "legacy" else "2026-07-28")
            listed = {tool.name: tool for tool in (await mcp.list_tools()).tools}
            assert listed["filesystem__read_file"].input_schema["required"] == ["path"]
            assert listed["filesystem__read_file"].annotations.read_only_hint
            file = served.workspace / "hello.txt"
            path = str(file)
            wrote = await mcp.call_tool("filesystem__write_file", {"path": path, "content": "hello\n"})
            assert not wrote.is_error
            assert file.read_text() == "hello\n"
            read = await mcp.call_tool("filesystem.read_file", {"path": path})
            assert (read.content[0].text, read.is_error) == ("hello\n", False)
            about = await mcp.call_tool("filesystem__get_file_info", {"path": path})
            assert about.structured_content["size"] == 6

    run(story())


@pytest.mark.parametrize("era", ERAS)
@covers("mcp-in.refusals-say-why")
def test_a_refusal_names_the_rule_the_reason_and_a_way_out(era: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served, client(served.socket, era) as mcp:
            unknown = await mcp.call_tool("filesystem__raed_file", {"path": "x"})
            assert unknown.is_error
            assert "`unknown-tool`" in unknown.content[0].text
            assert "did you mean `filesystem.read_file`" in unknown.content[0].text
            wrong = await mcp.call_tool("filesystem__read_file", {"pfad": "x"})
            assert wrong.is_error
            assert "`invalid-arguments`" in wrong.content[0].text
            assert "Instead: " in wrong.content[0].text

    run(story())


@pytest.mark.parametrize("era", ERAS)
@covers("mcp-in.progress-while-asked")
def test_a_call_that_waits_for_a_human_tells_of_progress_and_gets_its_result(era: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    notes: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        notes.append((progress, message))

    async def story() -> None:
        async with serving(tmp_path) as served, client(served.socket, era) as mcp:
            arguments = {"path": str(outside), "content": "x"}
            call = asyncio.create_task(mcp.call_tool("filesystem__write_file", arguments, progress_callback=hear))
            approval = await until(lambda: asked(served))
            await until(lambda: notes)
            assert not outside.exists()
            await served.house.send(served.session, AnswerApproval(by=ANN, approval=approval.approval, granted=True))
            result = await call
            assert not result.is_error
            assert outside.read_text() == "x"
            assert notes == [(0.001, "waiting for a human to answer")]
            assert approval.approval not in str(notes)

    run(story())


@pytest.mark.parametrize("era", ERAS)
def test_a_denial_comes_back_as_a_result_with_the_reason(era: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served, client(served.socket, era) as mcp:
            call = asyncio.create_task(mcp.call_tool("filesystem__write_file", {"path": str(tmp_path / "o"), "content": "x"}))
            approval = await until(lambda: asked(served))
            answer = AnswerApproval(by=ANN, approval=approval.approval, granted=False, reason="not there")
            await served.house.send(served.session, answer)
            result = await call
            assert result.is_error
            assert "`denied-by-human`: a human denied it: not there" in result.content[0].text
            assert approval.approval not in result.content[0].text

    run(story())


@covers("mcp-in.cancel-drops")
@pytest.mark.parametrize("era", ERAS)
def test_a_call_that_the_client_cancels_is_dropped_and_its_ask_withdrawn(era: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served, client(served.socket, era) as mcp:
            arguments = {"path": str(tmp_path / "o"), "content": "x"}
            call = asyncio.create_task(mcp.call_tool("filesystem__write_file", arguments))
            await until(lambda: asked(served))
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await until(lambda: "ApprovalWithdrawn" in kinds(served.house, served.session))
            assert any(isinstance(event, CallDropped) for event in events(served.house, served.session))
            assert not (await mcp.call_tool("filesystem__list_allowed_directories", {})).is_error

    run(story())


@covers("mcp-in.agent-may-come-back")
def test_an_ask_outlives_its_connection_and_the_answer_is_kept_for_the_same_call(tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    arguments = {"path": str(outside), "content": "x"}

    # The SDK's client says `cancelled` when its caller gives up, so the agent that dies is played by hand.
    async def story() -> None:
        async with SqliteStore.open(tmp_path / "home", SystemClock(), decode=lift) as store, serving(tmp_path, stores=store) as served:
            async with bare(served.socket) as socket:
                await socket.send(calling("filesystem__write_file", arguments))
                approval = await until(lambda: asked(served))
            await until(lambda: not served.door.connections)
            await served.house.send(served.session, AnswerApproval(by=ANN, approval=approval.approval, granted=True))
            await until(lambda: "GrantGiven" in kinds(served.house, served.session))
            assert not outside.exists()
            async with client(served.socket) as mcp:
                result = await mcp.call_tool("filesystem__write_file", arguments)
            assert not result.is_error
            assert outside.read_text() == "x"
            assert kinds(served.house, served.session).count("ApprovalAsked") == 1

    run(story())


@covers("mcp-in.agent-may-come-back")
def test_an_agent_that_comes_back_before_the_answer_takes_the_place_of_the_one_that_left(tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    frame = calling("filesystem__write_file", {"path": str(outside), "content": "x"}, 7)

    async def story() -> None:
        async with serving(tmp_path) as served:
            async with bare(served.socket) as socket:
                await socket.send(frame)
                approval = await until(lambda: asked(served))
            await until(lambda: not served.door.connections)
            async with bare(served.socket) as socket:
                await socket.send(frame)
                await until(lambda: "CallDropped" in kinds(served.house, served.session))
                await served.house.send(served.session, AnswerApproval(by=ANN, approval=approval.approval, granted=True))
                reply = await socket.next()
            assert reply["result"]["isError"] is False
            assert kinds(served.house, served.session).count("CallPermitted") == 1

    run(story())
