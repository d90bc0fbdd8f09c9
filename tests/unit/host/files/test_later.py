import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from curtainwall.host import TooMany, find_later, quarantine
from curtainwall.host.files.later import MAX_FIXED


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = Path(os.path.realpath(tmp_path)) / "p"
    for name in ("src/deep", ".git/hooks", ".git/objects", ".vscode"):
        (root / name).mkdir(parents=True)
    for name in ("src/main.py", ".git/config", ".git/HEAD", ".vscode/tasks.json", "src/deep/.envrc"):
        (root / name).write_text("x")
    return root


def names(paths: tuple[str, ...], root: Path) -> set[str]:
    return {os.path.relpath(path, root) for path in paths}


def test_what_runs_later_is_found_at_any_depth(project: Path) -> None:
    found = find_later(str(project))
    assert names(found.fixed(git_works=False), project) == {".git", ".vscode", "src/deep/.envrc"}


def test_where_git_works_its_directory_is_open_but_for_what_it_runs(project: Path) -> None:
    found = find_later(str(project))
    assert names(found.fixed(git_works=True), project) == {".git/hooks", ".git/config", ".vscode", "src/deep/.envrc"}
    assert found.git == (str(project / ".git"),)


def test_of_a_directory_only_the_part_that_runs_is_kept(project: Path) -> None:
    for name in (".cargo/config.toml", ".cargo/audit.toml", "sub/.forgejo/workflows/ci.yml", "sub/.forgejo/template.md"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("x")
    kept = names(find_later(str(project)).fixed(git_works=False), project)
    assert kept >= {".cargo/config.toml", "sub/.forgejo/workflows"}
    assert not kept & {".cargo", ".cargo/audit.toml", "sub/.forgejo"}


def test_a_link_in_place_of_a_directory_that_may_hold_such_names_is_set_aside(project: Path) -> None:
    before = find_later(str(project))
    (project / "plain").mkdir()
    (project / "plain/config.toml").write_text("evil")
    (project / ".cargo").symlink_to("plain")
    assert str(project / ".cargo") in dict(quarantine(str(project), before, ()))


def test_nothing_is_set_aside_when_nothing_came(project: Path) -> None:
    before = find_later(str(project))
    (project / "src/new.py").write_text("x")
    (project / ".git/HEAD").write_text("y")
    assert quarantine(str(project), before, ()) == ()


def test_what_came_is_renamed_and_never_deleted(project: Path) -> None:
    before = find_later(str(project))
    (project / "src/.envrc").write_text("evil")
    (project / "src/.idea").mkdir()
    (project / "src/.idea/run.xml").write_text("evil")
    (project / ".git/commondir").write_text("../evil")
    held = dict(quarantine(str(project), before, ()))
    assert {os.path.relpath(path, project) for path in held} == {"src/.envrc", "src/.idea", ".git/commondir"}
    assert not (project / "src/.envrc").exists()
    assert (project / "src/.envrc.held").read_text() == "evil"
    assert (project / "src/.idea.held/run.xml").exists()
    assert not (project / ".git/commondir").exists()
    assert quarantine(str(project), before, ()) == ()


def test_a_name_that_is_taken_gets_a_number(project: Path) -> None:
    before = find_later(str(project))
    (project / ".envrc.held").write_text("old")
    (project / ".envrc").write_text("evil")
    ((_, aside),) = quarantine(str(project), before, ())
    assert aside == str(project / ".envrc.held2")
    assert (project / ".envrc.held").read_text() == "old"


def test_a_change_in_what_no_mount_keeps_is_seen_also_deep_inside(project: Path) -> None:
    before = find_later(str(project))
    (project / ".vscode/tasks.json").write_text("evil")
    assert [path for path, _ in quarantine(str(project), before, ())] == [str(project / ".vscode")]


def test_what_a_mount_keeps_is_the_users_to_change_meanwhile(project: Path) -> None:
    before = find_later(str(project))
    (project / ".vscode/tasks.json").write_text("the user's")
    assert quarantine(str(project), before, before.fixed(git_works=False)) == ()


def test_a_git_directory_that_was_exchanged_is_set_aside(project: Path) -> None:
    before = find_later(str(project))
    (project / ".git").rename(project / "old")
    (project / ".git/hooks").mkdir(parents=True)
    assert [path for path, _ in quarantine(str(project), before, ())] == [str(project / ".git")]


def test_a_link_is_kept_by_what_it_leads_to(project: Path) -> None:
    (project / "AGENTS.md").write_text("obey")
    (project / "docs.md").write_text("obey too")
    (project / "CLAUDE.md").symlink_to("docs.md")
    before = find_later(str(project))
    assert {"docs.md", "AGENTS.md"} <= names(before.fixed(git_works=False), project)
    assert "CLAUDE.md" not in names(before.fixed(git_works=False), project)
    (project / "CLAUDE.md").unlink()
    (project / "CLAUDE.md").symlink_to("src/main.py")
    assert str(project / "CLAUDE.md") in dict(quarantine(str(project), before, before.fixed(git_works=False)))


def test_those_nearest_to_the_root_come_first(project: Path) -> None:
    for number in range(300):
        (project / f"src/deep/{number}").mkdir()
        (project / f"src/deep/{number}/.npmrc").write_text("x")
    fixed = find_later(str(project)).fixed(git_works=False)
    assert len(fixed) == MAX_FIXED
    assert {".git", ".vscode"} <= names(fixed, project)


def test_a_project_without_end_is_refused(project: Path) -> None:
    with pytest.raises(TooMany):
        find_later(str(project), most=5)


HIDING = """
import os, sys
from curtainwall.host import find_later, quarantine
root = sys.argv[1]
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
before = find_later(root)
os.mkdir(f"{root}/sub")
for place in (root, f"{root}/sub"):
    open(f"{place}/.envrc", "w").close()
os.chmod(f"{root}/sub", 0o311)
os.chmod(root, 0o311)
print(sorted(os.path.relpath(path, root) for path, aside in quarantine(root, before, ()) if aside))
"""


def test_nothing_hides_in_a_directory_that_cannot_be_listed() -> None:
    # Not in pytest's own directory, which an ordinary user cannot enter where the tests run as root.
    with tempfile.TemporaryDirectory() as made:
        root = Path(os.path.realpath(made))
        if os.geteuid() == 0:
            os.chown(root, 65534, 65534)
        done = subprocess.run([sys.executable, "-c", HIDING, str(root)], capture_output=True, text=True, check=False)
    assert done.stdout == "['.envrc', 'sub/.envrc']\n", done.stderr


def test_nothing_hides_among_many(project: Path) -> None:
    before = find_later(str(project), most=50)
    for number in range(60):
        (project / f"src/{number}").touch()
    (project / "src/.envrc").touch()
    assert [path for path, _ in quarantine(str(project), before, ())] == [str(project / "src/.envrc")]
