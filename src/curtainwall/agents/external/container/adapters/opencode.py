"""OpenCode: configured by a file of ours, its sessions resumed by their ids, its events read as JSON lines."""

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
    WholeText,
    is_session_tool,
    nested_text,
    readable_error,
)
from curtainwall.agents.external.container.adapters.adapter import (
    AgentLaunch,
    Task,
    bridge,
    chosen_provider,
    environment,
    in_orientation,
)

_CONFIG: Final = "opencode.json"
_ORIENTATION: Final = "opencode-orientation.md"
# The providers for which it uses a different name.
_PROVIDERS: Final = {"gemini": "google"}


class OpenCode:
    """The adapter for `opencode`."""

    name = "opencode"
    providers: Mapping[str, str] = {
        "anthropic": "ANTHROPIC_API_KEY",
        "openai": "OPENAI_API_KEY",
        "gemini": "GOOGLE_GENERATIVE_AI_API_KEY",
    }

    def launch(self, task: Task) -> AgentLaunch:
        """Return how a turn is started."""
        program, arguments = bridge()
        provider = chosen_provider(self, task)
        model = f"{_PROVIDERS.get(provider, provider)}/{task.model}" if task.model else ""
        tools: JsonValue = {
            "type": "local",
            "command": [program, *arguments],
            "enabled": True,
            "timeout": task.patience * 1000,
        }
        config: dict[str, JsonValue] = {
            "autoupdate": False,
            "share": "disabled",
            "lsp": False,
            "formatter": False,
            "permission": {"*": "allow", "webfetch": "deny", "websearch": "deny"},
            "instructions": [in_orientation(_ORIENTATION)],
            "mcp": {SERVER: tools},
            # The same model writes titles, because a smaller one may not be reachable.
            **({"model": model, "small_model": model} if model else {}),
        }
        return AgentLaunch(
            command=(
                *("opencode", "run", "--format", "json", "--print-logs", "--log-level", "WARN"),
                *(() if task.is_new else ("--session", task.conversation)),
            ),
            environment=environment(
                self,
                task,
                OPENCODE_CONFIG=in_orientation(_CONFIG),
                OPENCODE_DISABLE_AUTOUPDATE="1",
                OPENCODE_DISABLE_MODELS_FETCH="1",
                OPENCODE_DISABLE_LSP_DOWNLOAD="1",
                OPENCODE_DISABLE_DEFAULT_PLUGINS="1",
                # A workspace's configuration could contain plugins, which are programs.
                OPENCODE_DISABLE_PROJECT_CONFIG="1",
                OPENCODE_DISABLE_SHARE="1",
                # No plugins, and no packages fetched for them.
                OPENCODE_PURE="1",
            ),
            files={_CONFIG: json.dumps(config), _ORIENTATION: task.orientation},
        )

    def output_parser(self) -> "OpenCodeOutputParser":
        """Return a parser for the output of one turn."""
        return OpenCodeOutputParser()

    def transcripts(self, conversation: str) -> Sequence[str]:
        """Return nothing: OpenCode keeps all conversations in one database."""
        del conversation
        return ()


class OpenCodeOutputParser(JsonOutputParser):
    """Parses the output of `opencode run --format json`."""

    def __init__(self) -> None:
        self._conversation = ""

    def parse_stderr(self, line: str) -> Sequence[AgentReport]:
        """Parse a line of stderr."""
        if "Session not found" in line:
            return (ConversationUnknown(),)
        if 'message="server unavailable"' in line and f"key={SERVER} " in line:
            return (ReportedFailure("it did not reach the session's tools", stop=True),)
        return ()

    def take(self, event: JsonEvent) -> Sequence[AgentReport]:
        """Parse an event."""
        reports: list[AgentReport] = []
        name = nested_text(dict(event), "sessionID")
        if name and name != self._conversation:
            self._conversation = name
            reports.append(ConversationName(name))
        match event:
            case {"type": "text", "part": {"text": str(text)}}:
                reports.append(WholeText(text))
            case {"type": "tool_use", "part": {"tool": str(tool), "state": dict(state)}} if not is_session_tool(tool):
                reports.append(OwnToolUse(tool, state.get("input")))
            case {"type": "step_finish", "part": {"reason": str(reason)}} if reason != "tool-calls":
                reports.append(ReportedEnd())
            case {"type": "error", "error": dict(error)}:
                why = nested_text(error, "data", "message") or nested_text(error, "name") or "it failed"
                reports.append(ReportedFailure(readable_error(why)))
            case _:
                pass
        return reports
