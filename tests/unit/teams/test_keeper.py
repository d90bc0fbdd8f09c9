"""Who works for the teams goes on after trouble."""

import asyncio
from pathlib import Path

import pytest

from curtainwall.agents.registry import AgentRegistry
from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.model import CommandRefused, SessionId, TryLater
from curtainwall.runtime import NoHooks, Turns
from curtainwall.teams.keeper import Keeper
from tests.support.covers import covers
from tests.support.houses import run, until


def test_the_teams_are_kept_again_once_the_log_can_be_watched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        setup = load_setup(environ={"CURTAINWALL_HOME": str(tmp_path / "h"), "HOME": str(tmp_path)})
        async with open_gate(setup) as wired:
            place = setup.home.root / "run" / "watch"
            away = place.rename(tmp_path / "away")
            keeper = Keeper(wired.teams, Turns(wired.registry, None, NoHooks(), lambda _: ""), AgentRegistry(lambda _: "nobody"))
            async with keeper.at_work():
                await until(lambda: "the teams are looked after again in a moment" in caplog.text)
                assert not keeper.is_keeping
                away.rename(place)
                await until(lambda: keeper.is_keeping)

    run(story())


@covers("teams.waking-tells-the-truth", "teams.looked-after-from-the-command-line")
def test_requests_reach_the_process_that_works_for_the_teams_from_any_other(tmp_path: Path) -> None:
    async def story() -> None:
        setup = load_setup(environ={"CURTAINWALL_HOME": str(tmp_path / "h"), "HOME": str(tmp_path)})
        async with open_gate(setup) as other, open_gate(setup) as wired, open_gate(setup) as third:
            first, second = (
                Keeper(it.teams, Turns(it.registry, None, NoHooks(), lambda _: ""), AgentRegistry(lambda _: "nobody"))
                for it in (other, wired)
            )
            with pytest.raises(TryLater, match="lets no agent work"):
                await third.teams.requests.wake(SessionId("s"))
            async with first.at_work():
                await until(lambda: first.is_keeping)
                async with second.at_work():
                    # Its taker begins with the loop's next turn.
                    await asyncio.sleep(0)
                    assert not second.is_keeping
                    for asker in (wired, third):
                        assert await asker.teams.requests.sleep(SessionId("s")) == "asleep"
                        with pytest.raises(CommandRefused, match="nobody"):
                            await asker.teams.requests.wake(SessionId("s"))
            assert not third.store.marks.all("requests to the keeper"), "nothing is left behind"

    run(story())
