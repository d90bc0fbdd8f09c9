"""The files of a local agent whose conversation is archived: the agent chose them, and they must not stop who looks after the teams."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from curtainwall.agents.external.process import ProcessFolders, pack_state
from curtainwall.agents.external.process.packed_state import is_packed
from curtainwall.model import Broken
from curtainwall.operations.remove import remove_tree
from tests.support.covers import covers

NAME = "c570f6ac-cdbc-484e-99b9-baf94615cac7"


def nested(state: Path, levels: int) -> None:
    """Make directories in each other."""
    at = os.open(state, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)


def deep(state: Path) -> None:
    """Make more of them than a path can name."""
    nested(state, 5_000)


def rather_deep(state: Path) -> None:
    """Make as many as a path can still name."""
    nested(state, 1_500)


def vast(state: Path) -> None:
    """Make a file that takes no room, and would take very much once it is unpacked."""
    with open(state / "vast", "wb") as file:
        file.truncate(1024**4)


@covers("teams.archiving-frees-space")
@pytest.mark.parametrize("plant", [deep, rather_deep, vast])
def test_what_an_agent_leaves_that_cannot_be_packed_is_named_and_stays(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    folders = ProcessFolders(tmp_path / "project", tmp_path / "o", tmp_path / "run", tmp_path / "s" / "state", tmp_path / "locks")
    folders.state.mkdir(parents=True)
    (folders.state / "kept").touch()
    plant(folders.state)
    for _ in range(2):
        with pytest.raises(Broken, match=r"the files of the agent in `.*/state` (cannot be packed|are too large to be packed)"):
            pack_state(folders, NAME)
        assert (folders.state / "kept").exists()
        assert not is_packed(folders)
    # Too deep for whoever tidies up after tests.
    remove_tree(folders.state)
