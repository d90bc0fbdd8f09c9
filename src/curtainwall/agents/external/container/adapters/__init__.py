"""The adapters for agents in containers, by name. Each is pure: it turns a task into a command line, and output lines into reports.

A program that prints plain text needs none of its own: `PlainAgent` is made from the configuration (`agents.NAME.command`).
"""

from curtainwall.agents.external import (
    Activity,
    AgentReport,
    ConversationName,
    ConversationUnknown,
    JsonOutputParser,
    OutputParser,
    ReportedEnd,
    ReportedFailure,
    TextDelta,
    WholeText,
)
from curtainwall.agents.external.container.adapters.adapter import (
    Adapter,
    AgentLaunch,
    Task,
    environment,
)
from curtainwall.agents.external.container.adapters.claude_code import ClaudeCode
from curtainwall.agents.external.container.adapters.codex import Codex
from curtainwall.agents.external.container.adapters.gemini import Gemini
from curtainwall.agents.external.container.adapters.opencode import OpenCode
from curtainwall.agents.external.container.adapters.plain import PlainAgent
from curtainwall.model import NotFound

__all__ = [
    "Activity",
    "Adapter",
    "Adapters",
    "AgentLaunch",
    "AgentReport",
    "ClaudeCode",
    "Codex",
    "ConversationName",
    "ConversationUnknown",
    "Gemini",
    "JsonOutputParser",
    "OpenCode",
    "OutputParser",
    "PlainAgent",
    "ReportedEnd",
    "ReportedFailure",
    "Task",
    "TextDelta",
    "WholeText",
    "environment",
]


class Adapters:
    """The shipped adapters and those that a user adds; a user's adapter overrides a shipped one of the same name."""

    def __init__(self, *more: Adapter) -> None:
        shipped: tuple[Adapter, ...] = (ClaudeCode(), Codex(), OpenCode(), Gemini())
        self._all = {adapter.name: adapter for adapter in (*shipped, *more)}

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all adapters."""
        return tuple(self._all)

    def find(self, name: str) -> Adapter:
        """Return the adapter with this name; raise `NotFound`."""
        adapter = self._all.get(name)
        if adapter is None:
            raise NotFound(f"there is no agent `{name}`; there are: {', '.join(self._all)}")
        return adapter
