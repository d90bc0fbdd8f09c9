"""A service that reads its files again, with the home and the environment that it was started with."""

import io
from pathlib import Path

import pytest

from curtainwall.compose.setup import ActiveSetup, Setup, load_setup
from curtainwall.host import FromFile
from curtainwall.serve.logs import Logbook
from curtainwall.serve.reload import ConfigReload
from tests.support.houses import run


class Reloaded:
    """A service that watches the files of one setup, and what it wrote on its log."""

    def __init__(self, setup: Setup) -> None:
        self.in_force, self._out = ActiveSetup(setup), io.StringIO()
        self.service = ConfigReload(self.in_force, lambda tables: (), Logbook(out=self._out))

    @property
    def said(self) -> str:
        return self._out.getvalue()

    @property
    def window(self) -> float:
        return self.in_force.setup.config.breaker.window


def home_with(place: Path, window: int) -> dict[str, str]:
    """Make a home with one setting, and return the environment that leads there."""
    place.mkdir(exist_ok=True)
    (place / "config.toml").write_text(f'[breaker]\nwindow = "{window}s"\n')
    return {"CURTAINWALL_HOME": str(place), "HOME": str(place.parent)}


def test_the_home_of_the_start_is_read_again_whatever_the_environment_says_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, other = tmp_path / "ours", tmp_path / "other"
    reloaded = Reloaded(load_setup(environ=home_with(ours, 11)))
    for name, value in home_with(other, 99).items():
        monkeypatch.setenv(name, value)

    run(reloaded.service.reload())
    assert (reloaded.in_force.setup.home.root, reloaded.window, reloaded.said) == (ours, 11, "")

    home_with(ours, 22)
    run(reloaded.service.reload())
    assert (reloaded.in_force.setup.home.root, reloaded.window) == (ours, 22)
    assert "in force from now on: tables breaker" in reloaded.said
    assert reloaded.service.health() == ""


def test_a_home_directory_that_the_files_name_is_still_that_of_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = home_with(tmp_path / "ours", 11)
    reloaded = Reloaded(load_setup(environ=environ))
    monkeypatch.setenv("HOME", str(tmp_path / "other"))
    with (tmp_path / "ours" / "config.toml").open("a") as config:
        config.write('[credentials.shop]\nfile = "~/shop.key"\nhosts = ["shop.example"]\n')
    run(reloaded.service.reload())
    (credential,) = reloaded.in_force.setup.credentials
    assert credential.source == FromFile(Path(environ["HOME"], "shop.key"))


def test_an_environment_that_changes_after_the_start_does_not_move_the_service(tmp_path: Path) -> None:
    environ = home_with(tmp_path / "ours", 11)
    reloaded = Reloaded(load_setup(environ=environ))
    environ |= home_with(tmp_path / "other", 99)
    run(reloaded.service.reload())
    assert reloaded.window == 11
