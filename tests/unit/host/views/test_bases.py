"""What an agent's work on a file started from: noted once, unknown where the project changed meanwhile, and kept on disk."""

from pathlib import Path

from curtainwall.host.views.bases import UNKNOWN_BASE, Bases, BaseState
from curtainwall.host.views.overlay import moment
from curtainwall.model import FileKind, FileState
from tests.support.covers import covers

OLD, NEW = (FileState(kind=FileKind.FILE, digest=digest, mode=0o644) for digest in ("old", "new"))


@covers("views.a-file-changed-meanwhile-is-a-conflict")
def test_the_first_note_of_a_path_stays_and_later_changes_below_make_it_unknown(tmp_path: Path) -> None:
    bases = Bases(tmp_path / "bases.json", since=100)
    bases.note("before", OLD, 99)
    bases.note("at-once", OLD, 100)
    bases.note("after", OLD, 101)
    bases.note("new", None, 0)
    bases.since = 200
    bases.note("before", NEW, 150)
    bases.save()
    loaded = Bases.load(tmp_path / "bases.json")
    assert loaded == bases
    assert loaded.find("before") == BaseState(OLD)
    assert loaded.find("at-once") == loaded.find("after") == UNKNOWN_BASE
    assert loaded.find("new/inner/file") == BaseState(None)
    assert loaded.find("before/file") is None
    loaded.drop(["before"])
    assert loaded.find("before") is None


def test_a_moment_is_after_every_earlier_change_and_not_after_a_later_one(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"before{number}").touch()
        now = moment(tmp_path / "clock")
        (tmp_path / f"after{number}").touch()
        assert (tmp_path / f"before{number}").stat().st_ctime_ns < now <= (tmp_path / f"after{number}").stat().st_ctime_ns


@covers("views.a-file-changed-meanwhile-is-a-conflict")
def test_where_the_notes_are_damaged_nobody_knows_any_base(tmp_path: Path) -> None:
    (tmp_path / "bases.json").write_bytes(b"\0" * 100)
    bases = Bases.load(tmp_path / "bases.json")
    bases.note("a", OLD, 1)
    assert bases.find("a") == UNKNOWN_BASE
