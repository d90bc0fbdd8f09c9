"""The adapters for agents in containers, by name. Each is pure: it turns a task into a command line, and output lines into reports.

A program that prints plain text needs no adapter: `PlainAgent` is built from the configuration (`agents.NAME.command`).
"""

from curtainwall.agents.external import Activity as Activity
from curtainwall.agents.external import AgentReport as AgentReport
from curtainwall.agents.external import ConversationName as ConversationName
from curtainwall.agents.external import ConversationUnknown as ConversationUnknown
from curtainwall.agents.external import JsonOutputParser as JsonOutputParser
from curtainwall.agents.external import OutputParser as OutputParser
from curtainwall.agents.external import ReportedEnd as ReportedEnd
from curtainwall.agents.external import ReportedFailure as ReportedFailure
from curtainwall.agents.external import TextDelta as TextDelta
from curtainwall.agents.external import WholeText as WholeText
from curtainwall.agents.external.container.adapters.adapter import Adapter as Adapter
from curtainwall.agents.external.container.adapters.adapter import AgentLaunch as AgentLaunch
from curtainwall.agents.external.container.adapters.adapter import Task as Task
from curtainwall.agents.external.container.adapters.adapter import environment as environment
from curtainwall.agents.external.container.adapters.claude_code import ClaudeCode as ClaudeCode
from curtainwall.agents.external.container.adapters.codex import Codex as Codex
from curtainwall.agents.external.container.adapters.gemini import Gemini as Gemini
from curtainwall.agents.external.container.adapters.opencode import OpenCode as OpenCode
from curtainwall.agents.external.container.adapters.plain import PlainAgent as PlainAgent
from curtainwall.model import NotFound


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
