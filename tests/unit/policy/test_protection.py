"""Protected paths: closed by components, open only for the session's own workspace."""

import pytest

from curtainwall.model import Broken, Role, Workspace
from curtainwall.policy import Protection

HOME = Protection(never=("/h/.cw", "/h/.ssh"), readonly=("/h/.bashrc",), except_=("/h/.cw/skills",))
OWN = Workspace(path="/h/.cw/sessions/1/workspace", own=True)
PROJECT = Workspace(path="/p", own=False)


@pytest.mark.parametrize(
    ("role", "path", "workspace", "stopped"),
    [
        (Role.READ_PATH, "/h/.ssh", PROJECT, True),
        (Role.READ_PATH, "/h/.ssh/a/b", PROJECT, True),
        (Role.READ_PATH, "/h/.ssh2", PROJECT, False),
        (Role.READ_PATH, "/h", PROJECT, False),
        (Role.WRITE_PATH, "/h", PROJECT, False),
        (Role.DELETE_PATH, "/h", PROJECT, True),
        (Role.DELETE_PATH, "/", PROJECT, True),
        (Role.DELETE_PATH, "/p", PROJECT, False),
        (Role.READ_PATH, "/h/.bashrc", PROJECT, False),
        (Role.WRITE_PATH, "/h/.bashrc", PROJECT, True),
        (Role.DELETE_PATH, "/h/.bashrc", PROJECT, True),
        (Role.WRITE_PATH, "/h/.cw/skills/x", PROJECT, False),
        (Role.WRITE_PATH, "/h/.cw/skillsx", PROJECT, True),
        (Role.WRITE_PATH, OWN.path, OWN, False),
        (Role.DELETE_PATH, f"{OWN.path}/x", OWN, False),
        (Role.READ_PATH, "/h/.cw/sessions/1", OWN, True),
        (Role.READ_PATH, f"{OWN.path}2", OWN, True),
        (Role.READ_PATH, f"{OWN.path}/x", Workspace(path=OWN.path, own=False), True),
        (Role.READ_PATH, "/h/.ssh/x", Workspace(path="/h/.ssh", own=True), True),
        (Role.READ_PATH, "/h/.ssh/x", Workspace(path="/h", own=True), True),
    ],
)
def test_what_is_closed(role: Role, path: str, workspace: Workspace, stopped: bool) -> None:
    assert HOME.stops(role, path, workspace) is stopped


def test_what_holds_something_that_is_only_read_is_not_deleted_either() -> None:
    only_read = Protection(readonly=("/h/dots/.bashrc",))
    assert only_read.stops(Role.DELETE_PATH, "/h/dots", PROJECT)
    assert only_read.stops(Role.DELETE_PATH, "/h", PROJECT)
    assert not only_read.stops(Role.WRITE_PATH, "/h/dots", PROJECT)
    assert not only_read.stops(Role.DELETE_PATH, "/h/dots/.profile", PROJECT)


@pytest.mark.parametrize(
    ("workspace", "place"),
    [
        (OWN, None),
        (PROJECT, None),
        (Workspace(path="/h", own=False), "/h/.cw"),
        (Workspace(path="/h/.ssh", own=True), "/h/.ssh"),
        (Workspace(path="/h/.ssh/x", own=False), "/h/.ssh"),
        (Workspace(path="/", own=True), "/h/.cw"),
    ],
)
def test_a_workspace_that_conflicts_is_named(workspace: Workspace, place: str | None) -> None:
    assert HOME.conflict(workspace) == place


@pytest.mark.parametrize("path", ["~/.ssh", "/a/", "a", "/a/../b"])
def test_a_protected_path_must_be_canonical(path: str) -> None:
    with pytest.raises(Broken, match="not canonical"):
        Protection(never=(path,))
