"""Standing approvals of tools whose arguments nobody judges: a yes to one call is a yes to no other."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from pydantic import JsonValue

from curtainwall.model import (
    Answer,
    AnswerApproval,
    ApprovalAsked,
    Batch,
    CallRequest,
    Grant,
    GrantGiven,
    GrantId,
    GrantScope,
    Meaning,
    Role,
    SessionId,
    ToolEffect,
    Write,
    project_stream,
)
from curtainwall.tools.servers import ToolRoles
from tests.support.covers import covers
from tests.support.houses import ANN, events, open_session, run
from tests.support.servers import Desk, bad_server, desk, review
from tests.support.talking import of

pytestmark = pytest.mark.usefixtures("bubblewrap")

SENDS = ToolRoles(ToolEffect.SEND)
READS = ToolRoles(ToolEffect.INSPECT, (Meaning(argument="path", roles=(Role.READ_PATH,)),))
LASTING = pytest.mark.parametrize("scope", [GrantScope.SESSION, GrantScope.PROJECT])


def in_a_session(root: Path, story: Callable[[Desk], Awaitable[None]]) -> None:
    async def work() -> None:
        specs = await review(root, bad_server("pay", tools={"echo": SENDS, "read_file": READS}))
        async with desk(root, *specs, own=False) as at:
            await story(at)

    run(asyncio.wait_for(work(), 100))


async def call(at: Desk, tool: str, *, session: SessionId | None = None, **arguments: JsonValue) -> Answer:
    return await at.gate.request(session or at.session, CallRequest(tool=tool, arguments=arguments), wait=False)


async def approve(at: Desk, waiting: Answer, scope: GrantScope) -> str:
    """Say yes to what was asked last, let the call run, and return its card."""
    assert waiting.waiting, waiting
    asked = of(ApprovalAsked, events(at.house, at.session))[-1]
    await at.house.send(at.session, AnswerApproval(by=ANN, approval=asked.approval, granted=True, scope=scope))
    assert (await at.gate.resume(at.session, waiting.call)).result is not None
    return asked.shown


def ran(answer: Answer) -> bool:
    return answer.result is not None and not answer.waiting


@LASTING
@covers("approvals.external-tools-are-approved-call-by-call")
def test_a_yes_to_one_payment_is_none_to_another(tmp_path: Path, scope: GrantScope) -> None:
    async def story(at: Desk) -> None:
        card = await approve(at, await call(at, "pay.echo", text="1 to bob"), scope)
        assert "a yes for the session or the project is for exactly this call" in card
        assert ran(await call(at, "pay.echo", text="1 to bob")), "the same call, as often as it comes"
        assert (await call(at, "pay.echo", text="1000000 to eve")).waiting

    in_a_session(tmp_path, story)


@covers("approvals.external-tools-are-approved-call-by-call")
def test_another_session_of_the_project_has_the_same_call_and_no_other(tmp_path: Path) -> None:
    async def story(at: Desk) -> None:
        await approve(at, await call(at, "pay.echo", text="1 to bob"), GrantScope.PROJECT)
        other = await open_session(at.house, at.workspace, own=False)
        assert ran(await call(at, "pay.echo", session=other, text="1 to bob"))
        assert (await call(at, "pay.echo", session=other, text="1 to eve")).waiting

    in_a_session(tmp_path, story)


@covers("approvals.external-tools-are-approved-call-by-call")
def test_a_yes_to_a_path_is_not_passed_on_to_a_server(tmp_path: Path) -> None:
    async def story(at: Desk) -> None:
        notes = tmp_path / "notes.txt"
        notes.write_text("noted")
        await approve(at, await call(at, "filesystem.read_file", path=str(notes)), GrantScope.SESSION)
        assert ran(await call(at, "filesystem.read_file", path=str(notes)))
        asked = await call(at, "pay.read_file", path=str(notes))
        await approve(at, asked, GrantScope.SESSION)
        assert ran(await call(at, "pay.read_file", path=str(notes)))

    in_a_session(tmp_path, story)


@covers("approvals.old-tool-grants-lapse")
def test_a_grant_for_a_whole_tool_that_an_earlier_version_gave_answers_nothing(tmp_path: Path) -> None:
    async def story(at: Desk) -> None:
        waiting = await call(at, "pay.echo", text="1 to bob")
        (asked,) = of(ApprovalAsked, events(at.house, at.session))
        await at.gate.drop(at.session, waiting.call, "it comes again below")
        whole = Grant(id=GrantId("g0"), scope=GrantScope.PROJECT, covers=asked.covers, by=ANN, at=0)
        stream = project_stream(str(at.workspace))
        await at.house.stores.log.append(Batch((Write(stream, at.house.stores.log.head(stream), (GrantGiven(at=0, grant=whole),)),)))
        other = await open_session(at.house, at.workspace, own=False)
        assert (await call(at, "pay.echo", session=other, text="1 to bob")).waiting
        assert "without its arguments" in whole.lapsed

    in_a_session(tmp_path, story)
