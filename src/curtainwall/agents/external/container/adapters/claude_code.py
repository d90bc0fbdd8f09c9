"""Claude Code: started once per turn with its own session id, its events read as stream-json."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from curtainwall.agents.external import SERVER, ClaudeOutputParser, claude_key
from curtainwall.agents.external.container.adapters.adapter import (
    SURROUNDINGS,
    AgentLaunch,
    Task,
    bridge,
    in_orientation,
)

_SETTINGS: Final = "claude-mcp.json"
_PROVIDER: Final = "anthropic"


class ClaudeCode:
    """The adapter for `claude`."""

    name = "claude-code"
    providers: Mapping[str, str] = {_PROVIDER: "ANTHROPIC_API_KEY"}

    def launch(self, task: Task) -> AgentLaunch:
        """Return how a turn is started."""
        program, arguments = bridge()
        servers = {"mcpServers": {SERVER: {"type": "stdio", "command": program, "args": arguments}}}
        milliseconds = str(task.patience * 1000)
        return AgentLaunch(
            command=(
                *("claude", "--print", "--output-format", "stream-json", "--verbose", "--include-partial-messages"),
                *("--mcp-config", in_orientation(_SETTINGS), "--strict-mcp-config"),
                # A project's settings could contain hooks that run without approval.
                *("--setting-sources", "user", "--dangerously-skip-permissions"),
                # Both reach the network from the provider's side or not at all; `fetch` goes through the gate.
                *("--disallowedTools", "WebFetch,WebSearch"),
                *("--append-system-prompt", task.orientation, "--system-prompt-snapshot", "off"),
                *(("--model", task.model) if task.model else ()),
                *(("--session-id", task.conversation) if task.is_new else ("--resume", task.conversation)),
            ),
            environment={
                **SURROUNDINGS,
                **(claude_key(key) if (key := task.keys.get(_PROVIDER)) else {}),
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
                # Otherwise the model would have to search for the session's tools.
                "ENABLE_TOOL_SEARCH": "false",
                "CLAUDE_CODE_MAX_RETRIES": "1",
                "MCP_TIMEOUT": "30000",
                "MCP_TOOL_TIMEOUT": milliseconds,
            },
            files={_SETTINGS: json.dumps(servers)},
        )

    def output_parser(self) -> ClaudeOutputParser:
        """Return a parser for the output of one turn."""
        return ClaudeOutputParser()

    def transcripts(self, conversation: str) -> Sequence[str]:
        """Return where the conversation is stored."""
        return (f".claude/projects/*/{conversation}.jsonl",)
