"""Our directory: where it is, and that it is closed to others."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from curtainwall.compose.doctor import examine
from curtainwall.compose.setup import load_setup
from curtainwall.config.secrets import existing_key, house_key
from curtainwall.host.home import Home, find_home, user_homes
from curtainwall.host.home_path import home_path
from curtainwall.model import Broken, SessionId
from tests.support.covers import covers
from tests.support.nobody import as_somebody_else


def modes(root: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*"))}


def test_home_is_what_the_environment_says_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert find_home({"CURTAINWALL_HOME": str(tmp_path / "link" / "cw")}).root == (tmp_path / "real" / "cw").resolve()


@covers("cli.home-follows-xdg")
def test_a_new_home_is_where_xdg_puts_data_and_one_that_exists_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user, data = tmp_path / "user", tmp_path / "data"
    (user / ".curtainwall").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(user))
    assert home_path({"XDG_DATA_HOME": str(data)}) == user / ".curtainwall"
    (user / ".curtainwall").rmdir()
    assert home_path({"XDG_DATA_HOME": str(data)}) == data / "curtainwall"
    assert home_path({"XDG_DATA_HOME": str(data), "CURTAINWALL_HOME": "/elsewhere"}) == Path("/elsewhere")
    for unset in ("", "relative/data"):
        assert home_path({"XDG_DATA_HOME": unset}) == user / ".curtainwall"
    (data / "curtainwall").mkdir(parents=True)
    (data / "curtainwall/pyvenv.cfg").touch()
    assert home_path({"XDG_DATA_HOME": str(data)}) == user / ".curtainwall", "the program is installed there"


@covers("cli.home-follows-xdg")
def test_no_agent_can_make_a_home_that_would_win_over_the_one_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user, data = tmp_path / "user", tmp_path / "data"
    user.mkdir()
    monkeypatch.setenv("HOME", str(user))
    environ = {"HOME": str(user), "XDG_DATA_HOME": str(data)}
    closed = load_setup(environ=environ).policy.protection.never
    assert {str(user / ".curtainwall"), str(data / "curtainwall")} <= {*closed}


def test_the_doctor_names_a_second_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CURTAINWALL_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for place in (tmp_path / ".curtainwall", tmp_path / "data/curtainwall"):
        Home(place).prepare()
    used = find_home()
    assert {it.name: it.status for it in examine(used)}["home"] == "ok", "the other one is empty"
    (tmp_path / "data/curtainwall/curtainwall.db").touch(mode=0o600)
    found = {it.name: it for it in examine(used)}["home"]
    assert (found.status, found.what) == ("warn", f"{used.root} is used, and there is another home in {tmp_path / 'data/curtainwall'}")


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


def test_a_home_that_is_closed_to_whoever_looks_is_no_empty_one() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        os.chmod(made, 0o755)
        closed = Path(made) / "closed"
        (closed / "cw").mkdir(parents=True)
        closed.chmod(0)
        try:
            for named in (closed, closed / "cw", closed / "nothing" / "yet"):
                with as_somebody_else(), pytest.raises(Broken, match=f"`{closed}` is closed to you; set CURTAINWALL_HOME"):
                    find_home({"CURTAINWALL_HOME": str(named)})
        finally:
            closed.chmod(0o700)


def test_the_doctor_sees_that_a_home_cannot_be_made() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        home = Home(Path(made).resolve() / "cw")
        assert {it.name: it.status for it in examine(home)}["home"] == "ok"
        os.chmod(made, 0o555)
        with as_somebody_else():
            found = {it.name: it for it in examine(home)}["home"]
    assert (found.status, found.todo) == ("fail", "set CURTAINWALL_HOME to a directory of your own")


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


def test_a_log_that_cannot_be_read_is_not_taken_for_a_copy_of_another_home(tmp_path: Path) -> None:
    home = Home(tmp_path / "cw")
    home.prepare()
    home.database.write_bytes(b"this is no database" * 500)
    found = {it.name: it for it in examine(home)}
    assert found["log"].status == "fail"
    assert (found["workspaces"].what, found["workspaces"].todo) == ("unknown: the log cannot be read", "")
