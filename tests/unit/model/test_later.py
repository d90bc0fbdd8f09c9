import pytest

from curtainwall.model import LATER_KINDS, is_later_name, runs_later


@pytest.mark.parametrize(
    "path",
    [
        "/p/.git", "/p/.git/hooks/pre-commit", "/p/sub/.GIT/config", "/p/.envrc", "/p/a/.vscode/tasks.json", "/p/.github/workflows/x.yml",
        "/p/.github", "/p/CLAUDE.md", "/p/.mcp.json", "/p/lib/evil.pth", "/p/.githooks/pre-push", "/p/bare.git/config", "/p/.husky",
    ],
)  # fmt: skip
def test_what_is_known_to_run_later_is_recognised(path: str) -> None:
    assert runs_later(path, "/p")


@pytest.mark.parametrize("name", [name for kind in LATER_KINDS for name in kind.names])
def test_every_name_of_the_table_counts_at_any_depth_and_in_any_case(name: str) -> None:
    path = name.replace("*", "x")
    for spelt in (path, path.upper(), f"deep/er/{path}", f"{path}/inside"):
        assert runs_later(f"/p/{spelt}", "/p"), spelt
    above, _, last = path.rpartition("/")
    assert is_later_name(last, above)
    assert not runs_later(f"/p/{path}.held2", "/p")


def test_no_name_is_in_the_table_twice_or_in_a_form_that_is_not_read() -> None:
    names = [name for kind in LATER_KINDS for name in kind.names]
    assert len(set(names)) == len(names)
    assert [
        name for name in names if name != name.casefold() or name.count("*") > 1 or name.count("/") > 1 or {"*", "/"} <= set(name)
    ] == []


@pytest.mark.parametrize(
    "path",
    [
        "/p", "/p/src/main.py", "/p/.github/ISSUE_TEMPLATE/bug.md", "/p/git", "/p/.envrc.held", "/p/.git.held/x", "/p/.gitattributes",
        "/p/Makefile", "/p/package.json", "/p/conftest.py", "/p/.env", "/p/.config/app.toml", "/p/gradle/libs.versions.toml",
        "/p/workflows/a.yml", "/p/.cargo/audit.toml", "/p/config.toml", "/p/docs/agents", "/p/.nvmrc", "/p/.gitignore",
    ],
)  # fmt: skip
def test_other_files_are_just_files(path: str) -> None:
    assert not runs_later(path, "/p")


def test_only_the_part_inside_the_workspace_counts() -> None:
    assert not runs_later("/home/.claude/p/main.py", "/home/.claude/p")
    assert runs_later("/home/.claude/p/main.py", "/home/.claude/other")
    assert not runs_later("/a", "/")
    assert runs_later("/.envrc", "/")
