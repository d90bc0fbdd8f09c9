"""Adapters: what they make of a turn, and what they hear in lines that the real programs wrote."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from curtainwall.agents.external import (
    Activity,
    AgentReport,
    ConversationName,
    ConversationUnknown,
    OwnToolUse,
    ReportedEnd,
    ReportedFailure,
    TextDelta,
    WholeText,
)
from curtainwall.agents.external.container.adapters import (
    Adapters,
    AgentLaunch,
    PlainAgent,
    Task,
)
from curtainwall.model import NotFound
from tests.support.covers import covers

RECORDED = Path(__file__).parent / "recorded"
ALL = Adapters()
THREAD = "11111111-2222-4333-8444-555555555555"
NEW = Task(
    THREAD, is_new=True, orientation='Be "here"\nand now', keys={"anthropic": "sk-stand-in", "openai": "sk-other", "gemini": "AIza-no"}
)
OLD = Task(THREAD, is_new=False, orientation="Be here", provider="", model="some-model", keys=NEW.keys)
BRIDGE = ["socat", "STDIO", "UNIX-CONNECT:/run/curtainwall/mcp.sock"]
TOOLLESS = "it did not reach the session's tools"


def heard(agent: str, recording: str) -> list[AgentReport]:
    """Return what an agent's parser makes of a recorded run, without what it does meanwhile."""
    parser = ALL.find(agent).output_parser()
    found: list[AgentReport] = []
    for end, take in ((".out", parser.parse_stdout), (".err", parser.parse_stderr)):
        path = RECORDED / f"{recording}{end}"
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            found += take(line)
    return [each for each in found if not isinstance(each, Activity)]


def launch(agent: str, task: Task = NEW) -> AgentLaunch:
    return ALL.find(agent).launch(task)


@covers("adapter.hears")
def test_claude_code_is_heard_in_pieces_and_as_a_whole() -> None:
    assert heard("claude-code", "claude-1") == [
        ConversationName(THREAD),
        TextDelta("the tool says found TEA"),
        WholeText("the tool says found TEA"),
        ReportedEnd(),
    ]
    assert heard("claude-code", "claude-2") == [
        ConversationName(THREAD),
        TextDelta("HEARD: "),
        TextDelta("apple, pear"),
        WholeText("HEARD: apple, pear"),
        ReportedEnd(),
    ]


@covers("adapter.hears")
@pytest.mark.parametrize(
    ("agent", "recording", "expected"),
    [
        ("codex", "codex-2", [WholeText("HEARD: apple, pear"), ReportedEnd()]),
        ("opencode", "opencode-1", [WholeText("the tool says found TEA"), ReportedEnd()]),
        ("opencode", "opencode-2", [WholeText("HEARD: apple, pear"), ReportedEnd()]),
        ("gemini", "gemini-2", [TextDelta("HEARD: apple, pear"), ReportedEnd()]),
    ],
)
def test_other_agents_are_heard_message_by_message(agent: str, recording: str, expected: list[AgentReport]) -> None:
    first, *rest = heard(agent, recording)
    assert isinstance(first, ConversationName)
    assert rest == expected


@covers("adapter.inner-errors")
@pytest.mark.parametrize(
    ("agent", "recording", "words"),
    [
        ("claude-code", "claude-fail", "the test wants this to fail"),
        ("claude-code", "claude-badkey", "401 invalid key"),
        ("codex", "codex-fail", "the test wants this to fail"),
        ("codex", "codex-badkey", "401 Unauthorized: invalid key"),
        ("opencode", "opencode-fail", "the test wants this to fail"),
        ("opencode", "opencode-badkey", "invalid key"),
        ("gemini", "gemini-fail", "the test wants this to fail"),
        ("gemini", "gemini-badkey", "invalid key"),
    ],
)
def test_an_error_inside_the_output_is_an_error(agent: str, recording: str, words: str) -> None:
    found = heard(agent, recording)
    assert [words in each.why for each in found if isinstance(each, ReportedFailure)] == [True]
    assert ReportedEnd() not in found
    assert not any(isinstance(each, WholeText | TextDelta) for each in found), "an API's error is not the agent's text"


@covers("adapter.inner-errors")
@pytest.mark.parametrize(
    ("agent", "recording", "failed"),
    [
        ("claude-code", "claude-nomcp", ReportedFailure(f"{TOOLLESS} (failed)", stop=True)),
        ("codex", "codex-nomcp-required", ReportedFailure(TOOLLESS)),
        ("opencode", "opencode-nomcp", ReportedFailure(TOOLLESS, stop=True)),
        ("gemini", "gemini-nomcp", ReportedFailure(TOOLLESS, stop=True)),
    ],
)
def test_tools_that_were_not_reached_are_an_error(agent: str, recording: str, failed: ReportedFailure) -> None:
    assert failed in heard(agent, recording)


@covers("adapter.lost")
@pytest.mark.parametrize(
    ("agent", "recording"),
    [("claude-code", "claude-unknown"), ("codex", "codex-unknown"), ("opencode", "opencode-unknown"), ("gemini", "gemini-unknown")],
)
def test_a_conversation_that_the_agent_does_not_know_is_lost(agent: str, recording: str) -> None:
    found = heard(agent, recording)
    assert ConversationUnknown() in found
    assert not any(isinstance(each, ReportedFailure) for each in found)


@pytest.mark.parametrize("agent", ALL.names)
@pytest.mark.parametrize(
    "line", ["", "null", "[1]", "{", '{"type": "result"', '{"type": 7}', '{"type": "assistant"}', "[" * 10_000, "\0", "plain"]
)
def test_lines_that_mean_nothing_are_passed_over(agent: str, line: str) -> None:
    parser = ALL.find(agent).output_parser()
    assert list(parser.parse_stdout(line)) == []
    assert list(parser.parse_stderr(line)) == []


def test_a_failure_that_looks_like_json_and_cannot_be_read_as_such_is_told_as_it_is() -> None:
    deep = "[" * 100_000
    told = json.dumps({"type": "turn.failed", "error": {"message": deep}})
    assert list(ALL.find("codex").output_parser().parse_stdout(told)) == [ReportedFailure(deep)]


@pytest.mark.parametrize("error", [{"type": "api_error", "message": "no room"}, {"type": "error", "error": {"message": "no room"}}])
def test_an_error_of_a_models_api_is_reported_without_its_json(error: dict[str, object]) -> None:
    message = json.dumps(error)
    codex = json.dumps({"type": "turn.failed", "error": {"message": message}})
    assert list(ALL.find("codex").output_parser().parse_stdout(codex)) == [ReportedFailure("no room")]
    opencode = json.dumps({"type": "error", "error": {"name": "APIError", "data": {"message": message}}})
    assert list(ALL.find("opencode").output_parser().parse_stdout(opencode)) == [ReportedFailure("no room")]


@pytest.mark.parametrize("depth", [500, 900, 960, 970, 980, 990, 4_900, 9_980, 9_990])
def test_what_can_be_read_and_is_nested_too_deeply_to_be_told_is_passed_over(depth: int) -> None:
    parser, deep = ALL.find("claude-code").output_parser(), "[" * depth + "]" * depth
    about = '{"type": "assistant", "parent_tool_use_id": null, "message": {"content": [%s]}}'
    assert list(parser.parse_stdout(about % f'{{"type": "tool_use", "name": "Bash", "input": {deep}}}')) == []
    assert list(parser.parse_stdout(f'{{"type": "system", "subtype": "api_retry", "error": {deep}}}')) == []


@covers("adapter.launch")
@pytest.mark.parametrize("agent", ALL.names)
def test_every_agent_gets_the_one_way_out_and_only_stand_in_keys(agent: str) -> None:
    told = launch(agent).environment
    assert told["HTTPS_PROXY"] == told["https_proxy"] == "http://127.0.0.1:18080"
    assert told["SSL_CERT_FILE"] == told["NODE_EXTRA_CA_CERTS"] == "/etc/curtainwall/ca.pem"
    assert told["HOME"] == "/home/agent"
    variables = ALL.find(agent).providers
    assert {name: told[variable] for name, variable in variables.items()} == {name: NEW.keys[name] for name in variables}


@covers("adapter.launch")
@pytest.mark.parametrize("agent", ALL.names)
def test_a_new_conversation_and_an_old_one_are_told_apart(agent: str) -> None:
    assert launch(agent).command != launch(agent, OLD).command
    assert THREAD in launch(agent, OLD).command


@covers("adapter.launch")
def test_claude_code_gets_its_tools_strictly_and_no_project_settings() -> None:
    made = launch("claude-code", OLD)
    servers = json.loads(made.files["claude-mcp.json"])["mcpServers"]
    assert [servers["curtainwall"]["command"], *servers["curtainwall"]["args"]] == BRIDGE
    line = " ".join(made.command)
    assert "--mcp-config /etc/curtainwall/claude-mcp.json --strict-mcp-config --setting-sources user --dangerously-skip-permissions" in line
    assert line.endswith(f"--model some-model --resume {THREAD}")
    assert launch("claude-code").command[-2:] == ("--session-id", THREAD)
    assert int(made.environment["MCP_TOOL_TIMEOUT"]) > 24 * 3600 * 1000, "a human may take a day"


@covers("adapter.launch")
def test_codex_is_configured_by_its_command_line_alone() -> None:
    made = launch("codex", OLD)
    options = [made.command[at + 1] for at, word in enumerate(made.command) if word == "-c"]
    config = tomllib.loads("\n".join(options))
    tools = config["mcp_servers"]["curtainwall"]
    assert [tools["command"], *tools["args"]] == BRIDGE
    assert tools["required"] is True
    assert tools["tool_timeout_sec"] > 24 * 3600
    provider = config["model_providers"][config["model_provider"]]
    assert (provider["wire_api"], provider["supports_websockets"], provider["env_key"]) == ("responses", False, "OPENAI_API_KEY")
    assert made.command[:3] == ("codex", "exec", "resume")
    assert made.command[-2:] == (THREAD, "-"), "the message is its stdin"
    again = launch("codex")
    assert tomllib.loads(next(word for word in again.command if word.startswith("developer_"))) == {
        "developer_instructions": NEW.orientation
    }


@covers("adapter.launch")
def test_opencode_gets_a_file_that_outranks_the_workspace() -> None:
    made = launch("opencode", OLD)
    config = json.loads(made.files["opencode.json"])
    assert config["mcp"]["curtainwall"]["command"] == BRIDGE
    assert 24 * 3600 * 1000 < config["mcp"]["curtainwall"]["timeout"] < 2**31, "longer would wrap around"
    assert config["model"] == "anthropic/some-model"
    assert made.environment["OPENCODE_CONFIG"] == "/etc/curtainwall/opencode.json"
    assert made.environment["OPENCODE_DISABLE_PROJECT_CONFIG"] == "1"
    assert json.loads(launch("opencode", Task(THREAD, True, "", "gemini", "g")).files["opencode.json"])["model"] == "google/g"


@covers("adapter.launch")
def test_gemini_gets_settings_that_outrank_the_workspace_and_its_orientation_first() -> None:
    made = launch("gemini")
    settings = json.loads(made.files["gemini.json"])
    tools = settings["mcpServers"]["curtainwall"]
    assert [tools["command"], *tools["args"]] == BRIDGE
    assert made.environment["GEMINI_CLI_SYSTEM_SETTINGS_PATH"] == "/etc/curtainwall-root/gemini.json"
    assert made.root_files == ("gemini.json",)
    assert made.preface == NEW.orientation
    assert launch("gemini", OLD).preface == ""


@covers("adapter.own")
def test_an_agent_of_ones_own_takes_a_few_lines() -> None:
    mine = PlainAgent("mine", ("mine", "--thread", "{conversation}"), resume=("--go-on",), providers={"openai": "MY_KEY"})
    every = Adapters(mine)
    assert "mine" in every.names
    assert every.find("mine").launch(NEW).command == ("mine", "--thread", THREAD)
    made = every.find("mine").launch(OLD)
    assert made.command == ("mine", "--thread", THREAD, "--go-on")
    assert made.environment["MY_KEY"] == "sk-other"
    assert made.environment["CURTAINWALL_TOOLS"] == " ".join(BRIDGE)
    assert [*mine.output_parser().parse_stdout("hello")] == [TextDelta("hello\n"), ReportedEnd()]


def test_an_agent_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(NotFound, match="no agent `nope`; there are: claude-code, codex, opencode, gemini"):
        ALL.find("nope")


def said(parent: str | None, *content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "assistant", "parent_tool_use_id": parent, "message": {"content": content}}


OWN_TOOLS: list[tuple[str, list[dict[str, Any]], list[OwnToolUse]]] = [
    (
        "claude-code",
        [
            {
                "type": "assistant",
                "parent_tool_use_id": None,
                "message": {"content": [{"type": "tool_use", "name": "Bash", "input": {"a": 1}}]},
            },
            said("toolu_1", {"type": "text", "text": "a helper"}, {"type": "tool_use", "name": "Read", "input": {}}),
            {
                "type": "assistant",
                "parent_tool_use_id": None,
                "message": {"content": [{"type": "tool_use", "name": "mcp__curtainwall__x"}]},
            },
        ],
        [OwnToolUse("Bash", {"a": 1}), OwnToolUse("Read", {})],
    ),
    (
        "codex",
        [
            {"type": "item.started", "item": {"id": "1", "type": "command_execution", "command": "ls", "status": "in_progress"}},
            {"type": "item.completed", "item": {"id": "1", "type": "command_execution", "command": "ls", "aggregated_output": "x"}},
            {"type": "item.completed", "item": {"id": "2", "type": "file_change", "changes": [{"path": "/a"}], "status": "completed"}},
            {"type": "item.started", "item": {"id": "3", "type": "mcp_tool_call", "server": "curtainwall", "tool": "x", "arguments": {}}},
            {"type": "item.started", "item": {"id": "4", "type": "mcp_tool_call", "server": "other", "tool": "x", "arguments": {"b": 2}}},
            {"type": "item.completed", "item": {"id": "5", "type": "reasoning", "text": "hm"}},
        ],
        [OwnToolUse("shell", "ls"), OwnToolUse("file_change", {"changes": [{"path": "/a"}]}), OwnToolUse("other.x", {"b": 2})],
    ),
    ("opencode", [{"type": "tool_use", "part": {"tool": "bash", "state": {"input": {"c": 3}}}}], [OwnToolUse("bash", {"c": 3})]),
    ("gemini", [{"type": "tool_use", "tool_name": "shell", "parameters": {"d": 4}}], [OwnToolUse("shell", {"d": 4})]),
]


@covers("brokered.own-tools-reported")
@pytest.mark.parametrize(("agent", "lines", "expected"), OWN_TOOLS, ids=[agent for agent, _, _ in OWN_TOOLS])
def test_tools_that_an_agent_uses_by_itself_are_heard_once_and_the_sessions_are_not(
    agent: str, lines: list[dict[str, Any]], expected: list[OwnToolUse]
) -> None:
    parser = ALL.find(agent).output_parser()
    assert [heard for line in lines for heard in parser.parse_stdout(json.dumps(line))] == expected


@covers("adapter.inner-errors")
def test_gemini_that_ignores_its_settings_is_stopped_because_it_has_no_tools_then() -> None:
    line = "Security Warning: Skipping system settings file '/etc/curtainwall/gemini.json': Parent directory is insecure"
    (heard,) = Adapters().find("gemini").output_parser().parse_stderr(line)
    assert isinstance(heard, ReportedFailure)
    assert heard.stop
    assert "ignores the settings" in heard.why
