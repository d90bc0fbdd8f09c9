"""Containers in review mode: they have a view of the project, and nothing in them writes there between turns."""

import asyncio
from pathlib import Path

from curtainwall.agents.external.container import ContainerExtras, ContainerLimits, PlainAgent
from curtainwall.model import ChangeMode, ChangeSet, Mode, Place, SessionId, Workspace, session_stream
from tests.integration.container.test_modes import AFTERWARDS, STUBBORN, grows, late_by, project_in, worker
from tests.support.contained import Contained, contained
from tests.support.covers import covers
from tests.support.docker_engine import DockerEngine
from tests.support.houses import ANN
from tests.support.talking import run
from tests.support.views import tree_of

LEAVES_ONE = "setsid sh -c 'while :; do echo beat >>beat; sleep 0.02; done' >/dev/null 2>&1 & echo left; until [ -e beat ]; do :; done"
STILL_GROWS = "had=$(wc -l <beat); for _ in 1 2 3 4 5 6 7 8 9; do [ $(wc -l <beat) -gt $had ] && echo grows && break; sleep 0.5; done"
STOPPED = "had=$(wc -l <beat); sleep 0.5; [ $(wc -l <beat) -eq $had ] && echo stopped"


async def changes_of(rig: Contained, session: SessionId, project: Workspace) -> ChangeSet:
    place = Place(session=session, workspace=project, mode=Mode.REVIEW, agent="shell")
    return await asyncio.to_thread(rig.views.changes, place)


@covers("review.nothing-writes-between-turns")
def test_what_an_agent_leaves_running_in_its_view_is_frozen_between_turns_if_it_is_kept(
    docker_engine: DockerEngine, short_path: Path
) -> None:
    async def story() -> None:
        shell, extras = PlainAgent("shell", ("sh",)), ContainerExtras(keeps_running=True)
        limits = ContainerLimits(pause_after=0.1, remove_after=600)
        async with contained(docker_engine, short_path / "h", shell, limits=limits, extras=extras) as rig:
            project = project_in(short_path / "project")
            session = await rig.begin(SessionId(rig.house.mint()), "shell", project, mode=Mode.REVIEW)
            assert (await rig.say(session, LEAVES_ONE)).text == "left\n"
            assert [each.state for each in await rig.engine.list_containers(session)] == ["paused"]
            first, changes = await rig.container(session), await changes_of(rig, session, project)
            assert [change.path for change in changes.changes] == ["beat"]
            assert (await changes_of(rig, session, project)).digest == changes.digest
            # The next turn takes up the same container, with what runs in it.
            assert (await rig.say(session, STILL_GROWS)).text == "grows\n"
            assert await rig.container(session) == first
            assert tree_of(project.path) == {}

    run(story())


@covers("review.nothing-writes-between-turns")
def test_what_an_agent_leaves_running_in_its_view_ends_with_the_turn(docker_engine: DockerEngine, short_path: Path) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path / "h", PlainAgent("shell", ("sh",))) as rig:
            project = project_in(short_path / "project")
            session = await rig.begin(SessionId(rig.house.mint()), "shell", project, mode=Mode.REVIEW)
            assert (await rig.say(session, LEAVES_ONE)).text == "left\n"
            assert await rig.engine.list_containers(session) == []
            assert [change.path for change in (await changes_of(rig, session, project)).changes] == ["beat"]
            assert (await rig.say(session, STOPPED)).text == "stopped\n"
            assert tree_of(project.path) == {}

    run(story())


@covers("container.stricter-at-work")
def test_review_mode_takes_the_project_from_an_agent_at_work_and_its_turn_goes_on_in_a_view(
    docker_engine: DockerEngine, short_path: Path
) -> None:
    async def story() -> None:
        agent, limits = worker(STUBBORN + AFTERWARDS), ContainerLimits(grace=20)
        async with contained(docker_engine, short_path / "h", agent, limits=limits) as rig:
            project = project_in(short_path / "project")
            place = Path(project.path)
            session = await rig.begin(SessionId(rig.house.mint()), "worker", project, mode=Mode.ACCEPT_EDITS)
            before = rig.house.feed.head(session_stream(session))
            await rig.tell(session, "work")
            await grows(place / "child")
            await rig.house.send(session, ChangeMode(by=ANN, mode=Mode.REVIEW))
            turn = await rig.ended(session, before)
            assert turn.is_done, turn.end.failure
            assert "it writes" in turn.text
            assert "the mode is `review` now" in turn.text
            assert not (place / "more").exists()
            assert late_by(rig, session, place / "child") < 10_000

    run(story())


@covers("container.stricter-at-work")
def test_leaving_review_mode_takes_the_view_from_an_agent_at_work(docker_engine: DockerEngine, short_path: Path) -> None:
    async def story() -> None:
        async with contained(docker_engine, short_path / "h", worker(STUBBORN + AFTERWARDS), limits=ContainerLimits(grace=20)) as rig:
            project = project_in(short_path / "project")
            session = await rig.begin(SessionId(rig.house.mint()), "worker", project, mode=Mode.REVIEW)
            before = rig.house.feed.head(session_stream(session))
            await rig.tell(session, "work")
            await grows(Path(rig.home / "views" / "sessions" / session / "view" / "copy" / "child"))
            assert tree_of(project.path) == {}
            await rig.house.send(session, ChangeMode(by=ANN, mode=Mode.PLAN))
            turn = await rig.ended(session, before)
            assert turn.is_done, turn.end.failure
            assert "it only reads" in turn.text
            assert tree_of(project.path) == {}

    run(story())
