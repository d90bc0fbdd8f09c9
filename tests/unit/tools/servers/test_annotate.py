"""What is proposed for tools, from what they say about themselves."""

import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtainwall.model import Broken, Role, ToolEffect
from curtainwall.tools.catalogue import Catalogue
from curtainwall.tools.servers import Proposal, ServerSpec, propose_roles
from curtainwall.tools.servers.offered import parse_tool
from curtainwall.tools.servers.proposals import name_words
from tests.support.covers import covers

TEXT: dict[str, Any] = {"type": "string"}
CORPUS: list[dict[str, Any]] = tomllib.loads((Path(__file__).parents[3] / "corpus" / "proposals.toml").read_text())["tool"]
HINTS = ("readOnlyHint", "destructiveHint", "openWorldHint", "idempotentHint")
in_corpus = pytest.mark.parametrize("tool", CORPUS, ids=[f"{place}-{tool['name']}" for place, tool in enumerate(CORPUS)])


def proposed(
    name: str,
    properties: dict[str, Any],
    *,
    trusted: bool = False,
    required: list[str] | None = None,
    server: str = "",
    description: str = "",
    **hints: bool,
) -> Proposal:
    """Return the proposal for a tool; whatever is proposed must be something that a user could write, and the catalogue takes."""
    schema = {"type": "object", "properties": properties, "required": required or list(properties)}
    tool = parse_tool({"name": name, "description": description, "inputSchema": schema, "annotations": hints})
    assert tool is not None
    made = propose_roles(tool, trusted=trusted, server=server)
    ServerSpec("x", "y", trusted=trusted, tools={name: made.roles})
    if all(argument.isascii() for argument in properties):
        Catalogue((tool.spec("x", made.roles),))
    return made


def of_corpus(tool: dict[str, Any], **hints: bool) -> Proposal:
    properties = {**dict.fromkeys(tool.get("arguments", ()), TEXT), **tool.get("schema", {})}
    more = {key: tool[key] for key in ("trusted", "server", "description") if key in tool}
    return proposed(tool["name"], properties, **more, **hints)


def told(proposal: Proposal) -> dict[str, list[str]]:
    return {meaning.argument: [role.value for role in meaning.roles] for meaning in proposal.roles.meanings}


def asks(proposal: Proposal) -> bool:
    """Tell whether every call asks, because nothing but the tool itself is judged."""
    return proposal.roles.effect is not ToolEffect.INSPECT and not proposal.roles.meanings


def is_as_strict(one: Proposal, other: Proposal) -> bool:
    """Tell whether the first proposal lets nothing pass that the second would ask about."""
    if asks(one):
        return True
    if asks(other) or (one.roles.effect is ToolEffect.INSPECT and other.roles.effect is not ToolEffect.INSPECT):
        return False
    roles = {meaning.argument: {*meaning.roles} for meaning in one.roles.meanings}
    return all({*meaning.roles} <= roles.get(meaning.argument, set[Role]()) for meaning in other.roles.meanings)


@covers("servers.proposals-are-strict")
@in_corpus
def test_what_is_proposed_for_tools_as_servers_offer_them(tool: dict[str, Any]) -> None:
    made = of_corpus(tool)
    assert (made.roles.effect.value, told(made)) == (tool["effect"], tool.get("roles", {})), made.notes
    assert asks(made) is tool.get("asks", False)


@covers("servers.proposals-are-strict")
@in_corpus
def test_a_servers_hints_never_make_a_proposal_looser_and_honesty_costs_nothing(tool: dict[str, Any]) -> None:
    silent = of_corpus(tool)
    for values in product((None, True, False), repeat=len(HINTS)):
        hints = {name: value for name, value in zip(HINTS, values, strict=True) if value is not None}
        assert is_as_strict(of_corpus(tool, **hints), silent), hints
    assert of_corpus(tool, openWorldHint=True).roles == silent.roles
    if silent.roles.effect is not ToolEffect.INSPECT:
        assert of_corpus(tool, destructiveHint=True).roles == silent.roles


def test_the_corpus_is_large_and_has_tools_of_every_effect() -> None:
    assert len(CORPUS) >= 80
    assert {tool["effect"] for tool in CORPUS} == {effect.value for effect in ToolEffect}


def test_an_inspection_is_marked_as_a_guess_and_anything_else_says_why() -> None:
    assert "a guess from `read` in its name" in " ".join(proposed("read_file", {"path": TEXT}).notes)
    assert "a claim alone counts for nothing" in " ".join(proposed("frobnicate", {}, readOnlyHint=True).notes)
    assert "the server says that it destroys" in " ".join(proposed("get_it", {}, destructiveHint=True).notes)
    assert "the server says that it does more" in " ".join(proposed("get_it", {}, readOnlyHint=False).notes)
    assert "begins with `removes`" in " ".join(proposed("get_it", {}, description="Removes it.").notes)
    assert "`delete_after` says `delete`" in " ".join(proposed("get_it", {"delete_after": {"type": "boolean"}}).notes)
    assert "`folder_name` may name something outside" in " ".join(proposed("get_it", {"folder_name": TEXT}).notes)
    assert "outside any sandbox" in " ".join(proposed("get_it", {}, trusted=True).notes)


@pytest.mark.parametrize("name", ["a\nb", "x`\n[servers.pwn]\ncommand = 'sh'", "\x1b[2J"])
def test_a_note_names_an_argument_on_one_plain_line(name: str) -> None:
    inner = {"type": "object", "properties": {"path": TEXT}}
    tool = parse_tool({"name": "t", "inputSchema": {"type": "object", "properties": {name: inner}}})
    assert tool is not None
    assert all(note.isprintable() for note in propose_roles(tool, trusted=False).notes)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.sampled_from(["string", "path", "object", "array", "uri", ""]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "properties", "items", "anyOf", "enum", "format", "default", "required", "path", "url"]), inner
            )
        ),
        max_leaves=12,
    )
)
def test_whatever_a_schema_holds_it_is_proposed_for_or_refused(schema: Any) -> None:
    tool = parse_tool({"name": "get_it", "inputSchema": {"type": "object", "properties": {"path": schema, "x": schema}}})
    assert tool is not None
    try:
        made = propose_roles(tool, trusted=False)
    except Broken:
        return
    ServerSpec("x", "y", tools={"get_it": made.roles})


def test_commands_outside_a_sandbox_get_no_roles_so_that_every_call_asks() -> None:
    made = proposed("run", {"command": TEXT, "cwd": TEXT}, trusted=True)
    assert (made.roles.effect, made.roles.meanings) == (ToolEffect.EXECUTE, ())
    assert "every call asks" in " ".join(made.notes)
    blind = proposed("execute_job", {"path": TEXT})
    assert (blind.roles.effect, blind.roles.meanings) == (ToolEffect.EXECUTE, ())


def test_a_default_is_judged_too_and_what_may_be_left_out_is_pointed_at() -> None:
    made = proposed("list_files", {"path": {"type": "string", "default": "."}, "x": TEXT}, required=["x"])
    assert made.roles.meanings[0].default == "."
    open_ = proposed("list_files", {"path": TEXT, "x": TEXT}, required=["x"])
    assert open_.roles.meanings[0].default is None
    assert "`path` may be left out" in " ".join(open_.notes)


def test_paths_in_a_repository_start_there() -> None:
    made = proposed("git_add", {"files": {"type": "array", "items": TEXT}, "repo_path": TEXT})
    assert [(meaning.argument, meaning.within) for meaning in made.roles.meanings] == [("repo_path", None), ("files", "repo_path")]


def test_what_is_moved_or_deleted_is_the_link_itself() -> None:
    assert not proposed("rename", {"from": {"type": "string", "description": "a path"}}).roles.meanings[0].follows
    assert not proposed("delete_file", {"path": TEXT}).roles.meanings[0].follows
    assert proposed("read", {"file": TEXT}).roles.meanings[0].follows


@pytest.mark.parametrize("name", ["repoPath", "repo_path", "repo-path", "RepoPath", "REPO_PATH"])
def test_the_words_of_a_name(name: str) -> None:
    assert name_words(name) == ("repo", "path")
