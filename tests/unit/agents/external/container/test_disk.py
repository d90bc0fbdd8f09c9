"""What a session keeps on disk, measured without an engine."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from curtainwall.agents.external.container import ContainerFolders
from curtainwall.agents.external.container.turn_watch import DiskUse
from curtainwall.model import TurnFailed
from tests.support.nobody import as_somebody_else

KIB = 1024


def folders_in(place: Path, *, is_own: bool = True) -> ContainerFolders:
    for name in ("workspace", "state"):
        (place / name).mkdir(exist_ok=True)
    return ContainerFolders(place / "workspace", place / "orientation", place / "run", place / "state", is_own=is_own)


async def measured(use: DiskUse) -> None:
    """Look until one measurement is judged."""
    await use.look()
    while use.is_measuring:
        await asyncio.sleep(0)
        await use.look()


def test_what_has_several_names_counts_once_and_what_a_link_leads_to_not_at_all(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "big").write_bytes(b"x" * 400 * KIB)
    (folders.workspace / "one").write_bytes(b"x" * 60 * KIB)
    for number in range(5):
        os.link(folders.workspace / "one", folders.state / f"name{number}")
    (folders.workspace / "link").symlink_to(tmp_path / "elsewhere")
    asyncio.run(measured(DiskUse(folders, 100 * KIB)))
    (folders.state / "two").write_bytes(b"y" * 60 * KIB)
    with pytest.raises(TurnFailed, match="disk space of the session is used up"):
        asyncio.run(measured(DiskUse(folders, 100 * KIB)))


def test_a_file_with_holes_counts_what_it_takes(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    with (folders.workspace / "holes").open("wb") as file:
        file.truncate(10**10)
    asyncio.run(measured(DiskUse(folders, 100 * KIB)))


def test_what_goes_meanwhile_or_was_never_there_does_not_matter(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    (folders.workspace).rmdir()
    asyncio.run(measured(DiskUse(folders, 100 * KIB)))


def test_a_directory_that_is_closed_to_its_own_user_cannot_be_measured() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        os.chmod(made, 0o777)
        with as_somebody_else():
            folders = folders_in(Path(made))
            inner = folders.state / "inner"
            inner.mkdir()
            inner.chmod(0)
            with pytest.raises(TurnFailed, match=r"cannot be measured: .*inner` is closed to its own user"):
                asyncio.run(measured(DiskUse(folders, 100 * KIB)))
            inner.chmod(0o700)
