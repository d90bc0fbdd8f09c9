"""Attacks on views: nothing outside of the view is touched, and nothing is applied that was not shown."""

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from curtainwall.host.views.apply import apply_changes
from curtainwall.host.views.copy import CopyView
from curtainwall.host.views.overlay import OverlayView
from curtainwall.model import ApplyStatus, ChangeKind, ChangeSet, FileChange, FileKind, ViewFailed
from tests.support.covers import covers
from tests.support.views import NOBODY, Tree, give_to, inside, place_of, plant, run_as, run_inside, tree_of

View = OverlayView | CopyView
SECRET = "what nobody may change\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "project"
    plant(made, {"a.txt": "a\n", "d/b": "bb\n", "d/c": "cc\n", ".git/config": "[core]\n", "sub/.git/config": "[core]\n"})
    return made


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "outside"
    plant(made, {"secret": SECRET, "deep/file": SECRET})
    return made


@pytest.fixture(params=[OverlayView, CopyView], ids=["overlay", "copy"])
def view(request: pytest.FixtureRequest, project: Path, tmp_path: Path, bubblewrap: str) -> Iterator[View]:
    made: Callable[[str, Path], View] = request.param
    state = tmp_path.resolve() / "state"
    state.mkdir()
    opened = made(str(project), state)
    yield opened
    opened.close()


def shown(view: View) -> dict[str, FileChange]:
    view.leave()
    return {change.path: change for change in view.changes().changes}


def applied(view: View) -> dict[str, ApplyStatus]:
    view.leave()
    return {file.path: file.status for file in apply_changes(view.changes(), view.sealed).files}


@covers("views.nothing-outside-is-touched")
def test_links_that_lead_out_are_shown_as_links_and_nothing_is_written_through_them(view: View, project: Path, outside: Path) -> None:
    before = tree_of(outside)
    root = inside(view.enter())
    (root / "way").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    (root / "up").symlink_to("../outside/secret")
    # A directory of the project becomes a link, and what was in it was changed first.
    (root / "d/b").write_text("changed\n")
    # An overlay renames no directory of the project, so programs copy it instead.
    shutil.move(root / "d", root / "old")
    (root / "d").symlink_to(outside)
    changes = shown(view)
    assert {path: change.leads_out for path, change in changes.items() if change.after and change.after.kind is FileKind.LINK} == {
        "way": True, "file": True, "up": True, "d": True,
    }  # fmt: skip
    assert set(applied(view).values()) == {ApplyStatus.APPLIED}
    assert tree_of(outside) == before
    assert (project / "d").readlink() == outside
    # What was shown before somebody put a link there is not written through it.
    late = ChangeSet(project=str(project), changes=(changes["way"].model_copy(update={"path": "way/secret", "kind": ChangeKind.ADDED}),))
    assert [file.status for file in apply_changes(late, view.sealed).files] == [ApplyStatus.CONFLICT]
    assert tree_of(outside) == before


@covers("views.nothing-outside-is-touched")
def test_a_directory_that_is_turned_into_a_link_while_the_card_is_open_leads_nowhere(view: View, project: Path, outside: Path) -> None:
    root = inside(view.enter())
    (root / "d/b").write_text("changed\n")
    (root / "d/new").write_text("new\n")
    (root / "d/c").unlink()
    view.leave()
    changes = view.changes()
    (project / "d").rename(project / "moved")
    plant(outside, {"b": "bb\n", "c": "cc\n"})
    (project / "d").symlink_to(outside)
    before = tree_of(outside)
    assert {file.status for file in apply_changes(changes, view.sealed).files} == {ApplyStatus.CONFLICT}
    assert tree_of(outside) == before


@covers("views.what-was-shown-is-what-is-applied")
def test_what_the_agent_writes_after_the_card_was_made_is_not_applied(view: View, project: Path) -> None:
    root = inside(view.enter())
    (root / "a.txt").write_text("shown\n")
    (root / "new").write_text("shown\n")
    changes = view.changes()
    held = (root / "a.txt").open("a")
    held.write("not shown\n")
    held.flush()
    (root / "new").write_text("not shown\n")
    (root / "more").write_text("not shown\n")
    apply_changes(changes, view.sealed)
    held.close()
    assert (project / "a.txt").read_text() == (project / "new").read_text() == "shown\n"
    assert not (project / "more").exists()


@covers("views.nothing-outside-is-touched")
def test_a_hard_link_of_a_file_outside_is_shown_as_one_and_the_file_is_not_changed(view: View, project: Path, outside: Path) -> None:
    (project / "linked").unlink(missing_ok=True)
    os.link(outside / "secret", project / "linked")
    root = inside(view.enter())
    with (root / "linked").open("a") as file:
        file.write("more\n")
    os.link(root / "a.txt", root / "second")
    changes = shown(view)
    assert changes["linked"].is_hard_linked
    assert changes["second"].is_hard_linked
    assert applied(view)["linked"] is ApplyStatus.APPLIED
    assert (outside / "secret").read_text() == SECRET
    assert (project / "linked").read_text() == f"{SECRET}more\n"
    assert (project / "second").stat().st_ino != (project / "a.txt").stat().st_ino


@covers("views.never-applied")
def test_devices_sockets_pipes_and_setuid_are_never_applied(view: View, project: Path) -> None:
    root = inside(view.enter())
    os.mkfifo(root / "pipe")
    (root / "a.txt").unlink()
    os.mkfifo(root / "a.txt")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "socket"))
    (root / "suid").write_text("#!/bin/sh\n")
    (root / "suid").chmod(0o4755)
    (root / "d/b").chmod(0o2755)
    # In an overlay the kernel allows no such device. In a copy it is one like any other.
    with suppress(PermissionError):
        os.mknod(root / "device", 0o600 | stat.S_IFCHR, os.makedev(0, 0))
    devices = {"device"} if (root / "device").exists() else set()
    assert not devices or isinstance(view, CopyView)
    before = tree_of(project)
    changes = shown(view)
    assert {path for path, change in changes.items() if change.refusal} == {"pipe", "a.txt", "socket", "suid", "d/b"} | devices
    assert set(applied(view).values()) == {ApplyStatus.REFUSED}
    assert tree_of(project) == before


@covers("views.never-applied")
def test_git_directories_are_never_applied_as_files(view: View, project: Path) -> None:
    root = inside(view.enter())
    commands = "echo x >> .git/config; mkdir -p .git/hooks n/.git/hooks; echo x > .git/hooks/post-commit; rm -r sub/.git; mkdir .GIT"
    run_inside(view.enter(), commands)
    (root / "n/.git/hooks/pre-push").write_text("x")
    view.leave()
    changes = view.changes()
    assert {change.path for change in changes.changes} == {"n"}
    assert {".git", "n/.git"} <= {*changes.git}
    assert applied(view) == {"n": ApplyStatus.APPLIED}
    assert (project / ".git/config").read_text() == (project / "sub/.git/config").read_text() == "[core]\n"
    assert not (project / ".git/hooks").exists()
    assert os.listdir(project / "n") == []


NAMES = ("two\nlines", "a,b:c", "upperdir=x,lowerdir=y", "\x1b[31mred\x1b[0m", "\u202etxt.exe", " ", "-rf", "*", "$(id)", "é")
NAMES += ("x" * 255, "back\\slash")


@covers("views.what-is-applied-is-the-view")
def test_odd_names_are_shown_and_applied_exactly(view: View, project: Path) -> None:
    root = inside(view.enter())
    for name in NAMES:
        (root / name).write_text(name)
        (root / f"d/{name[:200]}.dir").mkdir()
    assert {change.path for change in shown(view).values()} == {*NAMES, *(f"d/{name[:200]}.dir" for name in NAMES)}
    wanted = tree_of(inside(view.enter()))
    assert set(applied(view).values()) == {ApplyStatus.APPLIED}
    assert tree_of(project) == wanted


@covers("views.never-applied")
def test_names_that_are_no_text_are_shown_with_their_bytes_and_not_applied(view: View, project: Path) -> None:
    root = os.fsencode(inside(view.enter()))
    with open(root + b"/caf\xe9", "wb") as file:
        file.write(b"x")
    os.mkdir(root + b"/d\xff")
    with open(root + b"/d\xff/inner", "wb") as file:
        file.write(b"x")
    before = tree_of(project)
    refusals = {path: change.refusal for path, change in shown(view).items()}
    assert refusals == dict.fromkeys(("caf\\xe9", "d\\xff", "d\\xff/inner"), "its name is not UTF-8")
    assert set(applied(view).values()) == {ApplyStatus.REFUSED}
    assert tree_of(project) == before


@covers("views.forged-entries-hide-nothing")
def test_nothing_in_a_view_can_forge_what_an_overlay_keeps(project: Path, tmp_path: Path, bubblewrap: str) -> None:
    state = tmp_path.resolve() / "state"
    state.mkdir()
    view = OverlayView(str(project), state)
    entrance = view.enter()
    said = run_inside(entrance, "mknod d/b2 c 0 0 2>&1 || true; mknod a.txt2 c 1 3 2>&1 || true")
    assert said.count("Operation not permitted") == 2
    for name, value in (("opaque", b"y"), ("whiteout", b"y"), ("redirect", b"/d"), ("metacopy", b"")):
        for path in ("d", "a.txt"):
            # Some kernels refuse, others put it beside their own attributes.
            with suppress(OSError):
                os.setxattr(inside(entrance) / path, f"user.overlay.{name}", value)
    before = tree_of(project)
    assert tree_of(inside(entrance)) == before
    view.leave()
    assert view.changes().changes == ()
    assert tree_of(inside(view.enter())) == before
    view.close()


@covers("views.forged-entries-hide-nothing")
def test_entries_that_were_forged_in_the_upper_directory_are_shown_as_what_they_do(project: Path, tmp_path: Path, bubblewrap: str) -> None:
    state = tmp_path.resolve() / "state"
    state.mkdir()
    view = OverlayView(str(project), state)
    view.enter()
    view.leave()
    upper = state / "upper"
    os.mknod(upper / "a.txt", stat.S_IFCHR | 0o600, os.makedev(0, 0))
    os.mknod(upper / "never-there", stat.S_IFCHR | 0o600, os.makedev(0, 0))
    (upper / "d").mkdir()
    os.setxattr(upper / "d", "user.overlay.opaque", b"y")
    (upper / "d/new").write_text("new\n")
    os.setxattr(upper / "d/new", "user.overlay.metacopy", b"")
    os.setxattr(upper / "d/new", "user.overlay.redirect", b"/sub/.git/config")
    if os.geteuid() == 0:
        os.mknod(upper / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    changes = view.changes()
    assert {change.path: change.kind for change in changes.changes if not change.refusal} == {
        "a.txt": ChangeKind.DELETED, "d/b": ChangeKind.DELETED, "d/c": ChangeKind.DELETED, "d/new": ChangeKind.ADDED,
    }  # fmt: skip
    assert {change.path for change in changes.changes if change.refusal} == ({"null"} if os.geteuid() == 0 else set())
    apply_changes(changes, view.sealed)
    assert {path: each[2] for path, each in tree_of(project).items() if path.startswith("d/") or path == "a.txt"} == {"d/new": b"new\n"}
    view.close()


SHUT = """
from curtainwall.host.views.copy import CopyView
v = {"overlay": overlay.OverlayView, "copy": CopyView}[given["how"]](given["project"], Path(given["state"]))
views.run_inside(v.enter(), "mkdir shut; echo x > shut/x; echo x > closed; chmod 0 shut closed d; chmod 400 e; echo x > open")
v.leave()
print(json.dumps({c.path: c.refusal for c in v.changes().changes}))
print({f.path: f.status.value for f in apply.apply_changes(v.changes(), v.sealed).files})
v.close()
choice.remove_view(Path(given["state"]))
"""


@covers("views.never-applied")
@pytest.mark.parametrize("how", ["overlay", "copy"])
def test_what_the_agent_closes_to_us_is_shown_as_such_and_not_applied(bubblewrap: str, how: str) -> None:
    with place_of(NOBODY if os.geteuid() == 0 else os.geteuid()) as (user, place):
        plant(place / "project", {"a": "a", "d/b": "b", "e/c/f": "f"})
        (place / "state").mkdir()
        give_to(place, user)
        told, result = run_as(user, SHUT, project=str(place / "project"), state=str(place / "state"), how=how).splitlines()
        shown = json.loads(told)
        assert (shown["open"], shown["closed"]) == ("", "it cannot be read in the view: permission denied")
        assert shown["shut"] == "its directory cannot be listed"
        # An overlay knows what is in a directory that can only be listed, and that it has another mode.
        listed = "refused" if how == "copy" else "applied"
        assert result == f"{{'closed': 'refused', 'd': 'refused', 'e': '{listed}', 'open': 'applied', 'shut': 'refused'}}"
        assert sorted(path.name for path in (place / "project").iterdir()) == ["a", "d", "e", "open"]
        assert (place / "project/d/b").read_text() == "b"
        assert not (place / "state").exists()


@covers("views.never-applied")
def test_a_tree_that_is_too_deep_or_too_large_is_refused_as_a_whole_and_can_be_discarded(
    project: Path, tmp_path: Path, bubblewrap: str
) -> None:
    state = tmp_path.resolve() / "state"
    state.mkdir()
    view = OverlayView(str(project), state)
    run_inside(view.enter(), "i=0; while [ $i -lt 1200 ]; do mkdir x && cd x; i=$((i+1)); done")
    view.leave()
    with pytest.raises(ViewFailed, match="levels deep"):
        view.changes()
    assert view.changes(lambda path: path == "x").changes == ()
    view.discard()
    assert view.changes().changes == ()
    view.close()


ON_A_SMALL_DISK = """
import json, os, sys
given = json.loads(sys.argv[1])
sys.path[:] = given["path"]
from pathlib import Path
from curtainwall.host.views.apply import apply_changes
from curtainwall.host.views.sealed import SealedContents
from curtainwall.model import ChangeSet, TryLater
from tests.support.views import plant, tree_of
project = Path(given["disk"]) / "project"
plant(project, {"a": "shown", "b": "shown", "gone": "gone"})
before = tree_of(project)
changes = ChangeSet.model_validate({**given["changes"], "project": str(project)})
try:
    apply_changes(changes, SealedContents(Path(given["sealed"])))
except TryLater as fault:
    print(fault)
assert tree_of(project) == before, os.listdir(project)
"""


@covers("views.a-full-disk-changes-nothing")
def test_a_full_disk_leaves_the_project_as_it_was(view: View, project: Path, tmp_path: Path) -> None:
    plant(project, {"a": "shown", "b": "shown", "gone": "gone"})
    root = inside(view.enter())
    (root / "a").write_text("wanted")
    (root / "b").write_bytes(os.urandom(3_000_000))
    (root / "gone").unlink()
    view.leave()
    changes = view.changes()
    disk = tmp_path / "disk"
    disk.mkdir()
    sealed = str(tmp_path.resolve() / "state/contents")
    given = {"path": sys.path, "disk": str(disk), "sealed": sealed, "changes": changes.model_dump(mode="json")}
    words = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs -o size=2m none "$1"; shift; exec "$@"', "sh")
    program = (sys.executable, "-c", ON_A_SMALL_DISK, json.dumps(given))
    done = subprocess.run((*words, str(disk), *program), capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("the changes are not applied yet: no space left on device\n", "")


@covers("views.never-applied")
@pytest.mark.parametrize("beside", ["-wal", "-journal"])
def test_databases_in_use_are_never_applied(view: View, project: Path, beside: str) -> None:
    plant(project, {"data.db": "old", "other.db": "old", f"other.db{beside}": "old"})
    root = inside(view.enter())
    (root / "data.db").write_text("new")
    (root / f"data.db{beside}").write_text("new")
    (root / "other.db").write_text("new")
    before: Tree = tree_of(project)
    assert {path for path, change in shown(view).items() if change.refusal} == {"data.db", f"data.db{beside}", "other.db"}
    assert set(applied(view).values()) == {ApplyStatus.REFUSED}
    assert tree_of(project) == before
