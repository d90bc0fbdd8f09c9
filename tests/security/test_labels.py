"""Labels that are slipped off: by hiding what would set them, or by reading it in another way."""

import os
from pathlib import Path

from curtainwall.app.mounted import mounted_labels
from curtainwall.facts import find_named
from curtainwall.model import PathFacts, Resource, Role
from curtainwall.policy import is_secret_name, labels_of
from tests.support.policies import call, policy, session

FINANCE = '@id("finance") @label("finance") permit(principal, action == Action::"label", resource in Path::"/w/data/finance");'


def mounted(workspace: Path, most: int) -> list[tuple[str, str]]:
    return [(it.label, it.origin) for it in mounted_labels(policy(), session(str(workspace), own=False), most)]


def test_a_project_that_cannot_be_looked_through_counts_as_holding_secrets(tmp_path: Path) -> None:
    for name in range(20):
        (tmp_path / f"{name}").touch()
    assert mounted(tmp_path, 20) == []
    told = f"the mount of {tmp_path}, which cannot be looked through for secrets: it holds more than 19 names"
    assert mounted(tmp_path, 19) == [("sensitive", told)]


def test_directories_without_number_are_not_walked_to_their_end_and_hide_nothing(tmp_path: Path) -> None:
    for name in range(30):
        (tmp_path / f"{name}").mkdir()
    assert find_named(str(tmp_path), is_secret_name, 20).missed
    assert [label for label, _ in mounted(tmp_path, 20)] == ["sensitive"]


def test_a_secret_that_lies_deeper_than_a_path_can_be_is_not_overlooked(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=here)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open(".env", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    ((label, origin),) = mounted(tmp_path, 1_000)
    assert label == "sensitive"
    assert "not all of it can be read" in origin


def test_a_tool_server_that_is_given_a_directory_has_read_what_is_labelled_in_it() -> None:
    def brought(path: str, *, whole: bool) -> list[str]:
        directory = Resource(role=Role.READ_PATH, value=path, facts=PathFacts(runs_later=False, whole=whole))
        return [label for label, _ in labels_of(policy(FINANCE), call(directory, name="search.text"), session("/w"))]

    assert brought("/w/data", whole=True) == ["finance"]
    assert brought("/w/src", whole=True) == []
    assert brought("/w/data", whole=False) == [], "its names alone"
