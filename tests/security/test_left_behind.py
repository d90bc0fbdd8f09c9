"""What a confined command leaves in a project to run later is taken back, however it is hidden, named or locked."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from curtainwall.agents.external.container.rights import guard_project
from curtainwall.agents.external.container.spec import ContainerFolders
from curtainwall.host import TooMany, find_later, move_entry, quarantine
from curtainwall.host.files.later import clear_setid


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path.resolve() / "project"
    made.mkdir()
    yield made
    # What is deep enough could not be removed along with the directories of tests.
    subprocess.run(["rm", "-rf", made], check=True)


def _still_there(project: Path) -> list[str]:
    return sorted(path.removeprefix(f"{project}/") for path in find_later(str(project)).likenesses)


def test_a_name_as_long_as_names_can_be_is_taken_back(project: Path) -> None:
    before = find_later(str(project))
    (project / f"{'a' * 251}.pth").touch()
    ((_, aside),) = quarantine(str(project), before, ())
    assert aside is not None
    assert _still_there(project) == []


def test_what_lies_in_what_was_taken_back_is_taken_back_too(project: Path) -> None:
    before = find_later(str(project))
    (project / ".vscode/.claude/.idea").mkdir(parents=True)
    (project / ".vscode/.claude/.envrc").touch()
    (project / ".vscode/.vscode").mkdir()
    quarantine(str(project), before, ())
    assert _still_there(project) == []


def test_a_closed_directory_does_not_keep_what_was_left_in_it(project: Path) -> None:
    """As a plain user: root is kept out by no mode."""
    if os.geteuid() == 0:
        os.chown(project, 65534, 65534)
        for above in (project.parent, *project.parents):
            above.chmod(above.stat().st_mode | 0o111) if above.is_relative_to("/tmp/") else None
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            before = find_later(str(project))
            (project / ".envrc").touch()
            (project / "inner/.vscode").mkdir(parents=True)
            (project / "inner/.vscode").chmod(0o555)
            (project / ".git").mkdir(mode=0)
            (project / "inner").chmod(0o555)
            project.chmod(0o555)
            held = quarantine(str(project), before, ())
            code = 0 if len(held) == 3 and all(aside for _, aside in held) and not _still_there(project) else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_nothing_hides_deeper_than_a_path_can_be_long(project: Path) -> None:
    before, name = find_later(str(project)), "n" * 200
    here = os.open(project, os.O_RDONLY)
    for _ in range(45):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open(".envrc", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    with pytest.raises(TooMany):
        find_later(str(project))
    quarantine(str(project), before, ())
    assert _still_there(project) == []
    # What is left can be moved about: nothing in it runs.
    move_entry(str(project / name), str(project / "moved"))
    assert _still_there(project) == []


@pytest.mark.parametrize("levels", [1_500, 2_500], ids=["deeper than Python calls itself", "deeper than a path can be long"])
@pytest.mark.parametrize("name", [".vscode", ".git/hooks"])
def test_no_depth_of_what_was_left_keeps_us_from_taking_it_all_back(project: Path, name: str, levels: int) -> None:
    before = find_later(str(project))
    (project / name).mkdir(parents=True)
    here = os.open(project / name, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    (project / ".envrc").touch()
    quarantine(str(project), before, ())
    assert {found.name for found in project.iterdir()} >= {".envrc.held", f"{name.partition('/')[0]}.held"}
    assert _still_there(project) == []


def test_a_git_directory_of_any_name_is_taken_back(project: Path) -> None:
    before, trap, ran = find_later(str(project)), project / "docs", project.parent / "ran"
    for name in ("objects", "refs"):
        (trap / name).mkdir(parents=True)
    (trap / "HEAD").write_text("ref: refs/heads/main\n")
    settings = ("repositoryformatversion = 0", "bare = false", f"worktree = {project}", f'fsmonitor = "touch {ran}; false"')
    (trap / "config").write_text("[core]\n" + "\n".join(settings) + "\n")
    quarantine(str(project), before, ())
    subprocess.run(["git", "status"], cwd=trap, capture_output=True, check=False)
    assert not ran.exists()


def test_a_git_directory_that_lies_elsewhere_in_the_project_keeps_its_config(project: Path) -> None:
    subprocess.run(["git", "init", "--quiet", f"--separate-git-dir={project}/store", str(project)], check=True)
    before = find_later(str(project))
    assert f"{project}/store/config" in before.fixed(git_works=False)
    assert f"{project}/store/config" in before.fixed(git_works=True)
    assert f"{project}/store/HEAD" not in before.fixed(git_works=True)
    (project / "store/hooks").mkdir(exist_ok=True)
    (project / "store/hooks/pre-commit").touch()
    quarantine(str(project), before, ())
    assert not (project / "store/hooks/pre-commit").exists()


def _git_project(project: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(project)], check=True)
    for name in (".claude/settings.json", ".husky/pre-push", ".git/hooks/pre-commit.sample"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("the user's")


@pytest.mark.parametrize("git_works", [False, True])
@pytest.mark.parametrize("target", [".claude/settings.json", ".husky/pre-push", ".git/objects", ".git/hooks/pre-commit.sample", ".git"])
def test_a_link_to_what_a_command_cannot_rename_does_not_have_us_rename_it(project: Path, target: str, git_works: bool) -> None:
    _git_project(project)
    before = find_later(str(project))
    (project / ".bashrc").symlink_to(target)
    (project / "sub").mkdir()
    (project / "sub/.git").symlink_to(project / target)
    held = quarantine(str(project), before, before.fixed(git_works=git_works))
    assert {path for path, _ in held} == {f"{project}/.bashrc", f"{project}/sub/.git"}
    assert (project / target).exists()
    subprocess.run(["git", "status"], cwd=project, capture_output=True, check=True)


@pytest.mark.parametrize("elsewhere", [".claude", "plain"])
def test_a_link_of_the_users_that_is_led_elsewhere_is_set_aside_itself(project: Path, elsewhere: str) -> None:
    _git_project(project)
    for name in ("way", "plain"):
        (project / name).mkdir()
        (project / name / "settings.json").write_text("the user's")
    (project / ".envrc").symlink_to("way/settings.json")
    before = find_later(str(project))
    (project / "way").rename(project / "old")
    (project / "way").symlink_to(elsewhere)
    held = quarantine(str(project), before, before.fixed(git_works=False))
    assert [path for path, _ in held] == [f"{project}/.envrc"]
    assert (project / elsewhere / "settings.json").exists()


def test_what_is_made_where_a_link_of_the_users_led_to_nothing_is_set_aside(project: Path) -> None:
    (project / "ok").mkdir()
    (project / ".envrc").symlink_to("ok/new.txt")
    before = find_later(str(project))
    (project / "ok/new.txt").write_text("evil")
    held = quarantine(str(project), before, before.fixed(git_works=False))
    assert held == ((f"{project}/ok/new.txt", f"{project}/ok/new.txt.held"),)


def test_what_is_made_in_an_open_git_directory_takes_the_link_to_it_away(project: Path) -> None:
    _git_project(project)
    (project / ".envrc").symlink_to(".git/new.txt")
    before = find_later(str(project))
    (project / ".git/new.txt").write_text("evil")
    held = quarantine(str(project), before, before.fixed(git_works=True))
    assert [path for path, _ in held] == [f"{project}/.envrc"]


def test_a_link_put_in_the_way_of_its_bits_has_nothing_outside_changed(tmp_path: Path, project: Path) -> None:
    outside = tmp_path.resolve() / "outside"
    outside.mkdir()
    (outside / "sudo").touch()
    (outside / "sudo").chmod(0o4755)
    (project / "directory").symlink_to(outside)
    (project / "sudo").symlink_to(outside / "sudo")
    for path in ("directory/sudo", "sudo"):
        with suppress(OSError):
            assert not clear_setid(f"{project}/{path}")
    assert (outside / "sudo").stat().st_mode & 0o7777 == 0o4755
    assert clear_setid(f"{outside}/sudo")
    assert (outside / "sudo").stat().st_mode & 0o7777 == 0o755


def test_an_agent_in_a_container_leaves_no_program_that_runs_as_its_owner(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "deep").mkdir(parents=True)
    for name in ("mine", "deep/its", "its"):
        (project / name).touch()
    (project / "mine").chmod(0o4755)
    folders = ContainerFolders(project, tmp_path / "s/orientation", tmp_path / "run", tmp_path / "s/state", is_own=False)

    async def nothing() -> None:
        return

    async def turn() -> list[str]:
        async with guard_project(folders, nothing, is_free=False) as guard:
            (project / "deep/its").chmod(0o4755)
            (project / "its").chmod(0o2711)
        return guard.notes

    told = asyncio.run(turn())
    modes = {path.name: oct(path.stat().st_mode & 0o7777) for path in (project / "mine", project / "its")}
    assert modes == {"mine": "0o4755", "its": "0o711"}
    assert oct((project / "deep/its").stat().st_mode & 0o7777) == "0o755"
    assert len([line for line in told if "run as its owner" in line]) == 2
