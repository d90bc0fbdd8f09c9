"""Goose: its config and command line follow its documentation. No package was available, so it has never run here."""

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from curtainwall.agents.external import (
    AgentReport,
    ConversationUnknown,
    JsonEvent,
    JsonOutputParser,
    OwnToolUse,
    ReportedEnd,
    ReportedFailure,
    TextDelta,
    is_session_tool,
    nested,
    nested_text,
)
from curtainwall.agents.external.container.adapters.adapter import (
    AgentLaunch,
    Task,
    chosen_provider,
    environment,
)
from curtainwall.agents.external.container.spec import BRIDGE

_PROVIDERS: Final = {"gemini": "google"}


class Goose:
    """The adapter for `goose`."""

    name = "goose"
    providers: Mapping[str, str] = {
        "anthropic": "ANTHROPIC_API_KEY",
        "openai": "OPENAI_API_KEY",
        "gemini": "GOOGLE_API_KEY",
    }

    def launch(self, task: Task) -> AgentLaunch:
        """Return how a turn is started."""
        provider = chosen_provider(self, task)
        return AgentLaunch(
            command=(
                *("goose", "run", "--instructions", "-", "--output-format", "stream-json", "--quiet"),
                *("--no-profile", "--with-builtin", "developer", "--with-extension", " ".join(BRIDGE)),
                *("--system", task.orientation),
                *("--name", task.conversation, *(() if task.is_new else ("--resume",))),
            ),
            environment=environment(
                self,
                task,
                GOOSE_PROVIDER=_PROVIDERS.get(provider, provider),
                GOOSE_MODE="auto",
                GOOSE_TELEMETRY_ENABLED="false",
                GOOSE_DISABLE_KEYRING="1",
                GOOSE_DEFAULT_EXTENSION_TIMEOUT=str(task.patience),
                **({"GOOSE_MODEL": task.model} if task.model else {}),
            ),
        )

    def output_parser(self) -> "GooseOutputParser":
        """Return a parser for the output of one turn."""
        return GooseOutputParser()

    def transcripts(self, conversation: str) -> Sequence[str]:
        """Return nothing: Goose keeps all conversations in one database."""
        del conversation
        return ()


class GooseOutputParser(JsonOutputParser):
    """Parses Goose's stream-json."""

    def parse_stderr(self, line: str) -> Sequence[AgentReport]:
        """Parse a line of stderr."""
        if "No session found" in line or "Session not found" in line:
            return (ConversationUnknown(),)
        if "Failed to start extension" in line or "Failed to add extension" in line:
            return (ReportedFailure("it did not reach the session's tools", stop=True),)
        return ()

    def take(self, event: JsonEvent) -> Sequence[AgentReport]:
        """Parse an event."""
        match event:
            case {"type": "message", "message": {"role": "assistant", "content": list(parts)}}:
                return [report for part in parts if (report := _parse_part(part)) is not None]
            case {"type": "error"}:
                return (
                    ReportedFailure(
                        nested_text(dict(event), "error") or nested_text(nested(dict(event), "error"), "message") or "it failed"
                    ),
                )
            case {"type": "complete"}:
                return (ReportedEnd(),)
            case _:
                return ()


def _parse_part(part: JsonValue) -> AgentReport | None:
    """Return the text or the tool use in a part of a message."""
    match part:
        case {"type": "text", "text": str(text)}:
            return TextDelta(text)
        case {"type": "toolRequest", "toolCall": {"value": {"name": str(tool)} as call}} if not is_session_tool(tool):
            return OwnToolUse(tool, call.get("arguments"))
        case _:
            return None
