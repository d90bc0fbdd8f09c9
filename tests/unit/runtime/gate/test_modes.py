"""Calls that run while the mode becomes stricter: those that change something end, others go on."""

import asyncio
from pathlib import Path

import pytest

from curtainwall.model import ChangeMode, Mode, ToolEffect, ToolResult
from curtainwall.runtime import SystemClock
from curtainwall.runtime.gate.modes import within_mode
from curtainwall.store import MemoryStore
from tests.support.houses import ANN, house, open_session, run

DONE = ToolResult(ok=True, value="done")


async def outcome(effect: ToolEffect, before: Mode, *modes: Mode) -> ToolResult:
    """Return what comes of a call that runs while the mode changes, and would be done when all that has happened."""
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def call() -> ToolResult:
        begun.set()
        await may_end.wait()
        return DONE

    async with house(MemoryStore(SystemClock())) as opened:
        session = await open_session(opened, Path("/w"), mode=before)
        async with opened.hold(session) as actor:
            running = asyncio.create_task(within_mode(actor, effect, before, call()))
            await begun.wait()
            for mode in modes:
                await opened.send(session, ChangeMode(by=ANN, mode=mode))
            # Whatever ends it does so before anything else comes to pass.
            for _ in range(10):
                await asyncio.sleep(0)
            may_end.set()
            return await running


@pytest.mark.parametrize(
    ("effect", "before", "modes"),
    [
        (ToolEffect.EXECUTE, Mode.DEFAULT, (Mode.PLAN,)),
        (ToolEffect.EXECUTE, Mode.ACCEPT_EDITS, (Mode.DEFAULT,)),
        (ToolEffect.EXECUTE, Mode.BYPASS, (Mode.ACCEPT_EDITS,)),
        (ToolEffect.EXECUTE, Mode.DEFAULT, (Mode.PLAN, Mode.BYPASS)),
        (ToolEffect.MODIFY, Mode.BYPASS, (Mode.PLAN,)),
    ],
)
def test_a_call_that_could_change_what_it_may_no_longer_ends(effect: ToolEffect, before: Mode, modes: tuple[Mode, ...]) -> None:
    ended = run(outcome(effect, before, *modes))
    assert not ended.ok
    assert f"the mode became `{modes[0]}` while it ran" in str(ended.value)


@pytest.mark.parametrize(
    ("effect", "before", "modes"),
    [
        (ToolEffect.EXECUTE, Mode.DEFAULT, (Mode.BYPASS, Mode.DEFAULT)),
        (ToolEffect.MODIFY, Mode.BYPASS, (Mode.DEFAULT,)),
        (ToolEffect.INSPECT, Mode.BYPASS, (Mode.PLAN,)),
        (ToolEffect.SEND, Mode.BYPASS, (Mode.PLAN,)),
    ],
)
def test_other_calls_go_on(effect: ToolEffect, before: Mode, modes: tuple[Mode, ...]) -> None:
    assert run(outcome(effect, before, *modes)) == DONE


def test_a_call_that_takes_too_long_by_itself_is_not_blamed_on_the_mode() -> None:
    async def slow() -> ToolResult:
        raise TimeoutError("too slow")

    async def work() -> None:
        async with house(MemoryStore(SystemClock())) as opened, opened.hold(await open_session(opened, Path("/w"))) as actor:
            await within_mode(actor, ToolEffect.EXECUTE, Mode.DEFAULT, slow())

    with pytest.raises(TimeoutError, match="too slow"):
        run(work())
