"""What every store of marks promises: what a channel remembers is there for whoever comes next, and for no other channel."""

from tests.support.stores import Disk, Store, run


def test_a_mark_is_what_was_set_last_until_it_is_forgotten(store: Store) -> None:
    assert store.marks.get("matrix", "cursor") is None
    run(store.marks.set("matrix", {"cursor": "1", "seen": "x"}))
    run(store.marks.set("matrix", {"cursor": "2"}))
    assert store.marks.get("matrix", "cursor") == "2"
    assert store.marks.all("matrix") == {"cursor": "2", "seen": "x"}
    run(store.marks.set("matrix", {"cursor": None, "nothing": None}))
    assert store.marks.all("matrix") == {"seen": "x"}


def test_channels_do_not_see_each_others_marks(store: Store) -> None:
    run(store.marks.set("matrix", {"cursor": "1"}))
    assert store.marks.get("web", "cursor") is None
    assert store.marks.all("web") == {}


def test_marks_are_there_for_another_process(disk: Disk) -> None:
    run(disk.open().marks.set("cron", {"nightly@1": "a \0 b\n✓"}))
    assert disk.open().marks.get("cron", "nightly@1") == "a \0 b\n✓"
