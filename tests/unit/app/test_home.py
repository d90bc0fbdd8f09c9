"""Our directory: where it is, and that it is closed to others."""

import os
import stat
from pathlib import Path

import pytest

from curtainwall.app.home import Home, find_home, user_homes
from curtainwall.app.keys import existing_key, house_key
from curtainwall.model import Broken, SessionId


def modes(root: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*"))}


def test_home_is_what_the_environment_says_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert find_home({"CURTAINWALL_HOME": str(tmp_path / "link" / "cw")}).root == (tmp_path / "real" / "cw").resolve()


def test_home_is_private_whatever_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        home = Home(tmp_path / "a" / "cw")
        home.prepare()
        home.session(SessionId("abc")).prepare()
    finally:
        os.umask(before)
    assert modes(home.root) == {0o700}
    assert {path.name for path in home.session(SessionId("abc")).root.iterdir()} == {"workspace", "orientation", "state", "escalations"}


def test_a_home_that_others_could_read_is_closed(tmp_path: Path) -> None:
    (tmp_path / "cw").mkdir(mode=0o755)
    Home(tmp_path / "cw").prepare()
    assert modes(tmp_path / "cw") == {0o700}


def test_a_file_in_place_of_home_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "cw").write_text("")
    with pytest.raises(Broken, match="set CURTAINWALL_HOME"):
        Home(tmp_path / "cw").prepare()


@pytest.mark.parametrize("session", ["", "../x", "a/b", ".", "a b"])
def test_only_ids_of_ours_have_a_directory(tmp_path: Path, session: str) -> None:
    with pytest.raises(Broken):
        Home(tmp_path).session(SessionId(session))


def test_the_users_home_is_what_a_tilde_means_and_that_of_the_account(tmp_path: Path) -> None:
    first, *rest = user_homes({"HOME": str(tmp_path)})
    assert first == str(tmp_path.resolve())
    assert rest == [path for path in user_homes({}) if path != first]


def test_a_key_is_made_once_and_damage_is_told(tmp_path: Path) -> None:
    path = tmp_path / "k"
    assert existing_key(path) is None
    key = house_key(path)
    assert len(key) == 32
    assert house_key(path) == existing_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"short")
    with pytest.raises(Broken, match="damaged"):
        house_key(path)
    assert [each.name for each in tmp_path.iterdir()] == ["k"]
