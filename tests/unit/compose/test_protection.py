"""Protected paths of this machine, and the workspaces that they forbid."""

from pathlib import Path

import pytest

from curtainwall.compose.policy import protection_of
from curtainwall.compose.setup import load_setup
from curtainwall.host.home import Home
from curtainwall.model import Broken, CommandRefused, Role, Workspace
from curtainwall.policy import Protection
from tests.support.in_process import Places

ELSEWHERE = Workspace(path="/w", own=True)


def protection(user: Path, **named: tuple[str, ...]) -> Protection:
    return protection_of(Home(user / ".curtainwall"), (str(user),), **named)


@pytest.mark.parametrize(
    "name", [".curtainwall/curtainwall.db", ".ssh/id_rsa", ".gnupg", ".aws/credentials", ".config/gcloud/x", ".kube/config", ".docker/x",
             ".netrc", ".git-credentials", ".mozilla/firefox/p/logins.json", ".config/google-chrome/Default", ".password-store/a.gpg"]
)  # fmt: skip
def test_key_stores_are_closed_for_reading(tmp_path: Path, name: str) -> None:
    found = protection(tmp_path.resolve())
    assert found.stops(Role.READ_PATH, f"{tmp_path.resolve()}/{name}", ELSEWHERE)


@pytest.mark.parametrize("name", [".bashrc", ".profile", ".zshrc", ".config/fish/config.fish", ".config/autostart/x.desktop", ".gitconfig"])
def test_start_up_files_are_closed_for_writing_alone(tmp_path: Path, name: str) -> None:
    found, path = protection(tmp_path.resolve()), f"{tmp_path.resolve()}/{name}"
    assert [found.stops(role, path, ELSEWHERE) for role in (Role.READ_PATH, Role.WRITE_PATH, Role.DELETE_PATH)] == [False, True, True]


def test_a_link_is_protected_and_so_is_what_it_leads_to(tmp_path: Path) -> None:
    user = tmp_path.resolve()
    (user / "dotfiles").mkdir()
    (user / ".ssh").symlink_to(user / "dotfiles")
    found = protection(user)
    assert found.stops(Role.READ_PATH, f"{user}/dotfiles/id_rsa", ELSEWHERE)
    assert found.stops(Role.DELETE_PATH, f"{user}/.ssh", ELSEWHERE)


def test_the_users_own_paths_are_added(tmp_path: Path) -> None:
    user = tmp_path.resolve()
    found = protection(user, never=("~/finance/",), readonly=("/opt/tools",))
    assert found.stops(Role.READ_PATH, f"{user}/finance/2024", ELSEWHERE)
    assert found.stops(Role.WRITE_PATH, "/opt/tools/x", ELSEWHERE)
    assert not found.stops(Role.READ_PATH, "/opt/tools/x", ELSEWHERE)


@pytest.mark.parametrize("path", ["finance", "./x", "~bob/x", ""])
def test_a_path_that_is_not_whole_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(Broken, match="write the whole path"):
        protection(tmp_path.resolve(), never=(path,))


def test_a_workspace_around_or_in_a_protected_path_is_refused(places: Places) -> None:
    setup = load_setup()
    for path in (places.user, places.user / ".ssh" / "x", places.home, places.home / "sessions", places.home.parent, Path("/")):
        for own in (True, False):
            with pytest.raises(CommandRefused, match="protected path"):
                setup.workspace_at(path, own=own)
    with pytest.raises(CommandRefused, match="protected path"):
        setup.workspace_at(places.home / "sessions" / "abc" / "workspace", own=False)


def test_other_directories_and_the_sessions_own_are_workspaces(places: Places) -> None:
    setup = load_setup()
    (places.workspace / "link").symlink_to(places.user / "project")
    assert setup.workspace_at(places.workspace / "link", own=False).path == str(places.user / "project")
    assert setup.workspace_at(places.home / "sessions" / "abc" / "workspace", own=True).own
