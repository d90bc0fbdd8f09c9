"""Moves out of the workspace by an agent that can change every file in it: what a human was shown arrives, or nothing does."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.host.user import local_user
from curtainwall.model import (
    Answer,
    AnswerApproval,
    ApprovalAsked,
    CallPermitted,
    CallRequest,
    CallRequested,
    Mode,
    SessionId,
    ToolResult,
    session_stream,
)
from tests.support.covers import covers
from tests.support.houses import events
from tests.support.in_process import Places, opened
from tests.support.talking import of, run

_ROUNDS = 20


@dataclass
class Desk:
    """A session in the agent's own workspace, a directory outside it, and a human who says yes to all that is asked."""

    wired: GatedSessions
    session: SessionId
    work: Path
    outside: Path

    async def asks(self, source: str = "tool", destination: str = "tool") -> tuple[Answer, str]:
        """Let the agent move something out; return the call that waits, and the card that the human is shown."""
        wanted = CallRequest(
            tool="filesystem.move_file", arguments={"source": str(self.work / source), "destination": str(self.outside / destination)}
        )
        waiting = await self.wired.gate.request(self.session, wanted, wait=False)
        assert waiting.waiting, waiting
        return waiting, self.asked[-1].shown

    async def approves(self, waiting: Answer) -> Answer:
        """Say yes to what was asked last, and let the call go on."""
        await self.wired.registry.send(self.session, AnswerApproval(by=local_user(), approval=self.asked[-1].approval, granted=True))
        return await self.wired.gate.resume(self.session, waiting.call)

    @property
    def asked(self) -> list[ApprovalAsked]:
        return of(ApprovalAsked, events(self.wired.registry, self.session))

    @property
    def arrived(self) -> list[str]:
        return sorted(os.listdir(self.outside))


@asynccontextmanager
async def desk(places: Places) -> AsyncGenerator[Desk]:
    outside = places.workspace.parent / "outside"
    outside.mkdir()
    async with open_gate(load_setup()) as wired:
        yield Desk(wired, await opened(wired, places.workspace), places.workspace, outside)


def at_the_desk(places: Places, story: Callable[[Desk], Awaitable[None]]) -> None:
    async def work() -> None:
        async with desk(places) as here:
            await story(here)

    run(work())


def value(answer: Answer) -> str:
    assert isinstance(answer.result, ToolResult), answer
    return str(answer.result.value)


def other_bytes(tool: Path) -> None:
    tool.write_text("harm\n")


def other_bytes_of_the_same_size_and_time(tool: Path) -> None:
    before = tool.stat()
    tool.write_text("harm\n")
    os.utime(tool, ns=(before.st_atime_ns, before.st_mtime_ns))


def another_file(tool: Path) -> None:
    tool.with_name("other").write_text("harm\n")
    tool.with_name("other").replace(tool)


def a_link(tool: Path) -> None:
    tool.unlink(missing_ok=True)  # a move that was faster has taken it away
    tool.symlink_to("/etc/hostname")


def a_directory(tool: Path) -> None:
    tool.unlink()
    tool.mkdir()


def the_right_to_run(tool: Path) -> None:
    tool.chmod(0o755)


@covers("approvals.move-is-bound-to-its-contents")
@pytest.mark.parametrize("swap", [other_bytes, other_bytes_of_the_same_size_and_time, another_file, a_link, a_directory, the_right_to_run])
def test_a_file_that_changes_between_question_and_answer_is_not_moved(places: Places, swap: Callable[[Path], None]) -> None:
    async def story(here: Desk) -> None:
        tool = here.work / "tool"
        tool.write_text("good\n")
        waiting, card = await here.asks()
        assert "moves a file of 5 bytes" in card.splitlines()
        swap(tool)
        dropped = await here.approves(waiting)
        assert dropped.verdict.because == ("call-dropped",)
        assert here.arrived == []
        await here.asks()
        assert len(here.asked) == 2, "what it means now is another question"

    at_the_desk(places, story)


@covers("approvals.move-is-bound-to-its-contents")
@pytest.mark.parametrize("swap", [other_bytes, another_file, a_link])
def test_a_file_that_changes_once_the_move_is_permitted_is_not_moved(places: Places, swap: Callable[[Path], None]) -> None:
    async def story(here: Desk) -> None:
        tool = here.work / "tool"

        async def swap_when_permitted(after: int) -> None:
            async for recorded in here.wired.registry.feed.follow(session_stream(here.session), after):
                if isinstance(recorded.event, CallPermitted):
                    swap(tool)
                    return

        for number in range(_ROUNDS):
            tool.unlink(missing_ok=True)
            tool.write_text("good\n")
            waiting, _ = await here.asks(destination=f"tool-{number}")
            swapping = asyncio.create_task(swap_when_permitted(len(events(here.wired.registry, here.session))))
            await here.approves(waiting)
            await swapping
        for arrived in here.outside.iterdir():
            assert not arrived.is_symlink()
            assert arrived.read_text() == "good\n", "whoever was faster, only what was shown arrives"

    at_the_desk(places, story)


@covers("approvals.move-is-bound-to-its-contents")
def test_a_second_name_or_an_open_file_changes_nothing_after_the_move(places: Places) -> None:
    async def story(here: Desk) -> None:
        tool = here.work / "tool"
        tool.write_text("good\n")
        os.link(tool, here.work / "second name")
        with tool.open("r+") as still_open:
            waiting, _ = await here.asks()
            assert value(await here.approves(waiting)).startswith("moved ")
            still_open.write("harm\n")
        (here.work / "second name").write_text("harm\n")
        assert (here.outside / "tool").read_text() == "good\n"
        assert not tool.exists()

    at_the_desk(places, story)


@covers("approvals.move-is-bound-to-its-contents")
@pytest.mark.parametrize(
    "change",
    [
        lambda kit: (kit / "bin" / "run").write_text("harm\n"),
        lambda kit: (kit / "bin" / "more").write_text("harm\n"),
        lambda kit: (kit / "bin" / "run").unlink(),
        lambda kit: (kit / "bin" / "run").rename(kit / "bin" / "ran"),
        lambda kit: (kit / "bin" / "run").chmod(0o755),
        lambda kit: (kit / "new").mkdir(),
        lambda kit: (kit / "bin" / "link").symlink_to("run"),
    ],
)
def test_a_directory_is_bound_to_everything_in_it(places: Places, change: Callable[[Path], object]) -> None:
    async def story(here: Desk) -> None:
        kit = here.work / "kit"
        (kit / "bin").mkdir(parents=True)
        (kit / "bin" / "run").write_text("good\n")
        (kit / "notes").write_text("be careful\n")
        waiting, card = await here.asks("kit", "kit")
        assert "moves a directory with 2 files of 16 bytes in all" in card.splitlines()
        change(kit)
        assert (await here.approves(waiting)).verdict.because == ("call-dropped",)
        assert here.arrived == []

    at_the_desk(places, story)


@covers("approvals.move-is-bound-to-its-contents")
def test_a_hook_of_the_project_is_what_was_shown(places: Places) -> None:
    async def work() -> None:
        project = places.workspace
        (project / ".git" / "hooks").mkdir(parents=True)
        draft = project / "draft"
        draft.write_text("good\n")
        async with open_gate(load_setup()) as wired:
            here = Desk(wired, await opened(wired, project, own=False, mode=Mode.ACCEPT_EDITS), project, project / ".git" / "hooks")
            waiting, card = await here.asks("draft", "pre-commit")
            assert "moves a file of 5 bytes" in card.splitlines()
            edit = CallRequest(tool="filesystem.write_file", arguments={"path": str(draft), "content": "harm\n"})
            assert (await wired.gate.request(here.session, edit, wait=False)).result is not None, "in this mode nobody is asked"
            assert (await here.approves(waiting)).verdict.because == ("call-dropped",)
            assert here.arrived == []

    run(work())


def test_a_file_that_is_made_after_the_question_is_not_moved(places: Places) -> None:
    async def story(here: Desk) -> None:
        waiting, card = await here.asks()
        assert "moves nothing: there is no such file yet" in card.splitlines()
        (here.work / "tool").write_text("harm\n")
        assert (await here.approves(waiting)).verdict.because == ("call-dropped",)
        assert here.arrived == []

    at_the_desk(places, story)


def test_a_directory_does_not_take_a_link_back_into_the_workspace_along(places: Places) -> None:
    async def story(here: Desk) -> None:
        (here.work / "kit").mkdir()
        (here.work / "kit" / "run").symlink_to(here.work / "later")
        wanted = CallRequest(
            tool="filesystem.move_file", arguments={"source": str(here.work / "kit"), "destination": str(here.outside / "kit")}
        )
        refused = await here.wired.gate.request(here.session, wanted, wait=False)
        assert "a link in it leads out of it" in refused.verdict.reason
        assert not here.asked

    at_the_desk(places, story)


def test_the_log_does_not_hold_the_digest_of_what_is_moved(places: Places) -> None:
    async def story(here: Desk) -> None:
        (here.work / "tool").write_text("1234")
        await here.asks()
        (call,) = of(CallRequested, events(here.wired.registry, here.session))
        assert set(call.subject.canonical) == {"source", "destination", "moves"}

    at_the_desk(places, story)
