"""Views with the real kernel and the real sandbox: as root, as root for somebody's project, and as an ordinary user."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from curtainwall.host.views.apply import apply_changes
from curtainwall.host.views.choice import choose_mechanism, look_through, open_view, remove_view
from curtainwall.host.views.copy import CopyView
from curtainwall.host.views.overlay import OverlayView
from curtainwall.model import ApplyStatus, ChangeKind, ChangeSet, ProjectView, ViewFailed, ViewMechanism
from tests.support.covers import covers
from tests.support.views import NOBODY, give_to, inside, place_of, plant, run_as, run_inside, start_inside, tree_of
from tests.support.waiting import until

FILES = {"a.txt": "a\n", "d/b": "bb\n", "d/c": "cc\n", "gone": "soon gone\n", "e/1": "one\n", "e/2": "two\n", ".git/config": "[core]\n"}
View = OverlayView | CopyView


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project whose path would be several options of a mount."""
    made = tmp_path.resolve() / "pro,upperdir=x:y je\\ct"
    plant(made, FILES)
    return made


@pytest.fixture
def state(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "st,a:te"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture(params=[OverlayView, CopyView], ids=["overlay", "copy"])
def view(request: pytest.FixtureRequest, project: Path, state: Path, bubblewrap: str) -> Iterator[View]:
    made: Callable[[str, Path], View] = request.param
    opened = made(str(project), state)
    yield opened
    opened.close()
    remove_view(state)
    assert not state.exists()


def kinds(changes: ChangeSet) -> dict[str, ChangeKind]:
    return {change.path: change.kind for change in changes.changes}


@covers("views.the-project-stays-untouched", "views.all-see-the-same")
def test_commands_and_file_tools_see_one_view_and_the_project_stays_as_it_was(view: View, project: Path) -> None:
    before = tree_of(project.parent / project.name)
    git = (project / ".git/config").read_bytes()
    entrance = view.enter()
    server = start_inside(entrance, "while ! [ -e stop ]; do sleep 0.02; done; cat a.txt tool > served")
    run_inside(entrance, "echo command >> a.txt; rm gone; rm -r e; mkdir e; echo 3 > e/3; mv d/b d/moved; echo x >> .git/config")
    (inside(entrance) / "tool").write_text("tool\n")
    assert run_inside(entrance, "cat a.txt tool; pwd") == f"a\ncommand\ntool\n{project}\n"
    (inside(entrance) / "stop").touch()
    server.communicate(timeout=60)
    assert server.returncode == 0
    assert (inside(entrance) / "served").read_text() == "a\ncommand\ntool\n"
    assert tree_of(project) == before
    view.leave()
    changes = view.changes()
    assert kinds(changes) == {
        "a.txt": ChangeKind.MODIFIED,
        "d/moved": ChangeKind.RENAMED,
        "e/1": ChangeKind.DELETED,
        "e/2": ChangeKind.DELETED,
        "e/3": ChangeKind.ADDED,
        "gone": ChangeKind.DELETED,
        "served": ChangeKind.ADDED,
        "stop": ChangeKind.ADDED,
        "tool": ChangeKind.ADDED,
    }
    assert changes.git == (".git",)
    assert tree_of(project) == before
    assert {file.status for file in apply_changes(changes, view.sealed).files} == {ApplyStatus.APPLIED}
    assert (project / ".git/config").read_bytes() == git


@covers("views.changes-that-are-none")
def test_what_was_touched_and_not_changed_is_no_change(view: View) -> None:
    run_inside(view.enter(), "touch a.txt; chmod 600 a.txt; chmod 644 a.txt; mv d/b x; mv x d/b; : > d/n; rm d/n")
    run_inside(view.enter(), "rm -r e; mkdir e; echo one > e/1; echo two > e/2")
    view.leave()
    assert view.changes().changes == ()


@covers("views.changes-that-are-none")
def test_what_the_user_saves_after_the_agent_only_touched_it_is_seen_and_no_conflict(view: View, project: Path) -> None:
    run_inside(view.enter(), "touch a.txt; printf 'cc\\n' > d/c; chmod 600 d/b; chmod 644 d/b; echo mine >> e/1; cp e/2 e/3; mv e/3 e/2")
    view.leave()
    (project / "a.txt").write_text("of the user\n")
    (project / "d/c").write_text("of the user, too\n")
    assert run_inside(view.enter(), "cat a.txt d/c e/1; echo more >> a.txt") == "of the user\nof the user, too\none\nmine\n"
    view.leave()
    changes = view.changes()
    assert kinds(changes) == {"a.txt": ChangeKind.MODIFIED, "e/1": ChangeKind.MODIFIED}
    assert all(change.is_applicable for change in changes.changes)


@covers("views.changes-that-are-none")
def test_what_the_user_and_the_agent_changed_alike_is_seen_as_the_user_goes_on_with_it(view: View, project: Path) -> None:
    run_inside(view.enter(), "echo both > a.txt")
    view.leave()
    (project / "a.txt").write_text("both\n")
    view.enter()
    view.leave()
    (project / "a.txt").write_text("the user alone\n")
    assert run_inside(view.enter(), "cat a.txt") == "the user alone\n"
    view.leave()
    assert kinds(view.changes()) == {}


@covers("views.discarded-changes-are-gone")
def test_discarded_changes_are_gone_and_the_others_stay(view: View, project: Path) -> None:
    run_inside(view.enter(), "echo x >> a.txt; rm -r e; mkdir e; echo 3 > e/3; rm -r d; mkdir -p n/m; echo y > n/m/f; chmod 755 gone")
    wanted = kinds(view.changes())
    view.discard(["a.txt", "e/1", "d/b", "d"])
    assert kinds(view.changes()) == {path: kind for path, kind in wanted.items() if path not in {"a.txt", "e/1", "d/b", "d"}}
    assert run_inside(view.enter(), "cat a.txt e/1 d/b; ls d; ls e") == "a\none\nbb\nb\n1\n3\n"
    view.discard(["n/m/f", "n/m", "n", "gone", "e/2", "e/3", "d/c"])
    assert view.changes().changes == ()
    run_inside(view.enter(), "echo z > z")
    view.discard()
    assert tree_of(inside(view.enter())) == tree_of(project)


@covers("views.discarded-changes-are-gone")
def test_what_was_applied_and_then_discarded_shows_the_project_again(view: View, project: Path) -> None:
    run_inside(view.enter(), "echo x >> a.txt; mv d/b d/moved; rm gone; mkdir n; echo n > n/n")
    view.leave()
    changes = view.changes()
    chosen = changes.only({"a.txt", "n/n", "d/moved"})
    apply_changes(chosen, view.sealed)
    view.discard([path for change in chosen.changes for path in change.paths])
    assert kinds(view.changes()) == {"gone": ChangeKind.DELETED}
    (project / "a.txt").write_text("the user's own\n")
    assert run_inside(view.enter(), "cat a.txt n/n d/moved; ls") == "the user's own\nn\nbb\na.txt\nd\ne\nn\n"


@covers("views.a-file-changed-meanwhile-is-a-conflict")
@pytest.mark.parametrize("how", ["rename", "in-place", "deleted"])
def test_what_the_user_saves_during_a_use_is_a_conflict_where_the_agent_changed_it_too(view: View, project: Path, how: str) -> None:
    entrance = view.enter()
    if how == "in-place" or isinstance(view, CopyView):
        run_inside(entrance, "echo agent >> a.txt; echo agent > d/b; echo agent > d/c")
    else:
        # What is saved below by a new file is not seen by a mount, so the agent still starts from the old one.
        run_inside(entrance, "cat a.txt d/b; echo agent > d/c; echo early >> a.txt")
    match how:
        case "rename":
            for name in ("a.txt", "d/b"):
                (project / f"{name}~").write_text("the user's\n")
                (project / f"{name}~").replace(project / name)
        case "in-place":
            for name in ("a.txt", "d/b"):
                (project / name).write_text("the user's\n")
        case _:
            for name in ("a.txt", "d/b"):
                (project / name).unlink()
    run_inside(entrance, "echo agent >> a.txt; echo agent > d/b || true")
    view.leave()
    changes = view.changes()
    found = {change.path: change for change in changes.changes}
    assert found["d/c"].is_applicable
    assert found["a.txt"].conflict
    result = apply_changes(changes, view.sealed)
    assert {file.path for file in result.conflicts} >= {"a.txt"}
    if how == "deleted":
        assert not (project / "a.txt").exists()
    else:
        assert (project / "a.txt").read_text() == "the user's\n"
    assert (project / "d/c").read_text() == "agent\n"


@covers("views.a-file-changed-meanwhile-is-a-conflict")
def test_what_the_user_saves_between_two_uses_is_seen_or_a_conflict(view: View, project: Path) -> None:
    run_inside(view.enter(), "echo agent >> a.txt; rm gone")
    view.leave()
    (project / "a.txt").write_text("the user's\n")
    (project / "d/b").write_text("the user's\n")
    (project / "gone").write_text("the user's\n")
    assert run_inside(view.enter(), "cat a.txt d/b; echo agent >> d/b; ls") == "a\nagent\nthe user's\na.txt\nd\ne\n"
    view.leave()
    found = {change.path: change for change in view.changes().changes}
    assert {path for path, change in found.items() if change.conflict} == {"a.txt", "gone"}
    conflict = found["a.txt"]
    assert conflict.before is not None
    assert conflict.present is not None
    assert view.sealed.read(conflict.before.digest) == b"a\n"
    assert view.sealed.read(conflict.present.digest) == b"the user's\n"
    assert {file.path for file in apply_changes(view.changes(), view.sealed).conflicts} == {"a.txt", "gone"}
    assert (project / "a.txt").read_text() == (project / "gone").read_text() == "the user's\n"
    assert (project / "d/b").read_text() == "the user's\nagent\n"


def test_two_sessions_whose_changes_are_accepted_one_after_the_other(project: Path, state: Path, tmp_path: Path, bubblewrap: str) -> None:
    (tmp_path / "other").mkdir()
    one, other = OverlayView(str(project), state), OverlayView(str(project), (tmp_path / "other").resolve())
    run_inside(one.enter(), "echo one >> a.txt; echo one > d/one")
    assert run_inside(other.enter(), "cat a.txt; echo other >> a.txt; echo other > d/other") == "a\n"
    for view in (one, other):
        view.leave()
    apply_changes(one.changes(), one.sealed)
    result = apply_changes(other.changes(), other.sealed)
    assert [file.path for file in result.conflicts] == ["a.txt"]
    assert (project / "a.txt").read_text() == "a\none\n"
    assert (project / "d/other").read_text() == "other\n"
    for view in (one, other):
        view.close()


@covers("views.one-mount-at-a-time")
def test_a_process_that_dies_leaves_no_mount_and_the_next_goes_on_with_its_changes(project: Path, state: Path, bubblewrap: str) -> None:
    script = """
v = overlay.OverlayView(given["project"], Path(given["state"]))
e = v.enter()
(views.inside(e) / "new").write_text("new")
with (views.inside(e) / "a.txt").open("a") as file:
    file.write("more")
print(v._holder.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with pytest.raises(AssertionError) as fault:
        run_as(os.geteuid(), script, project=str(project), state=str(state))
    holder = int(str(fault.value).split()[0])
    until(lambda: not Path(f"/proc/{holder}").exists() or Path(f"/proc/{holder}/stat").read_text().split()[2] == "Z")
    (project / "d/b").write_text("the user's\n")
    view = OverlayView(str(project), state)
    assert run_inside(view.enter(), "cat a.txt new d/b; echo agent >> d/b") == "a\nmorenewthe user's\n"
    view.leave()
    found = {change.path: change.conflict for change in view.changes().changes}
    assert found["a.txt"] == found["new"] == ""
    # The use that the crash ended goes on, so nobody knows which of the two came first.
    assert found["d/b"]
    view.close()


@covers("views.one-mount-at-a-time")
def test_a_view_that_another_process_has_mounted_cannot_be_mounted_again(project: Path, state: Path, bubblewrap: str) -> None:
    view = OverlayView(str(project), state)
    view.enter()
    script = """
v = overlay.OverlayView(given["project"], Path(given["state"]))
try:
    v.enter()
except holder.ViewFailed as fault:
    print(fault)
"""
    assert "another process has this view mounted" in run_as(os.geteuid(), script, project=str(project), state=str(state))
    view.close()


def test_a_view_that_something_still_uses_is_not_unmounted(project: Path, state: Path, bubblewrap: str) -> None:
    view = OverlayView(str(project), state)
    held = os.dup(view.enter().root)
    with pytest.raises(ViewFailed, match="busy"):
        view.leave()
    os.close(held)
    view.close()


WORK = """
v = choice.open_view(given["project"], Path(given["state"]))
print(v.choice.mechanism.value, v.choice.reason)
e = v.enter()
commands = "echo agent >> a.txt; rm -r e; mkdir e; echo 3 > e/3; mv d/b d/x; chmod 755 d/c; touch new; ls -ln new | cut -d ' ' -f 3"
print(views.run_inside(e, commands))
(views.inside(e) / "tool").write_text("tool")
v.leave()
changes = v.changes()
print(" ".join(f"{c.kind.value}:{c.path}:{c.refusal or c.conflict}" for c in changes.changes))
result = apply.apply_changes(changes, v.sealed)
print({f.status.value for f in result.files}, {f.reason for f in result.files})
back = apply.apply_changes(changes.inverse(), v.sealed)
print({f.status.value for f in back.files})
apply.apply_changes(changes, v.sealed)
v.close()
choice.remove_view(Path(given["state"]))
print(Path(given["state"]).exists())
"""
AS = {"the same user": (os.geteuid(), os.geteuid()), "root for an owner": (os.geteuid(), NOBODY), "an ordinary user": (NOBODY, NOBODY)}


@covers("views.as-any-user")
@pytest.mark.parametrize("who", AS)
def test_a_view_works_as_every_user(who: str, tmp_path: Path, bubblewrap: str) -> None:
    user, owner = AS[who]
    if os.geteuid() != 0 and who != "the same user":
        pytest.skip("only root can be somebody else")
    with place_of(user) as (_, place):
        plant(place / "project", FILES)
        give_to(place / "project", owner)
        (place / "state").mkdir(mode=0o700)
        give_to(place / "state", user)
        told = run_as(user, WORK, project=str(place / "project"), state=str(place / "state")).splitlines()
        assert told[0].startswith("overlay ")
        assert told[1] == "1000"
        assert told[3] == "modified:a.txt: mode:d/c: renamed:d/x: deleted:e/1: deleted:e/2: added:e/3: added:new: added:tool:"
        assert told[4:] == ["{'applied'} {''}", "{'applied'}", "False"]
        project = place / "project"
        owners = {path.lstat().st_uid for path in (project, *project.rglob("*"))}
        assert owners == {owner}


@covers("views.mechanism-has-a-reason")
def test_an_overlay_is_chosen_where_it_works_and_stays(project: Path, state: Path, bubblewrap: str) -> None:
    view = open_view(str(project), state)
    assert view.choice.mechanism is ViewMechanism.OVERLAY
    assert view.choice.reason == "the project is not copied; only what changes takes space"
    run_inside(view.enter(), "echo x > x")
    view.close()
    again = open_view(str(project), state, ViewMechanism.NONE)
    assert again.choice == view.choice
    assert kinds(again.changes()) == {"x": ChangeKind.ADDED}
    again.close()


@covers("views.mechanism-has-a-reason")
def test_files_of_another_user_mean_a_copy_and_say_which(project: Path, state: Path, bubblewrap: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(project / "d/b", 4242, 4242)
    view = open_view(str(project), state)
    assert view.choice.mechanism is ViewMechanism.COPY
    assert view.choice.reason == f"an overlay is not possible: `{project}/d/b` belongs to another user or group"
    assert run_inside(view.enter(), "cat d/b; echo x > x") == "bb\n"
    view.leave()
    assert kinds(view.changes()) == {"x": ChangeKind.ADDED}
    with pytest.raises(ViewFailed, match="belongs to another user or group"):
        choose_mechanism(str(project), state, ViewMechanism.OVERLAY)
    view.close()


@covers("views.mechanism-has-a-reason")
@pytest.mark.parametrize(("where", "reason"), [("project/d/inner", "is mounted inside the project"), ("state/inner", None)])
def test_a_mount_inside_the_project_means_a_copy_and_says_which(where: str, reason: str | None, tmp_path: Path, bubblewrap: str) -> None:
    place = tmp_path.resolve()
    plant(place / "project", FILES)
    (place / where).mkdir(parents=True)
    script = """
sys.path[:] = given["path"]
import os
from pathlib import Path
from curtainwall.host.views.choice import choose_mechanism
choice = choose_mechanism(given["project"], Path(given["state"]))
print(choice.mechanism.value, choice.reason)
"""
    program = "import json, sys; given = json.loads(sys.argv[1])" + script
    words = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs none "$1"; shift; exec "$@"', "sh")
    given = json.dumps({"path": sys.path, "project": str(place / "project"), "state": str(place / "state")})
    done = subprocess.run((*words, str(place / where), sys.executable, "-c", program, given), capture_output=True, text=True, check=True)
    if reason is None:
        assert done.stdout.startswith("overlay ")
    else:
        assert done.stdout == f"copy an overlay is not possible: `{place / where}` {reason}\n"


@covers("views.mechanism-has-a-reason")
def test_a_project_that_is_too_large_to_copy_has_no_view_and_says_so(project: Path, state: Path) -> None:
    for number in range(20_001):
        os.symlink("x", project / f"link{number}")
    if os.geteuid() == 0:
        os.lchown(project / "link1", 4242, 4242)
        view: ProjectView = open_view(str(project), state)
        assert view.choice.mechanism is ViewMechanism.NONE
        assert "and the project has more than 20000 files or 512 MiB, which is too much to copy" in view.choice.reason
        (inside(view.enter()) / "a.txt").write_text("written through")
        view.leave()
        assert (project / "a.txt").read_text() == "written through"
        assert view.changes().changes == ()
    with pytest.raises(ViewFailed, match="cannot be copied"):
        choose_mechanism(str(project), state, ViewMechanism.COPY)
    assert look_through(str(project)).files > 20_000
