"""Attacks on undo: links and mounts in the way of what is taken back, names that act on a terminal, and calls of an agent's own."""

import os
import shutil
from pathlib import Path

import pytest

from curtainwall.model import APPLY_CHANGES, TAKES_BACK, CallRequest, CommandRefused, Effect, StepsAsked
from curtainwall.operations.history import plan_lines
from tests.support.covers import covers
from tests.support.reviews import ANN, Reviewed, reviewed
from tests.support.views import plant, tree_of
from tests.support.waiting import run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "project"
    plant(made, {"docs/c.md": "# c\n", "a.txt": "one\n"})
    return made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path.resolve() / "home"


def edit(root: Path) -> None:
    (root / "docs/c.md").write_text("changed\n")
    (root / "docs/new.md").write_text("new\n")


async def accepted(here: Reviewed) -> None:
    await here.work(edit)
    await here.answer()


@covers("undo.writes-nothing-outside")
@pytest.mark.parametrize("force", [False, True])
def test_a_link_in_the_place_of_a_directory_leads_undo_nowhere(tmp_path: Path, home: Path, project: Path, force: bool) -> None:
    outside = tmp_path.resolve() / "outside"
    plant(outside, {"c.md": "changed\n", "new.md": "new\n"})

    async def story() -> None:
        async with reviewed(home, project) as here:
            await accepted(here)
            before = tree_of(outside)
            shutil.rmtree(project / "docs")
            (project / "docs").symlink_to(outside)
            history = here.wired.history()
            if force:
                plan = await history.plan(here.session, ANN, StepsAsked(force=True))
                assert [obstacle.path for obstacle in plan.steps[0].obstacles] == ["docs/c.md"]
                (outcome,) = await history.carry_out(plan, ANN)
                assert not outcome.is_done
            else:
                with pytest.raises(CommandRefused, match=r"`docs/c\.md`"):
                    await history.plan(here.session, ANN, StepsAsked())
            assert tree_of(outside) == before
            assert os.readlink(project / "docs") == str(outside)

    run(story())


@covers("undo.one-mechanism")
def test_an_agent_cannot_take_anything_back_by_itself(home: Path, project: Path) -> None:
    async def story() -> None:
        async with reviewed(home, project) as here:
            await accepted(here)
            now = tree_of(project)
            digest = here.state.proposal.changes if here.state.proposal is not None else ""
            request = CallRequest(tool=APPLY_CHANGES, arguments={"changes": digest, TAKES_BACK: "c1"})
            answer = await here.wired.gate.request(here.session, request, wait=False)
            assert answer.verdict.effect is Effect.DENY
            assert tree_of(project) == now

    run(story())


@covers("review.cards-cannot-be-forged")
def test_names_and_contents_act_on_no_terminal_when_undo_shows_them(home: Path, project: Path) -> None:
    def nasty(root: Path) -> None:
        (root / "x\x1b[2J\nfile: y").write_text("\x1b]0;title\x07\n\rgone\n")

    async def story() -> None:
        async with reviewed(home, project) as here:
            await here.work(nasty)
            await here.answer()
            (project / "x\x1b[2J\nfile: y").write_text("mine \x1b[2J\n")
            plan = await here.wired.history().plan(here.session, ANN, StepsAsked(force=True))
            lines = plan_lines(plan)
            assert not any(character in line for line in lines for character in "\x1b\x07\n\r")
            assert any("overwritten" in line for line in lines)
            with pytest.raises(CommandRefused, match="no longer as this step left it") as refused:
                await here.wired.history().plan(here.session, ANN, StepsAsked())
            assert "\x1b" not in str(refused.value)

    run(story())
