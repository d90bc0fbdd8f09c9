import os
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import JsonValue

from curtainwall.facts import Masker
from curtainwall.model import (
    BadCall,
    CommandFacts,
    HostFacts,
    Meaning,
    PathFacts,
    Place,
    Prepared,
    Role,
    Scope,
    SubjectKind,
    ToolEffect,
    ToolSpec,
    subject_digest,
)
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools
from tests.support.covers import covers
from tests.unit.tools.stage import Git, Stage


def refusal(stage: Stage, tool: str, arguments: JsonValue, rule: str = "invalid-arguments") -> str:
    with pytest.raises(BadCall) as told:
        stage.tools.prepare(tool, arguments, stage.place)
    assert told.value.rule == rule
    message = str(told.value)
    assert message[0] == "`" or message[0].lower() == message[0]
    assert not message.endswith(".")
    assert message.isprintable()
    return message


# Paths


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("a/../b", "W/b"),
        ("./a", "W/a"),
        (".", "W"),
        ("../../outside/x", "O/x"),
        ("~/x", "H/x"),
        ("~", "H"),
        ("/etc/hostname-of-nobody", "/etc/hostname-of-nobody"),
        ("new/deep/file", "W/new/deep/file"),
    ],
)
def test_a_path_is_read_from_the_workspace(stage: Stage, path: str, meant: str) -> None:
    assert stage.told("filesystem.read_file", path=path) == [("read-path", meant)]


def test_a_name_that_only_starts_like_the_workspace_is_not_in_it(stage: Stage) -> None:
    assert stage.told("filesystem.read_file", path=f"{stage.workspace}-evil/x") == [("read-path", "H/work-evil/x")]


@pytest.mark.parametrize("path", ["", " ", "a\0b", "~root/x", "~root", "x" * 5000, 1, None, True, {}, ["a"], "\ud800"])
def test_what_is_no_path_is_refused(stage: Stage, path: JsonValue) -> None:
    refusal(stage, "filesystem.read_file", {"path": path})


@covers("facts.a-url-is-not-a-path")
@pytest.mark.parametrize("path", ["file:///etc/passwd", "FILE:///x", "file:/etc/passwd", " file:///x", "https://example.org/x", "file:\\x"])
@pytest.mark.parametrize("tool", ["filesystem.read_file", "filesystem.delete_file"])
def test_a_url_is_not_a_path_and_no_relative_one_either(stage: Stage, tool: str, path: str) -> None:
    assert "is a URL, not a path" in refusal(stage, tool, {"path": path})
    assert stage.told("filesystem.read_file", path="./file:///x") == [("read-path", "W/file:/x")]


def test_a_directory_that_a_server_is_given_means_all_beneath_it(stage: Stage) -> None:
    schema: JsonValue = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"], "additionalProperties": False}
    meaning = Meaning(argument="path", roles=(Role.READ_PATH,))
    find = ToolSpec(server="finder", name="find", description="", schema_=schema, effect=ToolEffect.INSPECT, meanings=(meaning,))
    tools = NativeTools(Catalogue((*NATIVE_TOOLS, find)), home=str(stage.home), masker=Masker(b"k" * 32), runners={})
    (stage.outside / "file").touch()

    def facts(path: Path) -> object:
        return tools.prepare("finder.find", {"path": str(path)}, stage.place).subject.resources[1].facts

    assert facts(stage.outside) == PathFacts(runs_later=False, whole=True)
    assert facts(stage.outside / "file") is None


def test_a_loop_of_links_is_refused(stage: Stage) -> None:
    (stage.workspace / "loop").symlink_to("loop")
    assert "loop" in refusal(stage, "filesystem.read_file", {"path": "loop"})


def test_writing_through_a_link_means_where_it_leads_even_where_nothing_is(stage: Stage) -> None:
    (stage.workspace / "link").symlink_to(stage.outside / "none")
    assert stage.told("filesystem.write_file", path="link", content="x") == [("write-path", "O/none")]
    (stage.workspace / "room").symlink_to(stage.outside)
    assert stage.told("filesystem.write_file", path="room/new", content="x") == [("write-path", "O/new")]


def test_what_runs_is_what_was_judged(stage: Stage) -> None:
    (stage.workspace / "link").symlink_to(stage.outside / "x")
    prepared = stage.prepare("filesystem.read_file", path="link")
    assert prepared.arguments == {"path": str(stage.outside / "x")}
    assert prepared.subject.raw == {"path": "link"}
    assert prepared.subject.canonical == prepared.arguments


def test_a_link_that_leads_elsewhere_now_is_another_subject(stage: Stage) -> None:
    link = stage.workspace / "link"
    link.symlink_to(stage.workspace / "a")
    before = stage.prepare("filesystem.read_file", path="link")
    link.unlink()
    link.symlink_to(stage.outside / "a")
    after = stage.prepare("filesystem.read_file", path="link")
    assert before.subject.digest != after.subject.digest
    assert stage.prepare("filesystem.read_file", path=str(stage.outside / "a")).subject.digest == after.subject.digest


def test_every_path_of_a_list_is_a_resource_and_the_same_twice_is_one(stage: Stage) -> None:
    told = stage.told("filesystem.read_multiple_files", paths=["a", "/etc/x", "./a"])
    assert told == [("read-path", "W/a"), ("read-path", "/etc/x")]
    arguments = stage.prepare("filesystem.read_multiple_files", paths=["a", "./a"]).arguments
    assert arguments == {"paths": [str(stage.workspace / "a")] * 2}


@pytest.mark.parametrize("bad", [["/etc/passwd"], None, 1, "", "~root", {"path": "a"}])
def test_one_bad_element_refuses_the_whole_call(stage: Stage, bad: JsonValue) -> None:
    refusal(stage, "filesystem.read_multiple_files", {"paths": ["a", bad]})


def test_too_many_paths_are_refused(stage: Stage) -> None:
    refusal(stage, "filesystem.read_multiple_files", {"paths": [f"f{number}" for number in range(300)]})


def test_an_edit_reads_and_writes(stage: Stage) -> None:
    edits: JsonValue = [{"oldText": "a", "newText": "b"}]
    both = [("read-path", "W/a"), ("write-path", "W/a")]
    assert stage.told("filesystem.edit_file", path="a", edits=edits) == both
    assert stage.told("filesystem.edit_file", path="a", edits=edits, dryRun=False) == both
    assert stage.told("filesystem.edit_file", path="a", edits=edits, dryRun=True) == both[:1]


@pytest.mark.parametrize("dry", ["true", 1, 1.0, None, [True], "True"])
def test_only_true_is_a_dry_run(stage: Stage, dry: JsonValue) -> None:
    assert "`dryRun` must be a boolean" in refusal(
        stage, "filesystem.edit_file", {"path": "a", "edits": [{"oldText": "a", "newText": "b"}], "dryRun": dry}
    )


def test_moving_reads_and_deletes_here_and_writes_there(stage: Stage) -> None:
    told = stage.told("filesystem.move_file", source="/etc/a", destination="b")
    assert told == [("read-path", "/etc/a"), ("delete-path", "/etc/a"), ("write-path", "W/b")]


def test_deleting_and_moving_mean_the_link_itself_as_the_kernel_does(stage: Stage) -> None:
    (stage.workspace / "link").symlink_to(stage.outside / "x")
    assert stage.told("filesystem.delete_file", path="link") == [("delete-path", "W/link")]
    assert stage.told("filesystem.delete_file", path="./link") == [("delete-path", "W/link")]
    (stage.workspace / "room").symlink_to(stage.outside)
    assert stage.told("filesystem.delete_file", path="room/x") == [("delete-path", "O/x")]
    assert stage.told("filesystem.delete_file", path="room/") == [("delete-path", "O")]
    assert stage.told("filesystem.delete_file", path="room/.") == [("delete-path", "O")]
    assert stage.told("filesystem.delete_file", path="room/../x") == [("delete-path", f"{stage.root}/x")]


@pytest.mark.parametrize("tool", ["create_directory"])
def test_making_a_directory_writes(stage: Stage, tool: str) -> None:
    assert stage.told(f"filesystem.{tool}", path="d") == [("write-path", "W/d")]


@pytest.mark.parametrize("tool", ["list_directory", "directory_tree", "get_file_info"])
def test_looking_around_reads(stage: Stage, tool: str) -> None:
    assert stage.told(f"filesystem.{tool}", path="d") == [("read-path", "W/d")]


def test_a_tool_without_arguments_is_itself_the_resource(stage: Stage) -> None:
    assert stage.told("filesystem.list_allowed_directories") == []


def test_paths_of_a_container_are_paths_of_this_machine(stage: Stage) -> None:
    tools, place = stage.tools, replace(stage.place, agent="claude")
    inside = type(tools)(tools.catalogue, home=str(stage.home), masker=tools._masker, contained=("claude",))
    told = inside.prepare("filesystem.read_file", {"path": "/workspace/a"}, place).subject.resources[1]
    assert stage.short(told.value) == "W/a"
    (stage.workspace / "link").symlink_to("/workspace/b")
    told = inside.prepare("filesystem.delete_file", {"path": "/workspace/link"}, place).subject.resources[1]
    assert stage.short(told.value) == "W/link"
    told = inside.prepare("filesystem.delete_file", {"path": "/workspace"}, place).subject.resources[1]
    assert stage.short(told.value) == "W"
    told = inside.prepare("filesystem.read_file", {"path": "/workspace/a"}, stage.place).subject.resources[1]
    assert told.value == "/workspace/a", "another agent sees the paths of this machine"


# The network


def test_fetching_means_the_origin(stage: Stage) -> None:
    prepared = stage.prepare("fetch.get", url="HTTPS://Docs.Python.org:443/3/../x?q=1#there")
    resource = prepared.subject.resources[1]
    assert (resource.role.value, resource.value) == ("fetch-url", "https://docs.python.org")
    assert resource.facts == HostFacts(host="docs.python.org", port=443, secure=True, scope=Scope.PUBLIC)
    assert prepared.arguments == {"url": "https://docs.python.org/x?q=1"}


@pytest.mark.parametrize(
    ("more", "role"),
    [
        ({}, "fetch-url"),
        ({"method": "GET"}, "fetch-url"),
        ({"method": "HEAD"}, "fetch-url"),
        ({"method": "OPTIONS"}, "fetch-url"),
        ({"method": "POST"}, "send-url"),
        ({"method": "DELETE"}, "send-url"),
        ({"body": "x"}, "send-url"),
        ({"body": ""}, "send-url"),
        ({"method": "GET", "body": "x"}, "send-url"),
    ],
)
def test_a_request_that_carries_something_sends(stage: Stage, more: dict[str, JsonValue], role: str) -> None:
    assert stage.told("fetch.get", url="https://example.com/", **more) == [(role, "https://example.com")]


@pytest.mark.parametrize(
    "more",
    [{"method": "get"}, {"method": "TRACE"}, {"body": None}, {"body": 1}, {"headers": {"a": 1}}, {"credential": "../x"}, {"format": "x"}],
)
def test_what_is_no_request_is_refused(stage: Stage, more: dict[str, JsonValue]) -> None:
    refusal(stage, "fetch.get", {"url": "https://example.com/", **more})


def test_a_credential_is_a_resource_of_its_own(stage: Stage) -> None:
    told = stage.told("fetch.get", url="https://example.com/", credential="forge")
    assert told == [("fetch-url", "https://example.com"), ("use-credential", "forge")]


def test_the_user_name_before_an_at_is_not_the_host(stage: Stage) -> None:
    assert stage.told("fetch.get", url="https://listed.host@evil.com/") == [("fetch-url", "https://evil.com")]


@pytest.mark.parametrize(
    "url", ["https://listed.host\\@evil.com", "file:///etc/passwd", "data:,x", "https://a\tb/", "", "x", 1, None, ["https://a/"]]
)
def test_what_is_no_url_is_refused(stage: Stage, url: JsonValue) -> None:
    refusal(stage, "fetch.get", {"url": url})


@pytest.mark.parametrize(
    ("url", "scope"),
    [
        ("http://127.1/", Scope.PRIVATE),
        ("http://0x7f000001/", Scope.PRIVATE),
        ("http://localhost/", Scope.PRIVATE),
        ("http://127.0.0.1:8642/", Scope.FORBIDDEN),
        ("http://[::ffff:169.254.169.254]/", Scope.FORBIDDEN),
        ("http://metadata.google.internal/", Scope.FORBIDDEN),
    ],
)
def test_addresses_that_are_not_public_say_so(stage: Stage, url: str, scope: Scope) -> None:
    facts = stage.prepare("fetch.get", url=url).subject.resources[1].facts
    assert isinstance(facts, HostFacts)
    assert facts.scope is scope


# Git


def test_the_working_directory_is_the_workspace_until_another_is_chosen(stage: Stage) -> None:
    (stage.workspace / "repo").mkdir()
    assert stage.told("git.status") == [("read-path", "W")]
    assert stage.prepare("git.status").arguments == {"path": str(stage.workspace)}
    stage = replace(stage, place=replace(stage.place, git_directory=str(stage.workspace / "repo")))
    assert stage.told("git.status") == [("read-path", "W/repo")]
    assert stage.told("git.log", path=".") == [("read-path", "W/repo")]
    assert stage.told("git.status", path="..") == [("read-path", "W")]
    assert stage.told("filesystem.read_file", path="a") == [("read-path", "W/a")]


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("diff", {"files": ["a", "../b"]}, [("read-path", "W/r"), ("read-path", "W/r/a"), ("read-path", "W/b")]),
        ("show", {"ref": "HEAD~1"}, [("read-path", "W/r")]),
        ("add", {"files": ["a"]}, [("write-path", "W/r"), ("read-path", "W/r/a")]),
        ("commit", {"message": "why"}, [("write-path", "W/r")]),
        ("branch", {}, [("read-path", "W/r")]),
        ("branch", {"name": "new"}, [("read-path", "W/r"), ("write-path", "W/r")]),
        ("checkout", {"ref": "main"}, [("write-path", "W/r")]),
        ("init", {}, [("write-path", "W/r")]),
        ("set_working_dir", {}, [("read-path", "W/r")]),
    ],
)
def test_git_reads_or_writes_its_repository(stage: Stage, tool: str, arguments: dict[str, JsonValue], told: list[tuple[str, str]]) -> None:
    assert stage.told(f"git.{tool}", path="r", **arguments) == told


@pytest.mark.parametrize("ref", ["-x", "--output=/etc/x", "", "a b", "a\n", "\0"])
def test_a_ref_is_never_an_option(stage: Stage, ref: str) -> None:
    refusal(stage, "git.show", {"ref": ref})
    refusal(stage, "git.checkout", {"ref": ref})


@pytest.mark.parametrize("branch", ["-f", "+main", "main:other", ":main", "a*", "a~1", "a b", ""])
def test_a_branch_is_one_branch(stage: Stage, branch: str) -> None:
    refusal(stage, "git.push", {"branch": branch})


def test_cloning_reads_the_remote_and_writes_the_directory(stage: Stage) -> None:
    told = stage.told("git.clone", url="git@github.com:me/r.git", path="r")
    assert sorted(told) == [("read-remote", "github.com/me/r"), ("write-path", "W/r")]


@pytest.mark.parametrize("url", ["/etc", "file:///etc", "ext::sh -c x", "-u", "../x", ""])
def test_local_and_running_remotes_are_refused(stage: Stage, url: str) -> None:
    refusal(stage, "git.clone", {"url": url, "path": "r"})


@pytest.fixture
def repository(stage: Stage, git: Git) -> Path:
    where = stage.workspace / "r"
    where.mkdir()
    git(where, "init", "-q")
    git(where, "remote", "add", "origin", "https://github.com/me/r")
    return where


def test_a_remote_is_looked_up_in_the_repository_that_is_meant(stage: Stage, repository: Path, git: Git) -> None:
    assert stage.told("git.fetch", path="r") == [("write-path", "W/r"), ("read-remote", "github.com/me/r")]
    assert stage.told("git.push", path="r") == [("read-path", "W/r"), ("write-remote", "github.com/me/r")]
    git(repository, "remote", "set-url", "--push", "origin", "git@evil.com:me/r.git")
    assert stage.told("git.pull", path="r") == [("write-path", "W/r"), ("read-remote", "github.com/me/r")]
    assert ("write-remote", "github.com/me/r") not in stage.told("git.push", path="r")


def test_an_approval_of_a_push_is_bound_to_the_final_urls(stage: Stage, repository: Path, git: Git) -> None:
    before = stage.prepare("git.push", path="r")
    assert before.arguments["remote"] == "origin"
    assert before.arguments["urls"] == ["https://github.com/me/r"]
    git(repository, "config", "remote.origin.pushurl", "ssh://git@github.com/me/r")
    after = stage.prepare("git.push", path="r")
    assert before.subject.resources[2].value == after.subject.resources[2].value
    assert before.subject.digest != after.subject.digest


def test_nobody_can_name_the_final_urls_himself(stage: Stage) -> None:
    assert "unknown argument `urls`" in refusal(stage, "git.push", {"urls": ["https://github.com/me/r"]})


# The shell


def test_every_command_of_a_line_is_a_resource(stage: Stage) -> None:
    told = stage.told("shell.run", command="git status && rm -rf /")
    assert told == [("read-path", "W"), ("run-command", "git status"), ("run-command", "rm -rf /")]
    facts = stage.prepare("shell.run", command="git status").subject.resources[2].facts
    assert facts == CommandFacts(program="git", parsed=True)


def test_what_cannot_be_parsed_says_so(stage: Stage) -> None:
    facts = [resource.facts for resource in stage.prepare("shell.run", command="git $(").subject.resources[2:]]
    assert any(isinstance(fact, CommandFacts) and not fact.parsed for fact in facts)


def test_files_that_the_shell_opens_are_resources(stage: Stage) -> None:
    told = stage.told("shell.run", command="sort < in > ../out 2>/dev/null", cwd="d")
    assert told == [("read-path", "W/d"), ("run-command", "sort"), ("read-path", "W/d/in"), ("write-path", "W/out")]


def test_a_redirection_through_a_link_means_where_it_leads(stage: Stage) -> None:
    (stage.workspace / "link").symlink_to(stage.outside / "x")
    assert ("write-path", "O/x") in stage.told("shell.run", command="echo x > link")


@pytest.mark.parametrize("command", ["", " ", 1, None, ["ls"]])
def test_what_is_no_command_is_refused(stage: Stage, command: JsonValue) -> None:
    refusal(stage, "shell.run", {"command": command})


@pytest.mark.parametrize("timeout", [0, -1, 1.5, 1.0, True, "60", 10**9])
def test_a_time_limit_is_a_whole_number_of_seconds(stage: Stage, timeout: JsonValue) -> None:
    refusal(stage, "shell.run", {"command": "ls", "timeout": timeout})


def test_more_than_256_resources_are_refused(stage: Stage) -> None:
    assert "more than 256" in refusal(stage, "shell.run", {"command": "; ".join(f"echo {number}" for number in range(300))})


# The session


def test_a_raise_of_the_budget_is_a_resource(stage: Stage) -> None:
    assert stage.told("session.request_budget", what="tokens", amount=1000, why="more to read") == [("raise-budget", "tokens")]
    refusal(stage, "session.request_budget", {"what": "everything", "amount": 1, "why": "x"})
    refusal(stage, "session.request_budget", {"what": "tokens", "amount": 0, "why": "x"})


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("propose_plan", {"steps": [{"tool": "shell.run", "arguments": {"command": "ls"}}]}),
        ("load_skill", {"name": "x"}),
        ("remember", {"text": "x"}),
        ("recall", {"query": "x"}),
    ],
)
def test_the_session_s_own_tools_touch_nothing_else(stage: Stage, tool: str, arguments: dict[str, JsonValue]) -> None:
    assert stage.told(f"session.{tool}", **arguments) == []


# What every call has


def test_unknown_tools_are_refused(stage: Stage) -> None:
    refusal(stage, "filesystem.read", {"path": "a"}, rule="unknown-tool")


def test_the_digest_is_that_of_the_model(stage: Stage) -> None:
    for tool, arguments in (
        ("filesystem.read_file", {"path": "ä"}),
        ("fetch.get", {"url": "https://example.com/"}),
        ("shell.run", {"command": "ls"}),
    ):
        prepared = stage.tools.prepare(tool, arguments, stage.place)
        subject = prepared.subject
        assert subject.digest == subject_digest(SubjectKind.TOOL_CALL, tool, prepared.arguments, subject.resources)
        assert subject.effect in ToolEffect


def test_a_subject_is_the_same_when_it_is_checked_again(stage: Stage) -> None:
    prepared = stage.prepare("fetch.get", url="https://example.com/", credential="c")
    assert type(prepared.subject).model_validate(prepared.subject.model_dump(mode="json")) == prepared.subject
    assert type(prepared.subject).model_validate_json(prepared.subject.model_dump_json()) == prepared.subject


def test_the_canonical_arguments_mean_themselves(stage: Stage) -> None:
    (stage.workspace / "link").symlink_to(stage.outside / "x")
    for tool, arguments in (
        ("filesystem.read_file", {"path": "link", "head": 3}),
        ("filesystem.move_file", {"source": "link", "destination": "~/y"}),
        ("fetch.get", {"url": "HTTP://EXAMPLE.com/a/../b"}),
        ("git.clone", {"url": "git@github.com:me/r.git", "path": "r"}),
        ("git.status", {}),
        ("shell.run", {"command": "ls > x", "cwd": "d"}),
    ):
        once = stage.tools.prepare(tool, arguments, stage.place)
        again = stage.tools.prepare(tool, dict(once.arguments), stage.place)
        assert once.arguments == again.arguments
        assert once.subject.digest == again.subject.digest


SECRET = "ghp_" + "a1B2" * 9


def test_secrets_are_masked_for_the_log_and_whole_for_the_tool(stage: Stage) -> None:
    prepared = stage.prepare("filesystem.write_file", path="a", content=f"token = {SECRET}")
    assert SECRET in str(prepared.arguments["content"])
    assert SECRET not in str(prepared.subject.raw)
    assert SECRET not in str(prepared.subject.canonical)


def test_the_digest_is_of_the_unmasked_arguments(stage: Stage) -> None:
    other = "ghp_" + "c3D4" * 9
    one = stage.prepare("filesystem.write_file", path="a", content=SECRET)
    two = stage.prepare("filesystem.write_file", path="a", content=other)
    assert one.subject.digest != two.subject.digest


def test_a_masked_secret_is_never_written_back(stage: Stage) -> None:
    masked = str(stage.tools.masked(f"key: {SECRET}"))
    assert SECRET not in masked
    for arguments in (
        {"path": "a", "content": masked},
        {"path": masked, "content": "x"},
    ):
        assert "edit_file" in refusal(stage, "filesystem.write_file", arguments, rule="masked-arguments")
    nested: JsonValue = {"path": "a", "edits": [{"oldText": "x", "newText": masked}]}
    refusal(stage, "filesystem.edit_file", nested, rule="masked-arguments")


def test_a_fault_of_our_own_denies_and_can_be_seen(stage: Stage, tmp_path: Path) -> None:
    class Faulty(type(stage.tools._masker)):
        def mask_text(self, text: str) -> str:
            raise ZeroDivisionError

    tools = type(stage.tools)(stage.tools.catalogue, home=str(tmp_path), masker=Faulty(b"k"))
    with pytest.raises(BadCall, match="ZeroDivisionError") as told:
        tools.prepare("filesystem.read_file", {"path": "a"}, stage.place)
    assert told.value.rule == "invalid-arguments"
    assert isinstance(told.value.__cause__, ZeroDivisionError)


def test_judging_changes_nothing(stage: Stage) -> None:
    before = sorted(os.listdir(stage.root)), sorted(os.listdir(stage.workspace))
    stage.prepare("filesystem.write_file", path="new/x", content="x")
    stage.prepare("filesystem.delete_file", path="new")
    assert (sorted(os.listdir(stage.root)), sorted(os.listdir(stage.workspace))) == before


def test_a_fault_while_looking_closer_denies_the_call(stage: Stage) -> None:
    def breaks(_prepared: Prepared, _place: Place) -> Prepared:
        raise OverflowError

    tools = NativeTools(Catalogue(NATIVE_TOOLS), home="/h", masker=Masker(b"k" * 32), refiners={"session.recall": breaks})
    with pytest.raises(BadCall, match=r"could not be read \(OverflowError\)") as told:
        tools.prepare("session.recall", {"query": "x"}, stage.place)
    assert told.value.rule == "invalid-arguments"
