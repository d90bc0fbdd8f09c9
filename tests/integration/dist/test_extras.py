"""An installation without an extra works, and what needs the extra says how to install it."""

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
