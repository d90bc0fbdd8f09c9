"""Matchers: exact names, lists, everything, and expressions that fit from end to end."""

import pytest

from curtainwall.tools import NATIVE_TOOLS
from curtainwall.tools.hooks.settings import compile_matcher, tool_names
from tests.support.covers import covers

WRITE = "filesystem.write_file"
UNLIKE_CLAUDE = {f"filesystem.{name}" for name in "create_directory delete_file get_file_info list_allowed_directories move_file".split()}
"""Tools that Claude Code has no counterpart of."""


@covers("hooks.matchers")
def test_a_hook_for_a_tool_of_claude_code_sees_every_tool_that_does_the_same() -> None:
    tools = {spec.full_name for spec in NATIVE_TOOLS if spec.server in ("filesystem", "shell", "fetch")}
    nameless = {tool for tool in tools if len(tool_names(tool)) == 2}
    assert nameless == UNLIKE_CLAUDE, "name Claude Code's tool in `tools/hooks/settings.py`, or list the tool here if it has none"


@covers("hooks.matchers")
@pytest.mark.parametrize(
    ("matcher", "tool", "known_as"),
    [
        ("", WRITE, WRITE),
        ("*", WRITE, WRITE),
        (" ", WRITE, WRITE),
        (WRITE, WRITE, WRITE),
        ("filesystem.write", WRITE, None),
        ("filesystem.write_file2", WRITE, None),
        ("Filesystem.write_file", WRITE, None),
        ("mcp__filesystem__write_file", WRITE, "mcp__filesystem__write_file"),
        ("mcp__filesystem", WRITE, None),
        ("mcp__filesystem__.*", WRITE, "mcp__filesystem__write_file"),
        ("Write", WRITE, "Write"),
        ("Edit|Write", WRITE, "Write"),
        ("Edit, Write", WRITE, "Write"),
        ("Edit | Write", WRITE, "Write"),
        ("Edit|Bash", WRITE, None),
        ("Writ.", WRITE, None),
        ("Writ.*", WRITE, "Write"),
        (".*rite", WRITE, "Write"),
        ("rit.*", WRITE, None),
        ("Wri", WRITE, None),
        ("^Write$", WRITE, "Write"),
        (r"filesystem\..*", WRITE, WRITE),
        (r"(shell|filesystem)\.(run|write_file)", WRITE, WRITE),
        (r"Bash|filesystem\.wr.*", WRITE, WRITE),
        ("Bash", "shell.run", "Bash"),
        ("MultiEdit", "filesystem.edit_file", "MultiEdit"),
        ("WebFetch", "fetch.get", "WebFetch"),
        ("Bash", "git.push", None),
        ("filesystem.write_file", "filesystemXwrite_file", None),
    ],
)
def test_a_matcher_finds_a_tool_by_one_of_its_names(matcher: str, tool: str, known_as: str | None) -> None:
    assert compile_matcher(matcher).finds(tool_names(tool)) == known_as


@pytest.mark.parametrize("text", ["(", "[a", "*Bash", "(?P<x>", "a{9999999999999999999}"])
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no regular expression"):
        compile_matcher(text)
