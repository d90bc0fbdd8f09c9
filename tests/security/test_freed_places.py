"""A file that a mount keeps is free once somebody outside puts another one in its place, as git and editors do that save one."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from curtainwall.host import Bounds, Confinement, Finished, find_later, quarantine, run_confined
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("bubblewrap")

PLANTED = "[core] fsmonitor = evil\n"
# It tries until it may, and until its words are there: for a moment it may write to the file that is being replaced.
PLANTS = f"touch begun; until printf '{PLANTED}' 2>/dev/null >> .git/config && grep -q evil .git/config; do sleep 0.01; done"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "project"
    subprocess.run(["git", "init", "-q", made], check=True)
    return made


def git(project: Path, *words: str) -> None:
    subprocess.run(["git", "-C", project, *words], check=True)


def test_what_is_written_where_somebody_outside_freed_a_place_is_taken_back(project: Path) -> None:
    kept = (project / ".git/config").read_text()
    before = find_later(str(project))
    fixed = before.fixed(git_works=True)

    async def work() -> Finished:
        inside = Confinement(cwd=str(project), writable=(str(project), *before.git), fixed=fixed, bounds=Bounds(seconds=20))
        running = asyncio.create_task(run_confined(["/bin/bash", "-c", PLANTS], inside))
        await eventually((project / "begun").exists)
        git(project, "config", "user.name", "Ann")
        return await running

    assert asyncio.run(work()).code == 0
    assert PLANTED in (project / ".git/config").read_text(), "the place was free"
    assert dict(quarantine(str(project), before, fixed)) == {f"{project}/.git/config": f"{project}/.git/config.held"}
    assert (project / ".git/config").read_text() == kept
    assert PLANTED in (project / ".git/config.held").read_text()


def test_that_a_branch_follows_another_is_noted_while_an_agent_works(project: Path) -> None:
    git(project, "remote", "add", "origin", "https://git.example/a/b")
    before = find_later(str(project))
    git(project, "config", "branch.main.remote", "origin")
    git(project, "config", "branch.main.merge", "refs/heads/main")
    assert quarantine(str(project), before, before.fixed(git_works=True)) == ()
    git(project, "config", "branch.main.remote", "https://evil.example/a/b")
    assert [path for path, _ in quarantine(str(project), before, before.fixed(git_works=True))] == [f"{project}/.git/config"]


def test_a_file_of_the_same_number_is_another_file(tmp_path: Path) -> None:
    """Numbers of files are given again; the one that was mounted is not there any more."""
    root = tmp_path.resolve()
    (root / ".envrc").write_text("the user's")
    number = (root / ".envrc").stat().st_ino
    before = find_later(str(root))
    (root / ".envrc").unlink()
    for count in range(2_000):
        made = root / f"{count}"
        made.write_text("evil")
        if made.stat().st_ino == number:
            made.rename(root / ".envrc")
            break
    else:
        pytest.skip("this disk gives no number again")
    assert [path for path, _ in quarantine(str(root), before, before.fixed(git_works=False))] == [f"{root}/.envrc"]
