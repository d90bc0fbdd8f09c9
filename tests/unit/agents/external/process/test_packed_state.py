"""The files of an archived conversation are one small file, and come back as they were."""

import os
from pathlib import Path

import pytest

from curtainwall.agents.external.process import ConversationTaken, ProcessFolders, pack_state
from curtainwall.agents.external.process.packed_state import is_packed, packed_path, unpack_state
from curtainwall.host import lock_file
from curtainwall.model import Broken
from tests.support.covers import covers

NAME = "c570f6ac-cdbc-484e-99b9-baf94615cac7"
TEXT = '{"type":"user"}\n' * 10_000


@pytest.fixture
def folders(tmp_path: Path) -> ProcessFolders:
    made = ProcessFolders(tmp_path / "project", tmp_path / "o", tmp_path / "run", tmp_path / "s" / "state", tmp_path / "locks")
    (made.state / "projects" / "p").mkdir(parents=True)
    (made.state / "projects" / "p" / f"{NAME}.jsonl").write_text(TEXT)
    return made


@covers("teams.archiving-frees-space")
def test_packing_frees_space_and_unpacking_brings_everything_back(folders: ProcessFolders) -> None:
    assert pack_state(folders, NAME) > len(TEXT) * 0.9
    assert is_packed(folders)
    assert not folders.state.exists()
    assert packed_path(folders).stat().st_mode & 0o777 == 0o600
    assert pack_state(folders, NAME) == 0, "there is nothing left to pack"
    # Whoever opens the session prepares its directories.
    folders.state.mkdir()
    assert is_packed(folders)
    unpack_state(folders)
    assert (folders.state / "projects" / "p" / f"{NAME}.jsonl").read_text() == TEXT
    assert not is_packed(folders)
    assert not packed_path(folders).exists()
    unpack_state(folders)
    assert sorted(path.name for path in folders.state.parent.iterdir()) == ["state"]


def test_where_both_are_there_the_directory_counts(folders: ProcessFolders) -> None:
    pack_state(folders, NAME)
    folders.state.mkdir()
    (folders.state / "newer").touch()
    assert not is_packed(folders)
    unpack_state(folders)
    assert [path.name for path in folders.state.iterdir()] == ["newer"]


def test_links_pipes_and_what_lies_behind_them_are_not_packed(folders: ProcessFolders, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("swordfish")
    (folders.state / "link").symlink_to(tmp_path / "secret")
    (folders.state / "up").symlink_to(tmp_path)
    os.mkfifo(folders.state / "pipe")
    pack_state(folders, NAME)
    unpack_state(folders)
    assert [path.name for path in folders.state.iterdir()] == ["projects"]
    assert (tmp_path / "secret").read_text() == "swordfish"


def test_a_conversation_that_a_process_is_in_is_not_packed(folders: ProcessFolders) -> None:
    folders.locks.mkdir()
    lock = lock_file(folders.locks / f"{NAME}.lock")
    assert lock is not None
    with pytest.raises(ConversationTaken, match="stop it first"):
        pack_state(folders, NAME)
    lock.release()
    assert (folders.state / "projects").is_dir()


def test_a_damaged_file_is_kept_and_named(folders: ProcessFolders) -> None:
    pack_state(folders, NAME)
    packed_path(folders).write_bytes(b"not packed at all")
    with pytest.raises(Broken, match=r"cannot be unpacked: .*state\.tar\.xz"):
        unpack_state(folders)
    assert packed_path(folders).exists()
