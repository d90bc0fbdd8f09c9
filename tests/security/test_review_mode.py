"""Attacks in review mode: what an agent puts into its view neither reaches the project nor leads out of the view."""

import asyncio
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from curtainwall.host import Confinement, ConfinementFailed, run_confined
from curtainwall.model import (
    BadCall,
    Entrance,
    Mode,
    Role,
    ViewChoice,
    ViewFailed,
    ViewMechanism,
    ViewUse,
    inside_view,
    on_disk,
    working_in,
)
from tests.support.covers import covers
from tests.support.machines import SECRET, Machine
from tests.support.views import inside, plant, tree_of

pytestmark = pytest.mark.usefixtures("bubblewrap")


@pytest.fixture
def machine(tmp_path: Path) -> Generator[Machine]:
    machine = Machine.at(tmp_path, own=False, mode=Mode.REVIEW)
    plant(machine.workspace, {"a.txt": "a\n", "d/b": "b\n", ".git/config": "[core]\n", ".git/HEAD": "ref: refs/heads/main\n"})
    (machine.root / "outside").mkdir()
    (machine.root / "outside/file").write_text("outside\n")
    before = tree_of(machine.root / "home"), tree_of(machine.root / "outside"), (machine.workspace / ".git/config").read_bytes()
    yield machine
    machine.views.leave(machine.place.session)
    assert (tree_of(machine.root / "home"), tree_of(machine.root / "outside"), (machine.workspace / ".git/config").read_bytes()) == before


def choose(machine: Machine, mechanism: ViewMechanism) -> None:
    state = machine.root / "house/sessions/s1/view"
    state.mkdir(parents=True)
    (state / "mechanism.json").write_text(ViewChoice(mechanism=mechanism, reason="chosen here").model_dump_json())


@contextmanager
def near(directory: Path) -> Generator[None]:
    """Work in a directory: the path of a socket is short."""
    before = os.open(".", os.O_RDONLY)
    os.chdir(directory)
    try:
        yield
    finally:
        os.fchdir(before)
        os.close(before)


def judged_path(machine: Machine, path: str, tool: str = "filesystem.read_file") -> str:
    """Return what a call is judged by."""
    more = {"content": "x"} if tool == "filesystem.write_file" else {}
    (resource,) = (it for it in machine.prepare(tool, path=path, **more).subject.resources if it.role is not Role.USE_TOOL)
    return resource.value


@covers("views.links-mean-what-the-view-has")
def test_a_link_that_leaves_the_view_is_judged_by_where_it_leads(machine: Machine) -> None:
    key = machine.root / "home/.ssh/id_ed25519"
    machine.out(f"ln -s {key} key; ln -s ../../outside far; ln -s {machine.root} up")
    assert judged_path(machine, "key") == str(key)
    assert judged_path(machine, "far/file") == str(machine.root / "outside/file")
    assert judged_path(machine, "far/new", "filesystem.write_file") == str(machine.root / "outside/new")
    assert judged_path(machine, "d/../up/house/curtainwall.db") == str(machine.root / "house/curtainwall.db")
    assert judged_path(machine, "up/home/work/a.txt") == str(machine.workspace / "a.txt")


@covers("views.links-mean-what-the-view-has")
def test_a_link_into_the_project_means_what_the_view_has_there(machine: Machine) -> None:
    work = machine.workspace
    (machine.root / "in").symlink_to(work)
    machine.out(
        f"echo changed > a.txt; ln -s {work}/a.txt absolute; ln -s a.txt relative; mkdir only; echo only > only/here; rm -r d; ln -s only d"
    )
    for path in ("absolute", "relative", str(machine.root / "in/a.txt"), str(machine.root / "in/absolute")):
        assert judged_path(machine, path) == f"{work}/a.txt"
        assert machine.done("filesystem.read_file", path=path) == "changed\n"
    assert judged_path(machine, str(machine.root / "in/d/here")) == f"{work}/only/here"
    assert machine.done("filesystem.read_file", path="d/../only/here") == "only\n"
    machine.done("filesystem.write_file", path="absolute", content="through a link\n")
    assert machine.out("cat a.txt; readlink absolute") == f"through a link\n{work}/a.txt\n"
    (machine.root / "in").unlink()


@covers("views.links-mean-what-the-view-has")
def test_a_link_that_is_swapped_in_after_a_call_was_judged_is_not_followed(machine: Machine) -> None:
    machine.out("mkdir s; echo s > s/file")
    calls = [
        machine.prepare("filesystem.write_file", path="s/file", content="x"),
        machine.prepare("filesystem.write_file", path="s/new", content="x"),
        machine.prepare("filesystem.read_file", path="s/file"),
        machine.prepare("filesystem.delete_file", path="s/file"),
        machine.prepare("filesystem.create_directory", path="s/made"),
        machine.prepare("filesystem.list_directory", path="s"),
        machine.prepare("filesystem.search_files", path="s", pattern="*"),
        machine.prepare("filesystem.move_file", source="a.txt", destination="s/moved"),
        machine.prepare("shell.run", command="cat file; echo x > file", cwd="s"),
    ]
    for target in (machine.root / "outside", Path("../../outside"), machine.workspace / "d", Path("/proc/self/root")):
        machine.out(f"rm -r s; ln -s {target} s")
        for prepared in calls[:-1]:
            result = asyncio.run(machine.run(prepared))
            assert not result.ok, prepared.subject.tool
            assert "outside" not in str(result.value).replace(str(machine.root), "")
        shell = asyncio.run(machine.run(calls[-1]))
        assert "outside" not in str(shell.value).replace(str(machine.root), "")
    assert machine.out("cat a.txt d/b") == "a\nb\n"


def test_names_of_open_files_are_refused_and_no_descriptor_of_the_view_is_inside(machine: Machine) -> None:
    use = machine.views.enter(machine.place)
    assert use is not None
    for path in (f"/proc/self/fd/{use.entrance.root}/a.txt", f"/proc/{os.getpid()}/fd/{use.entrance.root}", "/dev/fd/3"):
        with pytest.raises(BadCall, match="another thing for every process"):
            machine.prepare("filesystem.read_file", path=path)
    use.close()
    opened = machine.out("for p in /proc/[0-9]*; do readlink $p/fd/*; readlink $p/cwd $p/root; done 2>/dev/null || true")
    assert "user:[" not in opened
    assert "mnt:[" not in opened
    assert str(machine.root / "house") not in opened
    told = machine.sh("ls /proc/*/root/../house; cat /proc/mounts; nsenter --target 1 --mount true; unshare -r true; echo; ls /")
    assert str(machine.root / "house") not in str(told["stdout"])


def test_a_command_sees_nothing_of_where_the_view_is_kept(machine: Machine) -> None:
    machine.out("echo kept > kept")
    house = machine.root / "house"
    told = machine.sh(f"ls -R {house}; find / -name kept -not -path '/proc/*' 2>/dev/null")
    assert str(told["stdout"]).splitlines() == [f"{machine.workspace}/kept"]
    assert judged_path(machine, str(house / "sessions/s1/view/upper/kept")).startswith(str(house))


def test_a_hard_link_and_a_mode_change_nothing_outside_of_the_view(machine: Machine) -> None:
    machine.out("ln a.txt hard; echo changed > hard; cat a.txt; chmod 000 d; chmod 4755 hard; ln .git/config c; echo '[x]' >> c")
    assert machine.out("chmod 755 d; cat a.txt") == "changed\n"


@covers("views.pipes-and-sockets-reach-nobody-outside")
@pytest.mark.parametrize("mechanism", [ViewMechanism.OVERLAY, ViewMechanism.COPY])
def test_a_pipe_or_a_socket_of_the_project_reaches_nobody_outside(machine: Machine, mechanism: ViewMechanism) -> None:
    choose(machine, mechanism)
    os.mkfifo(machine.workspace / "pipe")
    reader = os.open(machine.workspace / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with socket.socket(socket.AF_UNIX) as listener, near(machine.workspace):
        listener.bind("socket")
        listener.listen()
        listener.settimeout(0)
        try:
            machine.sh("timeout 1 sh -c 'echo leaked > pipe'; timeout 1 sh -c 'echo leaked >> ./pipe & cat pipe'", timeout=30)
            program = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('socket'); s.send(b'leaked')"
            assert machine.sh(f'python3 -c "{program}"')["exit_code"] != 0
            with suppress(BlockingIOError):
                assert os.read(reader, 100) == b""
            with pytest.raises(BlockingIOError):
                listener.accept()
        finally:
            os.close(reader)
            os.unlink("pipe")
            os.unlink("socket")


def test_a_repository_that_points_out_of_the_view_is_not_worked_on(machine: Machine) -> None:
    for marker in (f"gitdir: {machine.root}/outside", "gitdir: ../../outside", f"gitdir: {machine.root}/home/.ssh"):
        machine.out(f"rm -rf sub; mkdir sub; echo '{marker}' > sub/.git")
        told = machine.call("git.status", path="sub")
        assert not told.ok
        assert SECRET not in str(told.value)
    machine.out(f"rm -rf sub; mkdir sub; ln -s {machine.root}/outside sub/.git")
    assert not machine.call("git.status", path="sub").ok


def test_a_view_that_was_left_leads_nowhere(machine: Machine) -> None:
    use = machine.views.enter(machine.place)
    assert use is not None
    path = str(machine.workspace / "a.txt")
    with working_in(use, closing=False):
        assert on_disk(path) == f"/proc/self/fd/{use.entrance.root}/a.txt"
        assert on_disk(str(machine.workspace)) == f"/proc/self/fd/{use.entrance.root}/."
        assert on_disk(f"{machine.workspace}-beside") == f"{machine.workspace}-beside"
        use.close()
        with pytest.raises(ViewFailed):
            on_disk(path)
    assert inside_view(path) is None


def test_the_last_use_counts_and_not_how_often_one_is_closed(machine: Machine) -> None:
    first, second = machine.views.enter(machine.place), machine.views.enter(machine.place)
    assert isinstance(first, ViewUse)
    assert isinstance(second, ViewUse)
    for _ in range(3):
        first.close()
    machine.views.leave(machine.place.session)
    assert (inside(second.entrance) / "a.txt").read_text() == "a\n"
    second.close()


def test_a_command_is_in_the_view_or_does_not_start(machine: Machine) -> None:
    use = machine.views.enter(machine.place)
    assert use is not None
    real = use.entrance
    (inside(real) / "a.txt").write_text("view\n")
    work = str(machine.workspace)
    confinement = Confinement(cwd=work, writable=(work,), as_owner=True)

    def printed(entrance: Entrance) -> bytes:
        with working_in(ViewUse(entrance, lambda: None, lambda: None)):
            return asyncio.run(run_confined(["/bin/cat", "a.txt"], confinement)).out

    assert printed(real) == b"view\n"
    project = os.open(work, os.O_RDONLY)
    for mixed in (replace(real, root=project), replace(real, words=(), words_as_us=(), descriptors=())):
        with pytest.raises(ConfinementFailed):
            printed(mixed)
    os.close(project)
    use.close()
