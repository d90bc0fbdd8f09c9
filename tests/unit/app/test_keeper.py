"""Who works for the teams goes on after trouble."""

from pathlib import Path

import pytest

from curtainwall.app.crew import Crew
from curtainwall.app.keeper import Keeper
from curtainwall.app.wiring import open_house, set_up
from curtainwall.runtime import NoHooks, Turns
from tests.support.houses import run, until


def test_the_teams_are_kept_again_once_the_log_can_be_watched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        setup = set_up(environ={"CURTAINWALL_HOME": str(tmp_path / "h"), "HOME": str(tmp_path)})
        async with open_house(setup) as wired:
            place = setup.home.root / "run" / "watch"
            away = place.rename(tmp_path / "away")
            keeper = Keeper(wired, Turns(wired.house, lambda _: None, NoHooks(), lambda _: ""), Crew(lambda _: "nobody"))
            async with keeper.at_work():
                await until(lambda: "the teams are looked after again in a moment" in caplog.text)
                assert not keeper.is_keeping
                away.rename(place)
                await until(lambda: keeper.is_keeping)

    run(story())
