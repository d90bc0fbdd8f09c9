"""Codex: configured by its command line alone, its threads resumed by their ids, its events read as JSON lines."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from curtainwall.agents.external import (
    SERVER,
    Activity,
    AgentReport,
    ConversationName,
    ConversationUnknown,
    JsonEvent,
    JsonOutputParser,
    OwnToolUse,
    ReportedEnd,
    ReportedFailure,
    WholeText,
    nested_text,
    readable_error,
)
from curtainwall.agents.external.container.adapters.adapter import (
    AgentLaunch,
    Task,
    bridge,
    environment,
)


class Codex:
    """The adapter for `codex`."""

    name = "codex"
    providers: Mapping[str, str] = {"openai": "OPENAI_API_KEY"}

    def launch(self, task: Task) -> AgentLaunch:
        """Return how a turn is started."""
        program, arguments = bridge()
        settings: dict[str, JsonValue] = {
            # The shipped provider insists on WebSockets and many retries, and has no setting to change that.
            "model_provider": SERVER,
            f"model_providers.{SERVER}.name": "OpenAI",
            f"model_providers.{SERVER}.base_url": "https://api.openai.com/v1",
            f"model_providers.{SERVER}.env_key": self.providers["openai"],
            f"model_providers.{SERVER}.wire_api": "responses",
            f"model_providers.{SERVER}.supports_websockets": False,
            f"model_providers.{SERVER}.request_max_retries": 1,
            f"model_providers.{SERVER}.stream_max_retries": 1,
            f"mcp_servers.{SERVER}.command": program,
            f"mcp_servers.{SERVER}.args": list[JsonValue](arguments),
            # It must not start without its tools.
            f"mcp_servers.{SERVER}.required": True,
            f"mcp_servers.{SERVER}.startup_timeout_sec": 30,
            f"mcp_servers.{SERVER}.tool_timeout_sec": task.patience,
            "developer_instructions": task.orientation,
            "web_search": "disabled",
            "analytics.enabled": False,
            "check_for_update_on_startup": False,
            "features.plugins": False,
            "features.apps": False,
            "features.unbounded_connection_retries": False,
            # Our proxy reads bodies strictly and rejects compressed ones.
            "features.enable_request_compression": False,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={_toml(value)}")]
        return AgentLaunch(
            command=(
                *("codex", "exec", *(() if task.is_new else ("resume",))),
                *("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json"),
                *options,
                *(("--model", task.model) if task.model else ()),
                *(() if task.is_new else (task.conversation,)),
                "-",
            ),
            environment=environment(self, task),
        )

    def output_parser(self) -> "CodexOutputParser":
        """Return a parser for the output of one turn."""
        return CodexOutputParser()

    def transcripts(self, conversation: str) -> Sequence[str]:
        """Return where the conversation is stored."""
        return (f".codex/sessions/*/*/*/rollout-*-{conversation}.jsonl",)


# Items that are text rather than actions.
_NO_TOOLS: Final = frozenset({"agent_message", "reasoning", "error", "todo_list"})
# The fields of an action that hold its outcome.
_OUTCOMES: Final = frozenset({"id", "type", "status", "aggregated_output", "exit_code", "result", "error"})
_REMEMBERED: Final = 1_000


class CodexOutputParser(JsonOutputParser):
    """Parses the output of `codex exec --json`."""

    def __init__(self) -> None:
        self._used_before: dict[str, None] = {}

    def parse_stderr(self, line: str) -> Sequence[AgentReport]:
        """Parse a line of stderr."""
        if "no rollout found for thread id" in line:
            return (ConversationUnknown(),)
        if line.startswith("Error:") and "required MCP servers failed" in line:
            return (ReportedFailure("it did not reach the session's tools"),)
        return ()

    def _used(self, name: str, kind: str, item: Mapping[str, JsonValue]) -> Sequence[AgentReport]:
        """Report an item once, although Codex prints it when it starts and when it ends."""
        if name in self._used_before or (kind == "mcp_tool_call" and item.get("server") == SERVER):
            return ()
        self._used_before[name] = None
        if len(self._used_before) > _REMEMBERED:
            del self._used_before[next(iter(self._used_before))]
        return (_use_of(kind, item),)

    def take(self, event: JsonEvent) -> Sequence[AgentReport]:
        """Parse an event."""
        match event:
            case {"type": "thread.started", "thread_id": str(thread)}:
                return (ConversationName(thread),)
            case {"type": "item.completed", "item": {"type": "agent_message", "text": str(text)}}:
                return (WholeText(text),)
            case {"type": "item.completed", "item": {"type": "error", "message": str(message)}}:
                return (Activity(message[:200]),)
            case {"type": "item.started" | "item.completed", "item": {"type": str(kind), "id": str(name)} as item} if kind not in _NO_TOOLS:
                return self._used(name, kind, item)
            case {"type": "error", "message": str(message)} if message.startswith("Reconnecting"):
                return (Activity(message[:200]),)
            case {"type": "turn.completed"}:
                return (ReportedEnd(),)
            case {"type": "turn.failed"}:
                return (ReportedFailure(readable_error(nested_text(dict(event), "error", "message"))),)
            case _:
                return ()


def _use_of(kind: str, item: Mapping[str, JsonValue]) -> OwnToolUse:
    match kind, item:
        case "command_execution", {"command": str(command)}:
            return OwnToolUse("shell", command)
        case "mcp_tool_call", {"server": str(server), "tool": str(tool)}:
            return OwnToolUse(f"{server}.{tool}", item.get("arguments"))
        case _:
            return OwnToolUse(kind, {name: value for name, value in item.items() if name not in _OUTCOMES})


def _toml(value: JsonValue) -> str:
    """Return a string, list or number as TOML: it is written as JSON, except for the one character that JSON does not escape."""
    return json.dumps(value).replace("\x7f", "\\u007f")
