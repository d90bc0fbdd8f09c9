"""Walks and listings: in order, within bounds of time and memory, and said to be cut where they are."""

import os
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from curtainwall.tools.files.walks import DirectoryListing, DirectoryWalk
from tests.support.covers import covers

MANY = 40_000


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with very many names in it."""
    made = tmp_path_factory.mktemp("crowded")
    for number in range(MANY):
        os.mknod(made / f"{number:06}")
    return made


@contextmanager
def opened(path: Path) -> Iterator[int]:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield directory
    finally:
        os.close(directory)


def peak() -> int:
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


@covers("tools.a-huge-directory-is-bounded")
def test_of_a_huge_directory_the_first_names_are_listed_and_no_more_are_kept(crowded: Path) -> None:
    with opened(crowded) as directory:
        tracemalloc.start()
        listing = DirectoryListing(directory)
        first = listing.first(100)
        assert peak() < 500_000
    assert first == [(f"{number:06}", "file") for number in range(100)]
    assert (listing.count, listing.cut) == (MANY, False)


@covers("tools.a-huge-directory-is-bounded")
def test_a_listing_that_takes_too_long_ends_and_says_so(crowded: Path) -> None:
    with opened(crowded) as directory:
        listing = DirectoryListing(directory, seconds=0)
        assert len(listing.first(MANY)) < MANY
    assert listing.cut


@covers("tools.a-huge-directory-is-bounded")
def test_a_walk_through_a_huge_directory_keeps_a_portion_of_it(crowded: Path) -> None:
    tracemalloc.start()
    names = sum(1 for _ in DirectoryWalk(str(crowded), lambda _: False))
    most = peak()
    assert names == MANY
    assert most < 3_000_000, "all of them at once are more than four"


def test_a_walk_tells_names_in_order_and_each_directory_before_what_it_holds(tmp_path: Path) -> None:
    for name in ("b/x", "b/a/y", "a", "c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert [found.inner for found in DirectoryWalk(str(tmp_path), lambda _: False)] == ["a", "b", "b/a", "b/a/y", "b/x", "c"]


def test_a_walk_that_takes_too_long_ends_at_once_however_deep_it_is(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "d").mkdir()
    walk = DirectoryWalk(str(tmp_path), lambda _: False, seconds=-1)
    assert [*walk] == []
    assert walk.cut
