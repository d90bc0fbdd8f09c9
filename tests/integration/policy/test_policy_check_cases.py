"""The cases that every version must decide as written here, through the real program."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import Program, make_program

READ, WRITE, MANY, MOVE, EDIT = (
    f"filesystem.{name}" for name in ("read_file", "write_file", "read_multiple_files", "move_file", "edit_file")
)
FETCH, PUSH, PULL, CLONE, SHELL = "fetch.get", "git.push", "git.fetch", "git.clone", "shell.run"
EDITS = [{"oldText": "a", "newText": "b"}]

# Name of the group, tool, arguments ({W} workspace, {T} the directory around it, {H} our home), and the effects that are right.
TABLE: list[tuple[str, str, dict[str, Any], str]] = [
    ("plain", READ, {"path": "{W}/a/../b"}, "allow"),
    ("plain", READ, {"path": "{W}/../../../../../../../../etc/passwd"}, "ask"),
    ("plain", READ, {"path": "{W}-evil/x"}, "ask"),
    ("plain", WRITE, {"path": "{W}/dangling", "content": ""}, "ask"),
    ("plain", WRITE, {"path": "{W}/into-home", "content": ""}, "deny"),
    ("plain", WRITE, {"path": "{W}/into-ssh/config", "content": ""}, "deny"),
    ("plain", READ, {"path": "{W}/loop"}, "deny"),
    ("plain", READ, {"path": "{W}/a\0b"}, "deny"),
    ("plain", READ, {"path": ""}, "deny"),
    ("plain", READ, {"path": 7}, "deny"),
    ("plain", READ, {"path": None}, "deny"),
    ("plain", READ, {}, "deny"),
    ("plain", READ, {"path": "~/x"}, "ask"),
    ("plain", READ, {"path": "~root/x"}, "deny"),
    ("plain", READ, {"path": "~/.ssh/id_ed25519"}, "deny"),
    ("plain", WRITE, {"path": "~/.bashrc", "content": ""}, "deny"),
    ("plain", READ, {"path": "~/.bashrc"}, "ask"),
    ("plain", MANY, {"paths": ["{W}/a", "/etc/x"]}, "ask"),
    ("plain", MANY, {"paths": ["{W}/a", "{W}/b"]}, "allow"),
    ("plain", MANY, {"paths": ["{W}/a", ["/etc/passwd"]]}, "deny"),
    ("plain", MOVE, {"source": "/etc/a", "destination": "{W}/a"}, "ask"),
    ("plain", "filesystem.rm_rf", {"path": "{W}/a"}, "deny"),
    ("plain", READ, {"path": "{W}/a", "follow": True}, "deny"),
    ("plain", EDIT, {"path": "/etc/hosts", "edits": EDITS, "dryRun": "true"}, "deny"),
    ("plain", EDIT, {"path": "{W}/a", "edits": EDITS, "dryRun": True}, "allow"),
    ("plain", READ, {"path": "{H}/curtainwall.db"}, "deny"),
    ("plain", READ, {"path": "{H}/policy/mine.cedar"}, "deny"),
    ("plain", READ, {"path": "{H}/config.toml"}, "deny"),
    ("plain", READ, {"path": "{H}/sessions/other/workspace/x"}, "deny"),
    ("plain", "filesystem.delete_file", {"path": "{T}"}, "deny"),
    ("plain", FETCH, {"url": "https://listed.host@evil.com/"}, "ask"),
    ("plain", FETCH, {"url": "https://listed.host\\@evil.com"}, "deny"),
    ("listed", FETCH, {"url": "https://listed.host/a"}, "allow"),
    ("listed", FETCH, {"url": "https://listed.host@evil.com/"}, "ask"),
    ("listed", FETCH, {"url": "https://listed.host\\@evil.com"}, "deny"),
    ("listed", FETCH, {"url": "https://listed.host/a", "body": "x"}, "ask"),
    ("star", FETCH, {"url": "https://anywhere.org/"}, "allow"),
    *(
        ("star", FETCH, {"url": url}, "ask or deny")
        for url in (
            "http://127.1/", "http://0x7f000001/", "http://[::ffff:169.254.169.254]/", "http://localhost/", "http://169.254.169.254/latest",
            "http://metadata.google.internal/", "file:///etc/passwd", "data:text/plain,x", "http://10.0.0.1/", "http://2130706433/",
            "http://[::1]/", "ftp://example.com/",
        )
    ),
    *(
        ("remotes", CLONE, {"url": url, "path": "{W}/r"}, effect)
        for url, effect in (
            ("git@github.com:me/r.git", "allow"), ("https://github.com/me/r", "allow"), ("ssh://git@github.com/me/r/", "allow"),
            ("https://github.com/me/../evil/r", "ask or deny"), ("https://github.com/evil/r", "ask"), ("ext::sh -c x", "deny"),
            ("/etc", "deny"), ("--upload-pack=x", "deny"),
        )
    ),
    ("remotes", PULL, {"path": "{W}/repo", "remote": "origin"}, "allow"),
    ("remotes", PUSH, {"path": "{W}/repo", "remote": "origin"}, "ask"),
    ("remotes", PUSH, {"path": "{W}/repo", "remote": "https://github.com/me/r"}, "ask"),
    ("remotes", PUSH, {"path": "{W}/repo", "remote": "https://github.com/me/pushed"}, "allow"),
    ("imported", SHELL, {"command": "git status"}, "allow"),
    ("imported", SHELL, {"command": "git status && rm -rf /"}, "ask"),
    ("imported", SHELL, {"command": "git status\nrm x"}, "ask"),
    ("imported", SHELL, {"command": "git $(rm x)"}, "ask"),
    ("plan", WRITE, {"path": "{W}/a", "content": ""}, "deny"),
    ("plan", READ, {"path": "{W}/a"}, "allow"),
    ("project", READ, {"path": "{W}/a"}, "allow"),
    ("project", WRITE, {"path": "{W}/a", "content": ""}, "ask"),
    ("project", WRITE, {"path": "{W}/.git/hooks/pre-commit", "content": ""}, "ask"),
    ("accepting", WRITE, {"path": "{W}/a", "content": ""}, "allow"),
    ("accepting", WRITE, {"path": "{W}/.git/hooks/pre-commit", "content": ""}, "ask"),
    ("touched", FETCH, {"url": "https://listed.host/a"}, "ask"),
]  # fmt: skip

LISTS = {
    "listed": '[lists]\nhosts = ["listed.host"]\n',
    "touched": '[lists]\nhosts = ["listed.host"]\n',
    "star": '[lists]\nhosts = ["*"]\n',
    "remotes": '[lists]\nremotes = ["github.com/me/r"]\npush-remotes = ["github.com/me/pushed"]\n',
}
WRITERS = '@id("writers") permit (principal, action == Action::"write-path", resource);\n'
GIT = """
[core]
\trepositoryformatversion = 0
[remote "origin"]
\turl = https://github.com/me/r
\tpushurl = git@github.com:me/elsewhere.git
[url "https://github.com/evil/"]
\tpushInsteadOf = https://github.com/gentle/
[remote "gentle"]
\turl = https://github.com/gentle/r
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Return a workspace with every trap of the table in it."""
    program = make_program(tmp_path_factory.mktemp("cases").resolve())
    work = program.workspace
    (work / "dangling").symlink_to(program.scratch / "nowhere" / "x")
    (work / "into-home").symlink_to(program.home / "policy" / "evil.cedar")
    (work / "into-ssh").symlink_to(program.scratch / "user" / ".ssh")
    (work / "loop").symlink_to("loop")
    git = work / "repo" / ".git"
    for directory in ("objects", "refs"):
        (git / directory).mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text(GIT)
    (program.scratch / "writers.cedar").write_text(WRITERS)
    (program.scratch / "claude.json").write_text(json.dumps({"permissions": {"allow": ["Bash(git *)"]}}))
    return program


@pytest.fixture(scope="module")
def verdicts(world: Program) -> dict[int, dict[str, Any]]:
    """Judge the whole table, one process per group."""
    return {number: verdict for group in {row[0] for row in TABLE} for number, verdict in judge_group(world, group).items()}


def judge_group(world: Program, group: str) -> dict[int, dict[str, Any]]:
    world.home.mkdir(exist_ok=True)
    (world.home / "config.toml").write_text(LISTS.get(group, ""))
    rules = world.scratch / "imported.cedar"
    if group == "imported":
        rules.write_text(world("policy", "import", world.scratch / "claude.json", "--workspace", world.workspace).stdout)
    options: dict[str, tuple[str | Path, ...]] = {
        "plan": ("--mode", "plan", "--policy", world.scratch / "writers.cedar"),
        "project": ("--project", world.workspace),
        "accepting": ("--project", world.workspace, "--mode", "accept-edits"),
        "touched": ("--labels", "sensitive"),
        "imported": ("--policy", rules),
    }
    numbers = [number for number, row in enumerate(TABLE) if row[0] == group]
    calls = [{"tool": TABLE[number][1], "arguments": filled(TABLE[number][2], world)} for number in numbers]
    return dict(zip(numbers, world.check(*calls, options=options.get(group, ())), strict=True))


def filled(value: Any, world: Program) -> Any:
    if isinstance(value, str):
        return value.replace("{W}", str(world.workspace)).replace("{T}", str(world.scratch)).replace("{H}", str(world.home))
    if isinstance(value, dict):
        return {name: filled(inner, world) for name, inner in value.items()}
    return [filled(inner, world) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("number", "row"), list(enumerate(TABLE)), ids=[f"{row[0]}-{row[1]}-{json.dumps(row[2])[:60]}" for row in TABLE])
def test_the_case_is_decided_as_written(
    number: int, row: tuple[str, str, dict[str, Any], str], verdicts: dict[int, dict[str, Any]]
) -> None:
    verdict = verdicts[number]
    assert verdict["effect"] in row[3].split(" or "), verdict
    assert verdict["because"], "a verdict never travels without its rules"


def resources(verdict: dict[str, Any], role: str) -> list[str]:
    return [it["value"] for it in verdict["resources"] if it["role"] == role]


def test_a_home_path_is_the_users_own(world: Program) -> None:
    (verdict,) = world.check({"tool": READ, "arguments": {"path": "~/x"}})
    assert resources(verdict, "read-path") == [str(world.scratch / "user" / "x")]


def test_moving_asks_for_reading_and_deleting_the_source(world: Program) -> None:
    (verdict,) = world.check({"tool": MOVE, "arguments": {"source": "/etc/a", "destination": str(world.workspace / "a")}})
    assert resources(verdict, "read-path") == resources(verdict, "delete-path") == ["/etc/a"]
    assert resources(verdict, "write-path") == [str(world.workspace / "a")]


def test_user_information_in_a_url_is_not_its_host(world: Program) -> None:
    (verdict,) = world.check({"tool": FETCH, "arguments": {"url": "https://listed.host@evil.com/"}})
    assert resources(verdict, "fetch-url") == ["https://evil.com"]


def test_spellings_of_one_remote_are_one_remote(world: Program) -> None:
    urls = ["git@github.com:me/r.git", "https://github.com/me/r", "ssh://git@github.com/me/r/"]
    verdicts = world.check(*({"tool": CLONE, "arguments": {"url": url, "path": "r"}} for url in urls))
    assert [resources(verdict, "read-remote") for verdict in verdicts] == [["github.com/me/r"]] * 3


def test_a_push_goes_where_git_would_push(world: Program) -> None:
    repo = str(world.workspace / "repo")
    verdicts = world.check(*({"tool": PUSH, "arguments": {"path": repo, "remote": name}} for name in ("origin", "gentle")))
    assert [resources(verdict, "write-remote") for verdict in verdicts] == [["github.com/me/elsewhere"], ["github.com/evil/r"]]
