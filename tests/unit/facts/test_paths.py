"""Paths on a real file system, with real links."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from curtainwall.facts import PathRoots, Unclear, canonical_path

ELSEWHERE = (("/nowhere-inside", "/nowhere-outside"),)


@pytest.fixture(params=["direct", "walked"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> PathRoots:
    """A workspace beside a directory that is not part of it; a mount that is never met makes every path be walked."""
    root = Path(os.path.realpath(tmp_path))
    for name in ("work/a", "home", "outside"):
        (root / name).mkdir(parents=True)
    (root / "work/a/file").touch()
    return PathRoots(workspace=f"{root}/work", home=f"{root}/home", mounts=ELSEWHERE if request.param == "walked" else ())


def root_of(scene: PathRoots) -> str:
    return os.path.dirname(scene.workspace)


def link(scene: PathRoots, name: str, target: str) -> None:
    os.symlink(target, f"{scene.workspace}/{name}")


def refused(text: object, scene: PathRoots) -> str:
    with pytest.raises(Unclear) as caught:
        canonical_path(text, scene)
    return caught.value.message


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a/file", "work/a/file"),
        ("./a//file", "work/a/file"),
        ("a/", "work/a"),
        ("a/.", "work/a"),
        (".", "work"),
        ("..", ""),
        ("a/../b", "work/b"),
        ("missing/../a/file", "work/a/file"),
        ("missing/deep/new", "work/missing/deep/new"),
        ("missing/", "work/missing"),
        ("../work-evil/x", "work-evil/x"),
        ("a/%2e%2e/x", "work/a/%2e%2e/x"),
        ("a\\..\\x", "work/a\\..\\x"),
        (" a", "work/ a"),
        ("a\nb", "work/a\nb"),
        ("naïve/ﬁ", "work/naïve/ﬁ"),
        ("./~x", "work/~x"),
        ("a/~", "work/a/~"),
        ("~", "home"),
        ("~/", "home"),
        ("~/x", "home/x"),
        ("~/../outside", "outside"),
    ],
)
def test_words_mean_one_path(text: str, meaning: str, scene: PathRoots) -> None:
    assert canonical_path(text, scene) == f"{root_of(scene)}/{meaning}".rstrip("/")


def test_an_absolute_path_is_itself(scene: PathRoots) -> None:
    inside = f"{scene.workspace}/a/file"
    assert canonical_path(inside, scene) == inside
    assert canonical_path(f"//{inside}", scene) == inside


def test_the_root_has_no_parent(scene: PathRoots) -> None:
    assert [canonical_path(text, scene) for text in ("/", "/..", "/../..", "//", "/.")] == ["/"] * 5


def test_relative_paths_start_in_the_tracked_directory(scene: PathRoots) -> None:
    moved = PathRoots(scene.workspace, scene.home, cwd=f"{scene.workspace}/a", mounts=scene.mounts)
    assert canonical_path("file", moved) == f"{scene.workspace}/a/file"
    assert PathRoots("/w", "/h").cwd == "/w"


@pytest.mark.parametrize("text", [None, 7, 1.5, True, b"/etc", ["a"], {"path": "a"}, Path("/etc")])
def test_only_strings_are_paths(text: object, scene: PathRoots) -> None:
    assert refused(text, scene).startswith("a path must be a string, not `")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        (" \t\n", "empty"),
        ("a\0b", "NUL"),
        ("a\udcff", "half a character"),
        ("~root/x", "another user's home"),
        ("~root", "another user's home"),
        ("~~", "another user's home"),
        ("x/" * 2048, "longer than 4095 bytes"),
        ("é/" * 1366, "longer than 4095 bytes"),
        ("x/" * 200, "more than 128 directories deep"),
        ("n" * 256, "name too long"),
        ("missing/" + "é" * 128, "longer than 255 bytes"),
        ("a/file/", "not a directory"),
        ("a/file/.", "not a directory"),
        ("a/file/..", "not a directory"),
        ("a/file/x", "not a directory"),
    ],
)
def test_what_cannot_be_a_path_is_refused(text: str, why: str, scene: PathRoots) -> None:
    message = refused(text, scene)
    assert why in message or (why == "name too long" and "longer than" in message)
    assert message[0].islower() or message[0] == "`"
    assert not message.endswith(".")


def test_links_are_followed_to_where_they_lead(scene: PathRoots) -> None:
    link(scene, "in", "a")
    link(scene, "out", f"{root_of(scene)}/outside")
    link(scene, "twice", "in/file")
    assert canonical_path("in/file", scene) == f"{scene.workspace}/a/file"
    assert canonical_path("out/x", scene) == f"{root_of(scene)}/outside/x"
    assert canonical_path("twice", scene) == f"{scene.workspace}/a/file"


def test_links_that_take_very_many_steps_are_refused(scene: PathRoots) -> None:
    link(scene, "round", "a/../" * 700 + "a")
    link(scene, "again", "round/../round")
    assert canonical_path("round/file", scene) == f"{scene.workspace}/a/file"
    assert "takes too many steps" in refused("again/file", scene)


def test_up_from_a_link_is_up_from_where_it_leads(scene: PathRoots) -> None:
    os.mkdir(f"{root_of(scene)}/outside/deep")
    link(scene, "out", "../outside/deep")
    assert canonical_path("out/../x", scene) == f"{root_of(scene)}/outside/x"


def test_a_dangling_link_is_where_it_would_create(scene: PathRoots) -> None:
    link(scene, "dangling", f"{root_of(scene)}/outside/none/yet")
    assert canonical_path("dangling", scene) == f"{root_of(scene)}/outside/none/yet"
    assert canonical_path("dangling/../x", scene) == f"{root_of(scene)}/outside/none/x"
    assert canonical_path("missing/../dangling", scene) == f"{root_of(scene)}/outside/none/yet"


def test_a_link_to_a_file_is_no_directory(scene: PathRoots) -> None:
    link(scene, "f", "a/file")
    assert canonical_path("f", scene) == f"{scene.workspace}/a/file"
    assert "not a directory" in refused("f/", scene)
    link(scene, "g", "a/file/")
    assert "not a directory" in refused("g", scene)


def test_loops_are_refused(scene: PathRoots) -> None:
    link(scene, "self", "self")
    link(scene, "ping", "pong")
    link(scene, "pong", "ping")
    for text in ("self", "ping", "ping/x", "missing/../self"):
        assert "loop" in refused(text, scene)


def test_forty_links_are_followed_and_one_more_is_not(scene: PathRoots) -> None:
    link(scene, "l0", "a")
    for number in range(1, 41):
        link(scene, f"l{number}", f"l{number - 1}")
    assert canonical_path("l39/file", scene) == f"{scene.workspace}/a/file"
    assert "loop" in refused("l40/file", scene)
    assert canonical_path("l0/../" * 39 + "l0", scene) == f"{scene.workspace}/a"
    assert "loop" in refused("l0/../" * 40 + "l0", scene)
    link(scene, "d0", "missing")
    for number in range(1, 41):
        link(scene, f"d{number}", f"d{number - 1}")
    assert canonical_path("d39", scene) == f"{scene.workspace}/missing"
    assert "loop" in refused("d40", scene)


@pytest.mark.usefixtures("bubblewrap")
def test_forty_links_are_followed_also_while_something_is_mounted(scene: PathRoots) -> None:
    link(scene, "l0", "a")
    for number in range(1, 40):
        link(scene, f"l{number}", f"l{number - 1}")
    again = "for _ in $(seq 100); do bwrap --ro-bind / / true; done"
    with subprocess.Popen(["bash", "-c", again]) as mounting:
        try:
            while mounting.poll() is None:
                assert canonical_path("l39/file", scene) == f"{scene.workspace}/a/file"
        finally:
            mounting.kill()


def test_a_link_to_a_name_that_is_no_text_is_refused(scene: PathRoots) -> None:
    os.symlink(b"\xff", os.fsencode(f"{scene.workspace}/bytes"))
    assert "not UTF-8" in refused("bytes", scene)


@pytest.mark.parametrize("rest", ["", "/", "/x", "/x/../y", "/.."])
def test_outside_the_workspace_a_path_means_itself_whatever_is_in_its_way(scene: PathRoots, rest: str) -> None:
    outside = f"{root_of(scene)}/outside"
    Path(f"{outside}/file").touch()
    os.symlink("loop", f"{outside}/loop")
    link(scene, "to-file", f"{outside}/file")
    link(scene, "to-loop", f"{outside}/loop")
    for name in ("file", "loop", "absent"):
        meant = os.path.normpath(f"{outside}/{name}{rest}")
        assert canonical_path(f"{outside}/{name}{rest}", scene) == meant
        if name != "absent":
            assert canonical_path(f"to-{name}{rest}", scene) == meant


def test_a_name_that_is_too_long_is_refused_in_the_same_words_whether_its_directory_is_there_or_not(scene: PathRoots) -> None:
    place = f"{root_of(scene)}/outside"
    there = refused(f"{place}/{'n' * 256}", scene)
    os.rmdir(place)
    assert refused(f"{place}/{'n' * 256}", scene) == there


def test_a_directory_that_we_may_not_search_is_refused() -> None:
    # Root may search everything, so look as somebody else, in a place that everybody can reach.
    before = os.geteuid()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        os.chmod(made, 0o755)
        os.makedirs(f"{made}/closed/x")
        os.chmod(f"{made}/closed", 0)
        try:
            os.seteuid(before or 65534)
            for mounts in ((), ELSEWHERE):
                assert "permission denied" in refused("closed/x", PathRoots(os.path.realpath(made), "/", mounts=mounts))
        finally:
            os.seteuid(before)
            os.chmod(f"{made}/closed", 0o700)


@pytest.mark.parametrize(
    "text",
    [
        "/proc/self",
        "/proc/self/root/etc/passwd",
        "/proc/thread-self/environ",
        "/proc/1/fd/0",
        "/proc/1/cwd",
        "/proc/./self/cwd",
        "/proc/mounts",
        "/dev/fd/3",
        "/dev/stdin",
        "/dev/stdout",
        "/dev/stderr",
        "/dev/tty",
    ],
)
def test_what_is_another_thing_for_every_process_is_refused(text: str, scene: PathRoots) -> None:
    assert "every process" in refused(text, scene)


def test_a_link_into_a_process_is_refused(scene: PathRoots) -> None:
    link(scene, "innocent", "/proc/self/root")
    assert "every process" in refused("innocent/etc/passwd", scene)


def test_the_rest_of_proc_and_dev_is_ordinary(scene: PathRoots) -> None:
    assert canonical_path("/proc/version", scene) == "/proc/version"
    assert canonical_path("/dev/null", scene) == "/dev/null"


def test_the_kernels_own_links_are_refused_wherever_proc_is_mounted(bubblewrap: str, tmp_path: Path) -> None:
    script = (
        "import sys; from curtainwall.facts import PathRoots, Unclear, canonical_path\n"
        "try: print(canonical_path(sys.argv[1] + '/self/fd/0', PathRoots('/', '/')))\n"
        "except Unclear as no: print(no.message)"
    )
    done = subprocess.run(
        ["bwrap", "--dev-bind", "/", "/", "--proc", str(tmp_path), sys.executable, "-c", script, str(tmp_path)],
        input="",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "does not lead where it says" in done.stdout, done.stderr


def test_a_link_that_only_the_kernel_can_follow_is_refused(scene: PathRoots) -> None:
    deep, name = scene.workspace, "d" * 200
    before = os.getcwd()
    try:
        os.chdir(deep)
        while len(f"{deep}/{name}") < 4000:
            os.mkdir(name)
            os.chdir(name)
            deep = f"{deep}/{name}"
        os.symlink("./" * 200, "longer")
    finally:
        os.chdir(before)
    assert "does not lead where it says" in refused(f"{deep}/longer", scene)


def test_a_container_sees_the_workspace_under_its_own_name(scene: PathRoots) -> None:
    inside = PathRoots(scene.workspace, scene.home, mounts=(("/workspace", scene.workspace), ("/state/x", f"{root_of(scene)}/home")))
    link(inside, "absolute", "/workspace/a")
    for text in ("/workspace/a/file", "a/file", "/workspace//./a/file", "/etc/../workspace/a/file", "/workspace/absolute/file"):
        assert canonical_path(text, inside) == f"{scene.workspace}/a/file"
    assert canonical_path("/workspace", inside) == scene.workspace
    assert canonical_path("/state/x/y", inside) == f"{root_of(scene)}/home/y"
    assert canonical_path("/workspace-evil/x", inside) == "/workspace-evil/x"
    for text in ("/workspace/..", "../x", "/workspace/../etc/passwd"):
        assert "leaves the mounted directory" in refused(text, inside)


def test_a_mount_under_its_own_name_changes_nothing(scene: PathRoots) -> None:
    same = PathRoots(scene.workspace, scene.home, mounts=((scene.workspace, scene.workspace),))
    assert canonical_path("a/../../outside", same) == f"{root_of(scene)}/outside"


def test_a_file_mounted_into_a_container_is_no_directory(scene: PathRoots) -> None:
    inside = PathRoots(scene.workspace, scene.home, mounts=(("/conf", f"{scene.workspace}/a/file"),))
    assert canonical_path("/conf", inside) == f"{scene.workspace}/a/file"
    assert "not a directory" in refused("/conf/x", inside)
