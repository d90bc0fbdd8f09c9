"""What an agent writes over MCP runs as it was written, also where it looks like a secret; masks and known credentials are refused."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from curtainwall.facts import Masker
from curtainwall.model import AnswerApproval, ApprovalAsked, ApprovalQuery, SessionId, session_stream
from curtainwall.runtime import SessionGate, SessionRegistry, SystemClock
from curtainwall.session import lift
from curtainwall.store import SqliteStore
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools, filesystem_runners
from curtainwall.tools.mcp_in import McpServer
from tests.support.covers import covers
from tests.support.houses import ANN, house, open_session, run, until
from tests.support.mcp import bare, client, native, serving

LOGIN = 'SECRET_KEY = "django-insecure-4k#0q9!x"\nDB = "postgres://app:Tr0ub4dor-and-3@localhost/db"\nPWD=/app/src\n'
KNOWN = "kept-in-the-config-7531"
WRITE = "filesystem__write_file"


def knowing(**known: str) -> NativeTools:
    masker = Masker(b"k" * 32, known)
    return NativeTools(Catalogue(NATIVE_TOOLS), home="/home/nobody", masker=masker, runners=filesystem_runners(masker))


@asynccontextmanager
async def house_on(place: Path) -> AsyncGenerator[SessionRegistry]:
    """Open a house on the store of that directory, as one process after the other does."""
    async with SqliteStore.open(place / "home", SystemClock(), decode=lift) as store, house(store) as opened:
        yield opened


@asynccontextmanager
async def door(opened: SessionRegistry, session: SessionId, socket: Path) -> AsyncGenerator[Path]:
    """Serve a session's socket."""
    hands = native()
    async with McpServer(session, SessionGate(opened, hands), opened.feed, hands.catalogue.listing, opened.clock).open(socket):
        yield socket


def words(result: Any) -> str:
    return result.content[0].text


@covers("agents.programs-run-as-they-were-written")
def test_an_agent_writes_what_looks_like_a_secret_into_its_own_workspace(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served, client(served.socket) as mcp:
            path = served.workspace / "test_login.py"
            assert not (await mcp.call_tool(WRITE, {"path": str(path), "content": LOGIN})).is_error
            assert path.read_text() == LOGIN

    run(story())


@pytest.mark.parametrize(
    ("content", "told"),
    [("x [masked:password:1a2b3c4d] y", "masked"), (f"x {KNOWN} y", "known-credential"), (KNOWN.encode().hex(), "known")],
)
@covers("agents.masks-are-not-written-back")
def test_masks_and_known_credentials_are_refused(tmp_path: Path, content: str, told: str) -> None:
    async def story() -> None:
        async with serving(tmp_path, tools=knowing(shop=KNOWN)) as served, client(served.socket) as mcp:
            refused = await mcp.call_tool(WRITE, {"path": str(served.workspace / "a"), "content": content})
            assert refused.is_error
            assert told in words(refused)
            assert KNOWN not in words(refused)
            assert list(served.workspace.iterdir()) == []

    run(story())


def test_an_ordinary_word_that_serves_as_a_password_blocks_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, tools=knowing(pgpassword="postgres")) as served, client(served.socket) as mcp:
            path = served.workspace / "compose.yaml"
            assert not (await mcp.call_tool(WRITE, {"path": str(path), "content": "image: postgres:17\n"})).is_error
            assert path.read_text() == "image: postgres:17\n"

    run(story())


async def asked_for(opened: SessionRegistry, session: SessionId) -> ApprovalAsked:
    """Return the one ask that is open, as people see it."""

    def asks() -> list[ApprovalAsked]:
        return [it.event for it in opened.feed.read(session_stream(session)) if isinstance(it.event, ApprovalAsked)]

    # The lists have it as soon as it is committed, the feed a moment later.
    await until(lambda: len(opened.stores.index.approvals(ApprovalQuery())) == 1 and bool(asks()))
    return asks()[-1]


@covers("agents.programs-run-as-they-were-written", "session.nobody-is-asked-about-what-they-cannot-be-shown")
def test_a_human_is_asked_about_it_and_the_file_holds_what_was_written(tmp_path: Path) -> None:
    async def story() -> None:
        project = tmp_path / "project"
        project.mkdir()
        async with house_on(tmp_path) as opened:
            session = await open_session(opened, project, own=False)
            async with door(opened, session, tmp_path / "a.sock") as socket, client(socket) as mcp:
                call = {"path": str(project / "test_login.py"), "content": LOGIN}
                asking = asyncio.create_task(mcp.call_tool(WRITE, call))
                ask = await asked_for(opened, session)
                assert "Tr0ub4dor" not in ask.shown
                assert "hides [masked:url-password:" in ask.shown
                await opened.send(session, AnswerApproval(by=ANN, approval=ask.approval, granted=True))
                assert not (await asking).is_error
        assert (project / "test_login.py").read_text() == LOGIN

    run(story())


@covers("agents.programs-run-as-they-were-written")
def test_an_answer_given_while_nobody_was_there_counts_for_the_same_call_made_again(tmp_path: Path) -> None:
    async def story() -> None:
        project = tmp_path / "project"
        project.mkdir()
        call = {"path": str(project / "test_login.py"), "content": LOGIN}
        async with house_on(tmp_path) as opened:
            session = await open_session(opened, project, own=False)
            async with door(opened, session, tmp_path / "a.sock") as socket, bare(socket) as agent:
                await agent.greet()
                await agent.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": WRITE, "arguments": call}})
                ask = await asked_for(opened, session)
        async with house_on(tmp_path) as opened:
            await opened.send(session, AnswerApproval(by=ANN, approval=ask.approval, granted=True))
            gate = SessionGate(opened, native())
            for answer in await gate.resume_answered(session):
                assert answer.result is None
                assert "make the same call again" in answer.verdict.reason
            assert not (project / "test_login.py").exists()
            async with door(opened, session, tmp_path / "b.sock") as socket, client(socket) as mcp:
                assert not (await mcp.call_tool(WRITE, call)).is_error
        assert (project / "test_login.py").read_text() == LOGIN

    run(story())
