"""Gemini CLI: configured by a settings file that outranks the user's and the workspace's, its sessions named by us."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from curtainwall.agents.external import (
    SERVER,
    AgentReport,
    ConversationName,
    ConversationUnknown,
    JsonEvent,
    JsonOutputParser,
    OwnToolUse,
    ReportedEnd,
    ReportedFailure,
    TextDelta,
    is_session_tool,
    nested_text,
)
from curtainwall.agents.external.container.adapters.adapter import (
    AgentLaunch,
    Task,
    bridge,
    environment,
)
from curtainwall.agents.external.container.spec import ROOT_FILES

_SETTINGS: Final = "gemini.json"


class Gemini:
    """The adapter for `gemini`."""

    name = "gemini"
    providers: Mapping[str, str] = {"gemini": "GEMINI_API_KEY"}

    def launch(self, task: Task) -> AgentLaunch:
        """Return how a turn is started."""
        program, arguments = bridge()
        tools: JsonValue = {"command": program, "args": [*arguments], "timeout": task.patience * 1000, "trust": True}
        settings: dict[str, JsonValue] = {
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False, "maxAttempts": 2},
            "tools": {"exclude": ["google_web_search", "web_fetch"]},
            "mcp": {"allowed": [SERVER]},
            "mcpServers": {SERVER: tools},
        }
        return AgentLaunch(
            command=(
                *("gemini", "--yolo", "--output-format", "stream-json"),
                *(("--model", task.model) if task.model else ()),
                *(("--session-id", task.conversation) if task.is_new else ("--resume", task.conversation)),
            ),
            environment=environment(
                self,
                task,
                GEMINI_CLI_SYSTEM_SETTINGS_PATH=f"{ROOT_FILES}/{_SETTINGS}",
                GEMINI_CLI_TRUST_WORKSPACE="true",
                GEMINI_CLI_NO_RELAUNCH="1",
            ),
            files={_SETTINGS: json.dumps(settings)},
            root_files=(_SETTINGS,),
            # It reads instructions only from files in the workspace or its home, which the agent can change.
            preface=task.orientation if task.is_new else "",
        )

    def output_parser(self) -> "GeminiOutputParser":
        """Return a parser for the output of one turn."""
        return GeminiOutputParser()

    def transcripts(self, conversation: str) -> Sequence[str]:
        """Return where the conversation is stored."""
        return (f".gemini/tmp/*/chats/session-*-{conversation[:8]}.jsonl",)


class GeminiOutputParser(JsonOutputParser):
    """Parses Gemini CLI's stream-json."""

    def parse_stderr(self, line: str) -> Sequence[AgentReport]:
        """Parse a line of stderr."""
        if line.startswith("Error resuming session"):
            return (ConversationUnknown(),)
        if line.startswith("Security Warning: Skipping system settings file"):
            # It accepts settings that override a workspace's only from root. Without them it lacks the session's tools and calls home.
            return (
                ReportedFailure("it ignores the settings that Curtainwall gives it, because it does not take them for root's", stop=True),
            )
        if line.startswith("MCP issues detected"):
            return (ReportedFailure("it did not reach the session's tools", stop=True),)
        return ()

    def take(self, event: JsonEvent) -> Sequence[AgentReport]:
        """Parse an event."""
        match event:
            case {"type": "init", "session_id": str(session)}:
                return (ConversationName(session),)
            case {"type": "message", "role": "assistant", "content": str(text)}:
                return (TextDelta(text),)
            case {"type": "tool_use", "tool_name": str(tool)} if not is_session_tool(tool):
                return (OwnToolUse(tool, event.get("parameters")),)
            case {"type": "error", "severity": "error", "message": str(message)}:
                return (ReportedFailure(message),)
            case {"type": "result", "status": "success"}:
                return (ReportedEnd(),)
            case {"type": "result"}:
                return (ReportedFailure(nested_text(dict(event), "error", "message") or "it failed"),)
            case _:
                return ()
