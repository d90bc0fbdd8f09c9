"""Files that are named like secrets, read or published by git in calls that do not name them, so that they would set no label."""

import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from curtainwall.policy import SECRET_PATTERNS, is_secret_name
from tests.support.machines import Machine

pytestmark = pytest.mark.usefixtures("bubblewrap")

WORDS = "plain words that no mask would hide"


def git(where: Path, *words: str) -> str:
    named = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    return subprocess.run(["git", *named, *words], cwd=where, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A repository with a secret in its history, in its last commit, and changed since."""
    made = Machine.at(tmp_path)
    where = made.workspace
    git(where, "init", "-q")
    for number in range(2):
        (where / "deep").mkdir(exist_ok=True)
        for name in (".env", "deep/Server.KEY"):
            (where / name).write_text(f"{WORDS} {number}\n")
        for name in ("notes.txt", ".env.example"):
            (where / name).write_text(f"harmless {number}\n")
        git(where, "add", "--all")
        git(where, "commit", "-qm", f"the {number}. commit")
    for name in (".env", "deep/Server.KEY", "notes.txt"):
        (where / name).write_text(f"{WORDS if name != 'notes.txt' else 'harmless'} changed\n")
    return made


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("git.show", {"ref": "HEAD"}),
        ("git.show", {"ref": "HEAD~1"}),
        ("git.show", {"ref": ":/commit"}),
        ("git.show", {"ref": "HEAD^{/commit}"}),
        ("git.diff", {}),
        ("git.diff", {"ref": "HEAD~1"}),
        ("git.diff", {"ref": "HEAD~1..HEAD"}),
        ("git.diff", {"files": ["."]}),
        ("git.diff", {"files": ["deep", "notes.txt"]}),
    ],
)
def test_what_a_commit_or_a_directory_holds_is_shown_without_its_secrets(
    machine: Machine, tool: str, arguments: dict[str, str | list[str]]
) -> None:
    told = machine.done(tool, **arguments)
    assert "harmless" in told
    assert WORDS not in told
    assert "left out, because of names that secrets have" in told
    assert "deep/Server.KEY" in told.rpartition("left out")[2]


def test_what_is_named_is_shown_and_was_judged_by_its_name(machine: Machine) -> None:
    assert WORDS in machine.done("git.show", ref="HEAD:.env")
    assert WORDS in machine.done("git.diff", files=[".env"])
    for prepared in (machine.prepare("git.show", ref="HEAD:.env"), machine.prepare("git.diff", files=[".env"])):
        assert any(is_secret_name(it.value) for it in prepared.subject.resources)
    assert "harmless" in machine.done("git.show", ref="HEAD:.env.example")
    assert "harmless" in machine.done("git.diff", ref="HEAD~1", files=[".env.example"])


@pytest.mark.parametrize("spelling", ["{}", "{:.4}", "{}^{{}}", "{}^{{blob}}", "kept", "{}..HEAD:notes.txt", "HEAD:notes.txt..{}"])
def test_a_secret_by_its_id_alone_is_not_shown(machine: Machine, spelling: str) -> None:
    name = git(machine.workspace, "rev-parse", "HEAD:.env")
    git(machine.workspace, "tag", "-a", "-m", "x", "kept", name)
    ref = spelling.format(name)
    assert "name it by a commit and its path" in machine.fault("git.diff" if ".." in ref else "git.show", ref=ref)


def test_a_directory_is_staged_without_its_secrets(machine: Machine) -> None:
    (machine.workspace / ".env.local").write_text(WORDS)
    told = machine.done("git.add", files=["."])
    assert "left out" in told
    assert ".env.local" in told
    assert git(machine.workspace, "diff", "--cached", "--name-only") == "notes.txt"
    machine.done("git.add", files=[".env.local"])
    (machine.workspace / ".env.example").write_text("harmless, and named")
    machine.done("git.add", files=[".env.example"])
    assert git(machine.workspace, "diff", "--cached", "--name-only").split() == [".env.example", ".env.local", "notes.txt"]


@pytest.mark.parametrize("name", [".env", ".ENV", ".env.production", "id_rsa", "x.pem", "X.Key", "credentials.json", ".npmrc"])
def test_every_name_of_a_secret_matches_a_pattern(name: str) -> None:
    assert is_secret_name(f"/w/{name}")
    assert any(fnmatchcase(name.lower(), pattern) for pattern in SECRET_PATTERNS)
