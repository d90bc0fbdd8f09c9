"""An installation without an extra works, and what needs the extra says how to install it."""

import json
from pathlib import Path

import pytest

from tests.support.covers import covers
from tests.support.without import without

MATRIX = """
channels.matrix.operators = ["@ann:example.org"]
web.enabled = false
matrix.homeserver = "http://127.0.0.1:1"
matrix.user = "@cw:example.org"
matrix.token-env = "TOKEN"
"""


@covers("package.extras-are-named")
def test_the_core_does_a_task_without_any_extra(tmp_path: Path) -> None:
    done = without("all", tmp_path, "start", "write 'hello' to greeting.txt")
    assert done.returncode == 0, done.stderr
    assert [path.read_text() for path in tmp_path.rglob("greeting.txt")] == ["hello"]


@covers("package.extras-are-named")
@pytest.mark.parametrize(
    ("extra", "words", "config"),
    [
        ("docker", ["agents", "build", "codex"], ""),
        ("web", ["web", "link"], ""),
        ("web", ["serve"], ""),
        ("matrix", ["serve"], MATRIX),
    ],
)
def test_what_needs_a_missing_extra_says_how_to_install_it(extra: str, words: list[str], config: str, tmp_path: Path) -> None:
    (tmp_path / "cw").mkdir(mode=0o700)
    (tmp_path / "cw/config.toml").write_text(config)
    done = without(extra, tmp_path, *words)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith(f"is not installed; install it with `pip install 'curtainwall[{extra}]'`")


def test_the_doctor_names_the_missing_extra_and_goes_on(tmp_path: Path) -> None:
    done = without("docker", tmp_path, "doctor")
    assert "pip install 'curtainwall[docker]'" in " ".join(done.stdout.split())
    assert "fault of ours" not in done.stderr


def test_agents_that_need_a_missing_extra_are_listed_with_what_they_lack(tmp_path: Path) -> None:
    done = without("docker", tmp_path, "agents", "list", "--output", "json")
    assert done.returncode == 0, done.stderr
    reasons = {agent["name"]: agent["why"] for agent in json.loads(done.stdout)}
    assert reasons["builtin"] == ""
    assert "curtainwall[docker]" not in reasons["claude-local"]
    for name in ("claude-code", "codex", "opencode", "gemini"):
        assert reasons[name] == "`aiodocker` is not installed; install it with `pip install 'curtainwall[docker]'`"


def test_old_sessions_are_cleaned_without_any_extra(tmp_path: Path) -> None:
    assert without("all", tmp_path, "start", "write 'hello' to greeting.txt").returncode == 0
    done = without("all", tmp_path, "sessions", "clean", "--older-than", "0s", "--yes", "--output", "json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["deleted"]) == 1
