"""Who works for the teams goes on after trouble."""

import asyncio
from pathlib import Path

import pytest

from curtainwall.agents.registry import AgentRegistry
from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.model import SessionId
from curtainwall.runtime import NoHooks, Turns
from curtainwall.teams.keeper import KEEPER, Keeper
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


@covers("teams.waking-tells-the-truth")
def test_where_another_process_works_for_the_teams_waking_and_sending_to_sleep_say_so(tmp_path: Path) -> None:
    async def story() -> None:
        setup = load_setup(environ={"CURTAINWALL_HOME": str(tmp_path / "h"), "HOME": str(tmp_path)})
        async with open_gate(setup) as other, open_gate(setup) as wired:
            lease = other.store.leases.take(KEEPER)
            assert lease is not None
            keeper = Keeper(wired.teams, Turns(wired.registry, None, NoHooks(), lambda _: ""), AgentRegistry(lambda _: "nobody"))
            async with keeper.at_work():
                told = "another process works for the teams; it wakes an agent for each message, and lets an idle one go by itself"
                # Its taker begins with the loop's next turn.
                await asyncio.sleep(0)
                assert await wired.teams.requests.wake(SessionId("s")) == told
                assert await wired.teams.requests.sleep(SessionId("s")) == told
            lease.release()

    run(story())
