"""Copies that no pin names any more: they go, but for those that a hook runs from."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from curtainwall.model import HookReply
from curtainwall.tools.hooks import Copies, HookSettings, Pins, workspace_hooks
from tests.support.covers import covers
from tests.support.hooking import call, command, place, shell, user_hooks
from tests.support.houses import run
from tests.support.waiting import eventually


class Project:
    """A workspace whose hooks are trusted, and the directory of their copies."""

    def __init__(self, root: Path, name: str = "work") -> None:
        self.work = (root / name).resolve()
        (self.work / ".claude").mkdir(parents=True)
        (self.work / ".claude" / "settings.json").write_text(json.dumps({"hooks": {"PreToolUse": [{"hooks": [command("./check")]}]}}))
        (root / "home").mkdir(exist_ok=True)
        self.pins = Pins(root / "home" / "pins.json")
        self.copies = root / "home" / "pinned"

    def trust(self, body: str) -> str:
        shell(self.work / "check", body)
        digest = workspace_hooks(self.work, {}).digest
        self.pins.set(str(self.work), digest)
        return digest

    async def fire(self) -> HookReply:
        return await user_hooks(HookSettings(), pins=self.pins).before_call(call(), place(self.work))

    def left(self) -> set[str]:
        return {name for name in os.listdir(self.copies) if name != ".lock"}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@covers("hooks.old-copies-go")
def test_copies_go_when_their_pin_is_another_or_gone(project: Project, tmp_path: Path) -> None:
    other = Project(tmp_path, "other")
    kept, first = other.trust("exit 0"), project.trust("exit 0")
    run(other.fire())
    run(project.fire())
    second = project.trust("exit 0 # again")
    run(project.fire())
    assert project.left() == {kept, first, second}
    Copies.of(project.pins).sweep(project.pins)
    assert project.left() == {kept, second}
    project.pins.set(str(project.work), None)
    Copies.of(project.pins).sweep(project.pins)
    assert project.left() == {kept}
    assert run(other.fire()).says is None


@covers("hooks.old-copies-go")
def test_a_hook_that_runs_keeps_its_copy_until_it_has_ended(project: Project, tmp_path: Path) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    first = project.trust(f'touch {begun}; while [ ! -e {go} ]; do sleep 0.01; done; test -e "$0" && echo still there >&2; exit 2')

    async def story() -> HookReply:
        firing = asyncio.create_task(project.fire())
        await eventually(begun.exists)
        project.trust("exit 0")
        Copies.of(project.pins).sweep(project.pins)
        assert project.left() == {first}
        go.touch()
        return await firing

    reply = run(story())
    assert reply.says is not None
    assert reply.says.reason == "still there"
    Copies.of(project.pins).sweep(project.pins)
    assert project.left() == set()


@covers("hooks.old-copies-go")
def test_a_sweep_at_the_wrong_moment_makes_no_hook_fail(project: Project) -> None:
    """Trusted anew and swept while hooks are fired, again and again: they run, or are seen to be others, and never miss their copy."""
    effects: list[str | None] = []

    async def story() -> None:
        async with asyncio.timeout(50):
            for number in range(25):
                project.trust(f"exit 0 # {number}")
                firing = asyncio.gather(*(project.fire() for _ in range(4)))
                while not firing.done():
                    await asyncio.to_thread(project.trust, f"exit 0 # {number}, anew")
                    await asyncio.to_thread(Copies.of(project.pins).sweep, project.pins)
                effects.extend(None if reply.says is None else reply.says.effect for reply in await firing)
                # Nobody trusts anew beside these: whatever is swept meanwhile, they run.
                firing = asyncio.gather(*(project.fire() for _ in range(4)))
                while not firing.done():
                    await asyncio.to_thread(Copies.of(project.pins).sweep, project.pins)
                assert [reply.says for reply in await firing] == [None] * 4

    run(story())
    assert "deny" not in effects


def test_without_copies_there_is_nothing_to_sweep(project: Project) -> None:
    Copies.of(project.pins).sweep(project.pins)
    assert not project.copies.exists()
