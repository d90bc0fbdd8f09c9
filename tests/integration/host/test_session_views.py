"""The views of the sessions of one process, with the real kernel, the real sandbox and the real git."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from curtainwall.compose.doctor import examine
from curtainwall.host import ViewsOfSessions
from curtainwall.host.home import Home
from curtainwall.host.views.copy import MOST_FILES
from curtainwall.model import Mode, Place, SessionId, ViewFailed, ViewUse, Workspace
from curtainwall.operations.remove import remove_tree
from tests.support.covers import covers
from tests.support.views import inside, plant, start_inside, tree_of
from tests.support.waiting import until

FILES = {"a.txt": "a\n", "d/b": "bb\n", ".gitignore": "build/\nkept/\n*.log\n", "kept/tracked": "tracked\n"}


@pytest.fixture
def project(tmp_path: Path, bubblewrap: str) -> Path:
    made = tmp_path.resolve() / "project"
    plant(made, FILES)
    return made


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path.resolve() / "home")
    made.prepare()
    return made


@pytest.fixture
def views(home: Home) -> Iterator[ViewsOfSessions]:
    made = ViewsOfSessions(home)
    yield made
    made.close()


def place_in(project: Path, mode: Mode = Mode.REVIEW, *, own: bool = False, session: str = "one") -> Place:
    return Place(session=SessionId(session), workspace=Workspace(path=str(project), own=own), mode=mode)


def entered(views: ViewsOfSessions, place: Place) -> ViewUse:
    use = views.enter(place)
    assert use is not None
    return use


def make_repository(project: Path) -> None:
    git = ("git", "-C", str(project), "-c", "user.name=ann", "-c", "user.email=ann@localhost")
    for words in (("init", "-q"), ("add", "-A", "-f"), ("commit", "-qm", "all")):
        subprocess.run((*git, *words), check=True)


def is_mounted(home: Home, session: str = "one") -> bool:
    """Tell whether a process holds the lock of a session's view."""
    lock = (home.session(SessionId(session)).view / "lock").stat().st_ino
    return any(f":{lock} " in line for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.REVIEW])
def test_only_review_mode_works_on_a_view(views: ViewsOfSessions, home: Home, project: Path, mode: Mode) -> None:
    assert views.enter(place_in(project, mode)) is None
    assert views.enter(place_in(project, own=True)) is None
    assert not home.session(SessionId("one")).view.exists()


def test_a_view_stays_mounted_until_its_last_use_ends(views: ViewsOfSessions, home: Home, project: Path) -> None:
    place = place_in(project)
    first = entered(views, place)
    second, third = entered(views, place), first.again()
    running = start_inside(first.entrance, "while ! [ -e stop ]; do sleep 0.02; done; echo late > late")
    for use in (first, first, second):
        use.close()
        views.leave(place.session)
        assert is_mounted(home)
    (inside(third.entrance) / "stop").touch()
    running.communicate(timeout=60)
    third.close()
    until(lambda: not is_mounted(home))
    assert [change.path for change in views.changes(place).changes] == ["late", "stop"]
    assert tree_of(project) == tree_of_files(project)


def tree_of_files(project: Path) -> dict[str, tuple[str, int, bytes]]:
    """Return the tree of a project that has its files and nothing else."""
    tree = tree_of(project)
    assert {path: content.decode() for path, (kind, _, content) in tree.items() if kind == "file"} == FILES
    return tree


def test_changes_are_not_read_while_something_works_in_the_view(views: ViewsOfSessions, project: Path) -> None:
    use = entered(views, place_in(project))
    with pytest.raises(ViewFailed, match="still works in the view"):
        views.changes(place_in(project))
    use.close()
    assert views.changes(place_in(project)).changes == ()


def test_many_threads_enter_one_mount_and_leave_it(views: ViewsOfSessions, home: Home, project: Path) -> None:
    place, faults = place_in(project), list[BaseException]()

    def work(number: int) -> None:
        try:
            for step in range(5):
                use = entered(views, place)
                (inside(use.entrance) / f"{number}-{step}").touch()
                use.close()
                views.leave(place.session)
        except BaseException as fault:  # noqa: BLE001 - reported below
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert len(views.changes(place).changes) == 20
    assert not is_mounted(home)


def test_sessions_do_not_see_each_others_changes(views: ViewsOfSessions, project: Path) -> None:
    one, two = (entered(views, place_in(project, session=session)) for session in ("one", "two"))
    (inside(one.entrance) / "a.txt").write_text("one\n")
    assert (inside(two.entrance) / "a.txt").read_text() == "a\n"
    one.close()
    two.close()
    assert views.changes(place_in(project, session="two")).changes == ()


def test_what_is_accepted_is_applied_and_forgotten_and_the_rest_stays(views: ViewsOfSessions, project: Path) -> None:
    place = place_in(project)
    use = entered(views, place)
    (inside(use.entrance) / "a.txt").write_text("changed\n")
    (inside(use.entrance) / "new").write_text("new\n")
    use.close()
    changes = views.changes(place)
    only = changes.only(["a.txt"])
    for _ in range(2):
        assert views.settle(place, only, apply=True).applied == ("a.txt",)
    assert (project / "a.txt").read_text() == "changed\n"
    assert not (project / "new").exists()
    rest = views.changes(place)
    assert [change.path for change in rest.changes] == ["new"]
    assert views.settle(place, rest, apply=False).files == ()
    assert views.changes(place).changes == ()
    assert not (project / "new").exists()


def test_a_change_set_of_another_project_is_not_settled(views: ViewsOfSessions, project: Path, tmp_path: Path) -> None:
    changes = views.changes(place_in(project)).model_copy(update={"project": str(tmp_path)})
    with pytest.raises(ViewFailed, match="the session works in"):
        views.settle(place_in(project), changes, apply=True)


def test_what_was_shown_can_be_read_and_nothing_else(views: ViewsOfSessions, project: Path) -> None:
    use = entered(views, place_in(project))
    (inside(use.entrance) / "a.txt").write_text("changed\n")
    use.close()
    (change,) = views.changes(place_in(project)).changes
    assert change.after is not None
    assert views.content(SessionId("one"), change.after.digest) == b"changed\n"
    for digest in ("0" * 64, "../bases.json", ""):
        with pytest.raises(ViewFailed):
            views.content(SessionId("one"), digest)


_DIES = """
import os, sys
from curtainwall.host import ViewsOfSessions
from curtainwall.host.home import Home
from curtainwall.model import Mode, Place, SessionId, Workspace
from pathlib import Path
views = ViewsOfSessions(Home(Path(sys.argv[1])))
use = views.enter(Place(session=SessionId("one"), workspace=Workspace(path=sys.argv[2], own=False), mode=Mode.REVIEW))
with open(f"/proc/self/fd/{use.entrance.root}/a.txt", "w") as file:
    file.write("from before\\n")
if sys.argv[3] == "die":
    os.kill(os.getpid(), 9)
print("ready", flush=True)
sys.stdin.read()
"""


def test_the_view_of_a_dead_process_is_taken_over(views: ViewsOfSessions, home: Home, project: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _DIES, str(home.root), str(project), "die"], check=False)
    assert done.returncode == -9
    use = entered(views, place_in(project))
    assert (inside(use.entrance) / "a.txt").read_text() == "from before\n"
    use.close()
    assert [change.path for change in views.changes(place_in(project)).changes] == ["a.txt"]


def test_the_view_of_a_living_process_is_left_alone(views: ViewsOfSessions, home: Home, project: Path) -> None:
    words = [sys.executable, "-c", _DIES, str(home.root), str(project), "live"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        with pytest.raises(ViewFailed, match="another process"):
            views.changes(place_in(project))
        with pytest.raises(ViewFailed, match="another process"):
            views.enter(place_in(project))
    assert len(views.changes(place_in(project)).changes) == 1


def test_a_view_is_removed_with_the_directory_of_its_session(views: ViewsOfSessions, home: Home, project: Path) -> None:
    use = entered(views, place_in(project))
    plant(inside(use.entrance), {"deep/er/file": "x"})
    (inside(use.entrance) / "deep/er").chmod(0)
    use.close()
    views.leave(SessionId("one"))
    remove_tree(home.session(SessionId("one")).root)
    assert not home.session(SessionId("one")).root.exists()
    assert views.changes(place_in(project)).changes == ()


def test_where_no_view_is_possible_nothing_is_entered(project: Path) -> None:
    home = Home(project / "home")
    home.prepare()
    (project / "many").mkdir()
    for number in range(20_001):
        (project / "many" / str(number)).touch()
    views = ViewsOfSessions(home)
    assert "our home is inside the project" in views.fault(str(project))
    with pytest.raises(ViewFailed, match="use the mode `ask`"):
        views.enter(place_in(project))
    assert not list((home.root / "run").glob("view-*"))


def test_the_users_ignore_rules_count_and_not_those_of_the_agent(views: ViewsOfSessions, project: Path) -> None:
    make_repository(project)
    place = place_in(project)
    use = entered(views, place)
    root = inside(use.entrance)
    plant(root, {"build/o": "o", "build/deep/o": "o", "x.log": "x", "kept/tracked": "changed\n", "kept/new": "new\n", ":(top)a": "odd"})
    plant(root, {".gitignore": "a.txt\nd/\n", "a.txt": "changed\n", "d/new": "new\n"})
    use.close()
    changes = views.changes(place)
    assert [change.path for change in changes.changes] == [".gitignore", ":(top)a", "a.txt", "d/new", "kept/tracked"]
    assert changes.left_out == 3
    assert changes.digest == changes.model_copy(update={"left_out": 0}).digest


def test_a_path_that_git_gives_up_on_is_not_ignored(views: ViewsOfSessions, project: Path) -> None:
    (project / "link").symlink_to("d")
    make_repository(project)
    use = entered(views, place_in(project))
    root = inside(use.entrance)
    (root / "link").unlink()
    plant(root, {"link/x.log": "x", "link/y": "y", "z.log": "z"})
    use.close()
    changes = views.changes(place_in(project))
    assert [change.path for change in changes.changes] == ["link", "link/x.log", "link/y"]
    assert changes.left_out == 1


def test_a_worktree_has_the_ignore_rules_of_its_repository(views: ViewsOfSessions, project: Path, tmp_path: Path) -> None:
    make_repository(project)
    (project / ".git/info").mkdir(exist_ok=True)
    (project / ".git/info/exclude").write_text("mine\n")
    worktree = tmp_path.resolve() / "worktree"
    subprocess.run(("git", "-C", str(project), "worktree", "add", "-q", str(worktree)), check=True)
    use = entered(views, place_in(worktree))
    plant(inside(use.entrance), {"mine": "mine\n", "x.log": "x", "shown": "shown\n"})
    use.close()
    changes = views.changes(place_in(worktree))
    assert [change.path for change in changes.changes] == ["shown"]
    assert changes.left_out == 2


def test_a_program_that_the_config_names_does_not_run_when_ignore_rules_are_read(views: ViewsOfSessions, project: Path) -> None:
    make_repository(project)
    marker = project / "ran"
    subprocess.run(("git", "-C", str(project), "config", "core.fsmonitor", f"touch {marker}"), check=True)
    use = entered(views, place_in(project))
    (inside(use.entrance) / "x.log").touch()
    use.close()
    assert views.changes(place_in(project)).left_out == 1
    assert not marker.exists()


@covers("views.doctor-says-how")
def test_doctor_tries_a_view_and_leaves_nothing_behind(tmp_path: Path, bubblewrap: str) -> None:
    (finding,) = (one for one in examine(Home(tmp_path / "home")) if one.name == "views")
    assert finding.status == "ok"
    assert finding.what.startswith("in review mode our own agent works on an overlay, and those in containers on copies")
    assert list(tmp_path.iterdir()) == []


def test_an_agent_in_a_container_works_on_a_copy_that_is_found_without_our_mounts(home: Home, project: Path) -> None:
    views = ViewsOfSessions(home, {"boxed"})
    assert views.fault(str(project), "boxed") == ""
    place = replace(place_in(project), agent="boxed")
    use = entered(views, place)
    (Path(use.entrance.directory) / "new").write_text("new")
    assert (inside(use.entrance) / "new").read_text() == "new"
    use.close()
    assert [change.path for change in views.changes(place).changes] == ["new"]
    assert "does not see an overlay" in (home.session(place.session).view / "mechanism.json").read_text()
    views.close()


def test_a_view_that_no_container_sees_is_not_lent_to_an_agent_in_one(views: ViewsOfSessions, home: Home, project: Path) -> None:
    entered(views, place_in(project)).close()
    views.close()
    contained = ViewsOfSessions(home, {"boxed"})
    with pytest.raises(ViewFailed, match="began as overlay, which no container sees"):
        contained.enter(replace(place_in(project), agent="boxed"))


def test_a_project_that_is_too_large_to_copy_has_no_view_for_agents_in_containers(home: Home, project: Path) -> None:
    plant(project, {f"many/{number}": "" for number in range(MOST_FILES)})
    views = ViewsOfSessions(home, {"boxed"})
    assert views.fault(str(project)) == ""
    assert views.fault(str(project), "boxed").endswith("cannot be copied: the project has more than 20000 files or 512 MiB")
