import pytest

from curtainwall.model import runs_later


@pytest.mark.parametrize(
    "path",
    [
        "/p/.git", "/p/.git/hooks/pre-commit", "/p/sub/.GIT/config", "/p/.envrc", "/p/a/.vscode/tasks.json", "/p/.github/workflows/x.yml",
        "/p/.github", "/p/CLAUDE.md", "/p/.mcp.json", "/p/lib/evil.pth", "/p/.githooks/pre-push", "/p/bare.git/config", "/p/.husky",
    ],
)  # fmt: skip
def test_what_is_known_to_run_later_is_recognised(path: str) -> None:
    assert runs_later(path, "/p")


@pytest.mark.parametrize("path", ["/p", "/p/src/main.py", "/p/.github/ISSUE_TEMPLATE/bug.md", "/p/git", "/p/.envrc.held", "/p/.git.held/x"])
def test_other_files_are_just_files(path: str) -> None:
    assert not runs_later(path, "/p")


def test_only_the_part_inside_the_workspace_counts() -> None:
    assert not runs_later("/home/.claude/p/main.py", "/home/.claude/p")
    assert runs_later("/home/.claude/p/main.py", "/home/.claude/other")
    assert not runs_later("/a", "/")
    assert runs_later("/.envrc", "/")
