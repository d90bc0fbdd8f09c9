"""What is proposed for tools, from what they say about themselves."""

from typing import Any

import pytest

from curtainwall.model import ToolEffect
from curtainwall.tools.servers import Proposal, ServerSpec, propose
from curtainwall.tools.servers.annotate import words_of
from curtainwall.tools.servers.offered import offered

TEXT: dict[str, Any] = {"type": "string"}


def proposed(name: str, properties: dict[str, Any], *, trusted: bool = False, required: list[str] | None = None, **hints: bool) -> Proposal:
    """Return the proposal for a tool; whatever is proposed must be something that a user could write."""
    schema = {"type": "object", "properties": properties, "required": required or list(properties)}
    tool = offered({"name": name, "inputSchema": schema, "annotations": hints})
    assert tool is not None
    made = propose(tool, trusted=trusted)
    ServerSpec("x", "y", trusted=trusted, tools={name: made.roles})
    return made


def told(proposal: Proposal) -> dict[str, list[str]]:
    return {meaning.argument: [role.value for role in meaning.roles] for meaning in proposal.roles.meanings}


@pytest.mark.parametrize(
    ("name", "properties", "effect", "roles"),
    [
        ("read_file", {"path": TEXT, "head": {"type": "integer"}}, "inspect", {"path": ["read-path"]}),
        ("readFile", {"filePath": TEXT}, "inspect", {"filePath": ["read-path"]}),
        ("list-directory", {"dir": TEXT}, "inspect", {"dir": ["read-path"]}),
        ("write_file", {"path": TEXT, "content": TEXT}, "modify", {"path": ["write-path"]}),
        ("edit_file", {"path": TEXT}, "modify", {"path": ["read-path", "write-path"]}),
        ("delete_file", {"path": TEXT}, "modify", {"path": ["delete-path"]}),
        (
            "move_file",
            {"source": TEXT, "destination": TEXT},
            "modify",
            {"source": ["read-path", "delete-path"], "destination": ["write-path"]},
        ),
        ("fetch", {"url": TEXT}, "send", {"url": ["fetch-url"]}),
        ("get", {"address": {"type": "string", "format": "uri"}}, "send", {"address": ["fetch-url"]}),
        ("post_form", {"url": TEXT, "body": TEXT}, "send", {"url": ["send-url"]}),
        ("run", {"command": TEXT, "cwd": TEXT}, "execute", {"command": ["run-command"], "cwd": ["read-path", "write-path"]}),
        ("clone", {"repo_url": TEXT, "path": TEXT}, "send", {"repo_url": ["read-remote"], "path": ["read-path", "write-path"]}),
        ("push", {"remote": TEXT}, "send", {"remote": ["write-remote"]}),
        ("read_files", {"paths": {"type": "array", "items": TEXT}}, "inspect", {"paths": ["read-path"]}),
        ("read_maybe", {"path": {"anyOf": [TEXT, {"type": "null"}]}}, "inspect", {"path": ["read-path"]}),
        ("frobnicate", {"x": TEXT}, "modify", {}),
        ("get_thing", {"id": {"type": "integer"}, "kind": {"enum": ["file", "path"], "type": "string"}}, "inspect", {}),
        ("show", {"item": {"type": "string", "description": "Path of the file to show"}}, "inspect", {"item": ["read-path"]}),
        ("search", {"pattern": {"type": "string", "description": "a glob for the path"}}, "inspect", {}),
    ],
)
def test_roles_from_names_and_schemas(name: str, properties: dict[str, Any], effect: str, roles: dict[str, list[str]]) -> None:
    made = proposed(name, properties)
    assert (made.roles.effect.value, told(made)) == (effect, roles)


def test_a_claim_to_only_read_counts_where_nothing_speaks_against_it() -> None:
    assert proposed("frobnicate", {}, readOnlyHint=True).roles.effect is ToolEffect.INSPECT
    doubted = proposed("delete_everything", {"path": TEXT}, readOnlyHint=True)
    assert doubted.roles.effect is ToolEffect.MODIFY
    assert "claims that it only reads" in " ".join(doubted.notes)
    assert proposed("execute", {"command": TEXT}, readOnlyHint=True).roles.effect is ToolEffect.EXECUTE
    assert proposed("lookup", {"query": TEXT}, readOnlyHint=True, openWorldHint=True).roles.effect is ToolEffect.SEND


def test_a_trusted_server_sends_unless_it_says_otherwise() -> None:
    assert proposed("get_issue", {"id": TEXT}, trusted=True).roles.effect is ToolEffect.SEND
    assert proposed("get_issue", {"id": TEXT}, trusted=True, readOnlyHint=True, openWorldHint=False).roles.effect is ToolEffect.INSPECT
    assert proposed("get_issue", {"id": TEXT}).roles.effect is ToolEffect.INSPECT


def test_commands_outside_a_sandbox_get_no_roles_so_that_every_call_asks() -> None:
    made = proposed("run", {"command": TEXT, "cwd": TEXT}, trusted=True)
    assert (made.roles.effect, made.roles.meanings) == (ToolEffect.EXECUTE, ())
    assert "every call asks" in " ".join(made.notes)
    blind = proposed("execute_job", {"path": TEXT})
    assert (blind.roles.effect, blind.roles.meanings) == (ToolEffect.EXECUTE, ())


def test_a_default_is_judged_too_and_what_may_be_left_out_is_pointed_at() -> None:
    made = proposed("list_files", {"path": {"type": "string", "default": "."}}, required=["x"])
    assert made.roles.meanings[0].default == "."
    open_ = proposed("list_files", {"path": TEXT}, required=["x"])
    assert open_.roles.meanings[0].default is None
    assert "`path` may be left out" in open_.notes[0]


def test_paths_in_a_repository_start_there() -> None:
    made = proposed("git_add", {"files": {"type": "array", "items": TEXT}, "repo_path": TEXT})
    assert [(meaning.argument, meaning.within) for meaning in made.roles.meanings] == [("repo_path", None), ("files", "repo_path")]


def test_what_is_moved_or_deleted_is_the_link_itself() -> None:
    assert not proposed("rename", {"from": {"type": "string", "description": "a path"}}).roles.meanings[0].follows
    assert proposed("read", {"file": TEXT}).roles.meanings[0].follows


def test_what_is_hidden_in_an_object_is_pointed_at() -> None:
    inner = {"type": "array", "items": {"type": "object", "properties": {"path": TEXT}}}
    assert proposed("write_many", {"files": inner}).notes[0] == "`files` is not plain text; nothing in it can be judged"


@pytest.mark.parametrize("name", ["repoPath", "repo_path", "repo-path", "RepoPath", "REPO_PATH"])
def test_the_words_of_a_name(name: str) -> None:
    assert words_of(name) == {"repo", "path"}
