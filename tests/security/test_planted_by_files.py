"""Ways around names: a git directory that is called something else, and a file that is read out of a revision."""

import itertools
import os
import subprocess
from pathlib import Path

import pytest
from pydantic import JsonValue

from curtainwall.compose.trial import Judge
from curtainwall.facts import Masker
from curtainwall.model import BadCall, Effect, Mode, Workspace
from curtainwall.policy import SessionFacts, labels_of
from curtainwall.session import Rules
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools
from tests.support.covers import covers
from tests.support.policies import policy

CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tfsmonitor = touch /tmp/never\n"
STEPS: dict[str, tuple[str, dict[str, JsonValue]]] = {
    "HEAD": ("filesystem.write_file", {"path": "x/HEAD", "content": "ref: refs/heads/main\n"}),
    "objects": ("filesystem.create_directory", {"path": "x/objects"}),
    "refs": ("filesystem.create_directory", {"path": "x/refs/heads"}),
    "config": ("filesystem.write_file", {"path": "x/config", "content": CONFIG}),
    "moved": ("filesystem.move_file", {"source": "plain", "destination": "x/HEAD"}),
    "shell": ("shell.run", {"command": "echo ref: refs/heads/main > x/HEAD"}),
}


def judge_in(project: Path, rules: str = "", *, own: bool = False) -> Judge:
    tools = NativeTools(Catalogue(NATIVE_TOOLS), home="/home/nobody", masker=Masker(b"k" * 32))
    facts = SessionFacts("s1", "builtin", Workspace(path=str(project), own=own), Mode.ACCEPT_EDITS, "local", frozenset())
    return Judge(Rules(policy=policy(rules)), tools, facts)


def carry_out(project: Path, step: str) -> None:
    (project / "x").mkdir(exist_ok=True)
    if step in {"objects", "refs"}:
        (project / "x" / step).mkdir()
    elif step == "config":
        (project / "x" / "config").write_text(CONFIG)
    else:
        (project / "x" / "HEAD").write_text("ref: refs/heads/main\n")


def is_gits(project: Path) -> bool:
    environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CEILING_DIRECTORIES": str(project)}
    return (
        subprocess.run(
            ["git", "-C", str(project / "x"), "rev-parse", "--git-dir"], env=environ, capture_output=True, check=False
        ).returncode
        == 0
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = Path(os.path.realpath(tmp_path)) / "p"
    (root / "x").mkdir(parents=True)
    (root / "plain").write_text("ref: refs/heads/main\n")
    return root


ORDERS = [order for head in ("HEAD", "moved", "shell") for order in itertools.permutations((head, "objects", "refs", "config"))]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_no_order_of_writes_makes_a_git_directory_without_a_question(project: Path, order: tuple[str, ...]) -> None:
    judge = judge_in(project)
    effects = {}
    for step in order:
        effects[step] = judge.call(*STEPS[step]).verdict.effect
        if effects[step] is Effect.ALLOW:
            carry_out(project, step)
    assert not is_gits(project)
    assert effects["config"] is Effect.ALLOW, "what makes none is not asked about"
    for step in order:
        if effects[step] is not Effect.ALLOW:
            carry_out(project, step)
    assert is_gits(project), "with all of them it would have been one"


def test_calls_at_once_do_not_make_one_together(project: Path) -> None:
    for there in ([], ["HEAD"], ["objects"], ["objects", "refs"], ["HEAD", "objects"]):
        for step in there:
            carry_out(project, step)
        wanted = [step for step in ("HEAD", "objects", "refs") if step not in there]
        judged = {step: judge_in(project).call(*STEPS[step]).verdict.effect for step in wanted}
        for step, effect in judged.items():
            if effect is Effect.ALLOW:
                carry_out(project, step)
        assert not is_gits(project), there
        subprocess.run(["rm", "-r", str(project / "x")], check=True)
        (project / "x").mkdir()


def test_a_git_directory_that_is_there_is_changed_by_nobody_unasked(project: Path) -> None:
    subprocess.run(["git", "init", "--quiet", "--bare", str(project / "x")], check=True, capture_output=True)
    for path in ("x/config", "x/hooks/pre-receive", "x/info/attributes", "x/new"):
        assert judge_in(project).call("filesystem.write_file", {"path": path, "content": ""}).verdict.effect is Effect.ASK
    for path in ("x", "x/hooks"):
        assert judge_in(project).call("filesystem.move_file", {"source": path, "destination": "y"}).verdict.effect is Effect.ASK
    assert judge_in(project, own=True).call("filesystem.write_file", {"path": "x/config", "content": ""}).verdict.effect is Effect.ALLOW


RUN_LATER = [
    ".hg/hgrc", "sub/.helix/languages.toml", ".devcontainer.json", ".agents/skills/x/SKILL.md", ".forgejo/workflows/ci.yml",
    "bitbucket-pipelines.yml", "AGENTS.override.md", "agents.OVERRIDE.md", ".jj/repo/config.toml", ".nvim.lua", "x.sublime-project",
    ".gitpod.yml", "opencode.jsonc", ".clinerules/a.md", ".cargo/config.toml", "rust-toolchain.toml", ".yarn/releases/yarn.cjs",
    "mise.local.toml", "azure-pipelines-nightly.yml", "Jenkinsfile.groovy", ".lintstagedrc.js", ".mvn/jvm.config",
    "gradle/wrapper/gradle-wrapper.properties", ".woodpecker/ci.yml", ".kiro/hooks/a.json", ".github/hooks/a.json", ".user.ini",
]  # fmt: skip


@covers("policy.files-that-run-later")
@pytest.mark.parametrize("name", RUN_LATER)
def test_a_file_that_runs_later_is_not_written_unasked_whatever_program_would_run_it(project: Path, name: str) -> None:
    verdict = judge_in(project).call("filesystem.write_file", {"path": name, "content": "evil"}).verdict
    assert verdict.effect is Effect.ASK
    assert "runs-later" in verdict.because


def test_a_directory_is_not_brought_in_under_a_name_that_makes_a_part_of_it_run(project: Path) -> None:
    (project / "d/wrapper").mkdir(parents=True)
    moved: dict[str, JsonValue] = {"source": "d", "destination": "gradle"}
    assert judge_in(project).call("filesystem.move_file", moved).verdict.effect is Effect.ASK


@pytest.mark.parametrize("name", [".envrc", "deep/er/.git/config", ".vscode/tasks.json", ".github/workflows/x.yml"])
def test_a_directory_is_not_moved_with_what_runs_later_in_it(project: Path, name: str) -> None:
    moved: dict[str, JsonValue] = {"source": "d", "destination": "e"}
    (project / "d" / name).parent.mkdir(parents=True)
    (project / "d" / "plain").write_text("")
    if "/" not in name:
        assert judge_in(project).call("filesystem.move_file", moved).verdict.effect is Effect.ALLOW
    (project / "d" / name).write_text("")
    assert judge_in(project).call("filesystem.move_file", moved).verdict.effect is Effect.ASK


SPELLINGS = ["HEAD:.env", "HEAD:./.env", ":.env", ":0:.env", "HEAD^{tree}:.env", "HEAD:a/../.env", "main:.env", "@:.env", "HEAD~0:.env"]


@pytest.mark.parametrize("ref", SPELLINGS)
@pytest.mark.parametrize("directory", [".", "sub"])
def test_no_spelling_of_a_revision_reads_a_file_that_a_rule_closes(project: Path, ref: str, directory: str) -> None:
    closed = f'@id("closed") forbid (principal, action == Action::"read-path", resource == Path::"{project}/.env");'
    (project / "sub").mkdir()
    (project / ".env").write_text("SECRET")
    quiet = {"PATH": os.environ["PATH"], "HOME": str(project.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "--quiet", "--initial-branch=main"), ("add", ".env"), (*who, "commit", "--quiet", "-m", "x")):
        subprocess.run(["git", "-C", str(project), *words], env=quiet, check=True, capture_output=True)
    shown = subprocess.run(["git", "-C", str(project / directory), "show", ref], env=quiet, check=False, capture_output=True)
    for tool in ("git.show", "git.diff"):
        try:
            effect = judge_in(project, closed).call(tool, {"path": directory, "ref": ref}).verdict.effect
        except BadCall:
            effect = Effect.DENY
        assert b"SECRET" not in shown.stdout or effect is Effect.DENY
        if directory == ".":
            assert effect is Effect.DENY
    assert judge_in(project, closed).call("git.show", {"ref": "HEAD"}).verdict.effect is Effect.ALLOW


def test_a_secret_that_is_read_out_of_a_revision_sets_its_label(project: Path) -> None:
    judge = judge_in(project)
    for ref, labels in (("HEAD:.env", ["sensitive"]), ("HEAD:a.py", []), ("HEAD", [])):
        subject = judge.call("git.show", {"ref": ref}).subject
        assert subject is not None
        assert [label for label, _ in labels_of(judge.rules.policy, subject, judge.facts)] == labels
