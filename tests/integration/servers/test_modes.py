"""Plan mode while a server runs that may change files: that one ends at once, whatever it is doing, and only one that reads may start."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from curtainwall.model import ChangeMode, Mode
from curtainwall.tools.servers import CannotStart, LaunchMachine, ServerSpec
from curtainwall.tools.servers.launch import confinement_of
from tests.support.covers import covers
from tests.support.houses import ANN, run, until
from tests.support.servers import FREE, Desk, bad_server, desk, place_at, processes_with, review

pytestmark = pytest.mark.usefixtures("bubblewrap")
TO_PLAN = ChangeMode(by=ANN, mode=Mode.PLAN)


@pytest.fixture
def mark(tmp_path: Path) -> str:
    return f"mark-{tmp_path.name}-{os.getpid()}"


async def writing(tmp_path: Path, mark: str, *more: str) -> ServerSpec:
    """Return a server that may write to the workspace and leaves a process there which never stops doing so."""
    [spec] = await review(tmp_path, bad_server("bad", mark, write=("{workspace}",), tools={"echo": FREE, "hang": FREE}))
    return replace(spec, args=(*spec.args, "--writes", "{workspace}/child", *more))


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


async def grows(path: Path) -> None:
    """Return when somebody writes to a file right now."""
    size = size_of(path)
    await until(lambda: size_of(path) > size)


async def is_over(at: Desk, mark: str) -> int:
    """Return how long the file is when nothing of the server is left."""
    await until(lambda: not processes_with(mark))
    return size_of(at.workspace / "child")


@covers("servers.stricter-ends-them")
def test_plan_mode_ends_a_server_that_may_write_and_the_next_one_can_only_read(mark: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path, await writing(tmp_path, mark)) as at:
            assert await at.value("bad.echo", text="hello") == "hello"
            await grows(at.workspace / "child")
            await at.house.send(at.session, ChangeMode(by=ANN, mode=Mode.ACCEPT_EDITS))
            await grows(at.workspace / "child")
            await at.house.send(at.session, TO_PLAN)
            size = await is_over(at, mark)
            assert await at.value("bad.echo", text="again") == "again"
            assert processes_with(mark), "another one runs"
            assert size_of(at.workspace / "child") == size

    run(asyncio.wait_for(story(), 100))


@pytest.mark.parametrize(("tool", "arguments", "more"), [("hang", {}, ()), ("echo", {"text": "hello"}, ("--silent",))])
@covers("servers.stricter-ends-them")
def test_plan_mode_waits_neither_for_a_call_nor_for_a_server_that_takes_its_time_to_start(
    mark: str, tmp_path: Path, tool: str, arguments: dict[str, str], more: tuple[str, ...]
) -> None:
    async def story() -> None:
        async with desk(tmp_path, await writing(tmp_path, mark, *more)) as at:
            calling = asyncio.create_task(at.failure(f"bad.{tool}", **arguments))
            await grows(at.workspace / "child")
            await at.house.send(at.session, TO_PLAN)
            assert "the mode became `plan`" in await calling
            await is_over(at, mark)

    run(asyncio.wait_for(story(), 100))


@covers("servers.stricter-ends-them")
def test_a_call_from_before_starts_no_server_with_the_rights_of_then(mark: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path, await writing(tmp_path, mark)) as at:
            supervisor = at.servers.supervisor
            await supervisor.change_mode(at.session, Mode.PLAN)
            with pytest.raises(CannotStart, match="the mode became `plan`"):
                async with supervisor.using("bad", place_at(at.workspace, at.session)):
                    pass
            assert not processes_with(mark)
            await supervisor.change_mode(at.session, Mode.DEFAULT)
            async with supervisor.using("bad", place_at(at.workspace, at.session)):
                await grows(at.workspace / "child")

    run(asyncio.wait_for(story(), 100))


@covers("servers.stricter-ends-them", "views.servers-cannot-change-the-project")
def test_in_review_mode_a_server_sees_the_project_and_cannot_change_it(mark: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path, await writing(tmp_path, mark)) as at:
            supervisor = at.servers.supervisor
            async with supervisor.using("bad", place_at(at.workspace, at.session, own=False)):
                await grows(at.workspace / "child")
            await supervisor.change_mode(at.session, Mode.REVIEW)
            size = await is_over(at, mark)
            with pytest.raises(CannotStart, match="the mode became `review`"):
                async with supervisor.using("bad", place_at(at.workspace, at.session, own=False)):
                    pass
            async with supervisor.using("bad", place_at(at.workspace, at.session, own=False, mode=Mode.REVIEW)):
                assert processes_with(mark), "another one runs"
                await supervisor.change_mode(at.session, Mode.PLAN)
                assert await is_over(at, mark) == size

    run(asyncio.wait_for(story(), 100))


def test_in_review_mode_only_what_is_outside_the_project_stays_writable(tmp_path: Path) -> None:
    for name in ("work/inside", "cache"):
        (tmp_path / name).mkdir(parents=True)
    root = Path(os.path.realpath(tmp_path))
    write = (str(root / "cache"), str(root / "work/inside"), "{workspace}")
    spec, machine = ServerSpec(name="s", command="/usr/bin/true", write=write), LaunchMachine(str(root))
    confinement = confinement_of(spec, place_at(root / "work", own=False, mode=Mode.REVIEW), machine)
    assert confinement.writable == (str(root / "cache"),)
    assert {path for path, _ in confinement.readable} == {str(root / "work"), str(root / "work/inside")}
    above = replace(spec, write=(str(root),))
    assert confinement_of(above, place_at(root / "work", own=False, mode=Mode.REVIEW), machine).writable == ()
    assert confinement_of(above, place_at(root / "work", mode=Mode.REVIEW), machine).writable == (str(root),)
