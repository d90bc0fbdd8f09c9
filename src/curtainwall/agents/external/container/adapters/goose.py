"""Goose: its config and command line as its documentation has them. No package of it was to be had, so it has never run here."""

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from curtainwall.agents.external import (
    Event,
    Failed,
    Finished,
    Heard,
    JsonEar,
    Lost,
    Said,
    Used,
    below,
    is_ours,
    text_below,
)
from curtainwall.agents.external.container.adapters.adapter import (
    Launch,
    Task,
    chosen_provider,
    environment,
)
from curtainwall.agents.external.container.inside import BRIDGE

_PROVIDERS: Final = {"gemini": "google"}


class Goose:
    """The adapter for `goose`."""

    name = "goose"
    providers: Mapping[str, str] = {
        "anthropic": "ANTHROPIC_API_KEY",
        "openai": "OPENAI_API_KEY",
        "gemini": "GOOGLE_API_KEY",
    }

    def launch(self, task: Task) -> Launch:
        """Return how a turn is started."""
        provider = chosen_provider(self, task)
        return Launch(
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

    def ear(self) -> "GooseEar":
        """Return whoever listens to one turn."""
        return GooseEar()

    def transcripts(self, conversation: str) -> Sequence[str]:
        """Return nothing: all conversations are in one database of its own."""
        del conversation
        return ()


class GooseEar(JsonEar):
    """Listens to stream-json."""

    def overhear(self, line: str) -> Sequence[Heard]:
        """Take a line of stderr."""
        if "No session found" in line or "Session not found" in line:
            return (Lost(),)
        if "Failed to start extension" in line or "Failed to add extension" in line:
            return (Failed("it did not reach the session's tools", stop=True),)
        return ()

    def take(self, event: Event) -> Sequence[Heard]:
        """Take an event."""
        match event:
            case {"type": "message", "message": {"role": "assistant", "content": list(parts)}}:
                return [heard for part in parts if (heard := _heard_in(part)) is not None]
            case {"type": "error"}:
                return (Failed(text_below(dict(event), "error") or text_below(below(dict(event), "error"), "message") or "it failed"),)
            case {"type": "complete"}:
                return (Finished(),)
            case _:
                return ()


def _heard_in(part: JsonValue) -> Heard | None:
    """Return what a part of a message says, or which tool it is about."""
    match part:
        case {"type": "text", "text": str(text)}:
            return Said(text)
        case {"type": "toolRequest", "toolCall": {"value": {"name": str(tool)} as call}} if not is_ours(tool):
            return Used(tool, call.get("arguments"))
        case _:
            return None
