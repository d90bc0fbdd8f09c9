"""The reports of an external agent at work, and the parsers that read its output line by line. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, cast

from pydantic import JsonValue

from curtainwall.model import is_deeper, record

JsonEvent = Mapping[str, JsonValue]

SERVER: Final = "curtainwall"
"""The name of the tool server that offers the session's tools."""

MOST_WORDS: Final = 2_000
"""How many characters of an agent's failure message are kept."""

_DEEPEST: Final = 200


@record
class TextDelta:
    """A piece of the agent's text as it streams in."""

    text: str


@record
class WholeText:
    """A complete message, which replaces the pieces before it."""

    text: str


@record
class Activity:
    """A short note on what the agent is doing."""

    text: str


@record
class OwnToolUse:
    """The use of one of the agent's own tools, as it reports it. The gate records the session's tools."""

    tool: str
    arguments: JsonValue = None


@record
class ConversationName:
    """The agent's name for its current conversation."""

    conversation: str


@record
class ReportedFailure:
    """The turn has failed, whatever the exit code. `stop` means that waiting for the end is pointless."""

    why: str
    stop: bool = False


@record
class ConversationUnknown:
    """The agent does not know the conversation it should resume."""


@record
class ReportedEnd:
    """The agent reports that its turn is over."""


AgentReport = TextDelta | WholeText | Activity | OwnToolUse | ConversationName | ReportedFailure | ConversationUnknown | ReportedEnd


class OutputParser(Protocol):
    """Parses what an agent prints in one turn, line by line."""

    def parse_stdout(self, line: str) -> Sequence[AgentReport]:
        """Parse a line of stdout."""
        ...

    def parse_stderr(self, line: str) -> Sequence[AgentReport]:
        """Parse a line of stderr."""
        ...


def is_session_tool(name: str) -> bool:
    """Tell whether a tool is one of the session's, in any agent's spelling."""
    return SERVER in name


class JsonOutputParser:
    """Parses the output of agents that print one JSON object per line; other lines on stdout are ignored."""

    def parse_stdout(self, line: str) -> Sequence[AgentReport]:
        """Parse a line of stdout."""
        event = parse_event(line)
        return () if event is None else self.take(event)

    def parse_stderr(self, line: str) -> Sequence[AgentReport]:
        """Parse a line of stderr."""
        del line
        return ()

    def take(self, event: JsonEvent) -> Sequence[AgentReport]:
        """Parse an event."""
        raise NotImplementedError


def parse_event(line: str) -> JsonEvent | None:
    """Return the JSON object on a line, or None if there is none or it is nested too deeply to record."""
    try:
        event = cast("JsonValue", json.loads(line))
    except (ValueError, RecursionError):
        return None
    # Counting brackets is cheap and clears nearly every line.
    is_flat = line.count("{") + line.count("[") <= _DEEPEST
    return event if isinstance(event, dict) and (is_flat or not is_deeper(event, _DEEPEST)) else None


def nested(value: JsonValue, *names: str) -> JsonValue:
    """Return the value at this path of keys, or None."""
    for name in names:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def nested_text(value: JsonValue, *names: str) -> str:
    """Return the text at this path of keys, or an empty string."""
    text = nested(value, *names)
    return text if isinstance(text, str) else ""


def readable_error(message: str) -> str:
    """Return an API's error without the JSON around it."""
    error = dict(parse_event(message) or {})
    return nested_text(error, "error", "message") or nested_text(error, "message") or message


class LineSplitter:
    """Splits one stream into lines. A line that is too long is cut, which makes it unparseable."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._half = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that this piece completes, without their newlines."""
        *ends, rest = piece.split(b"\n")
        lines: list[bytes] = []
        for end in ends:
            self._add(end)
            lines.append(self.rest())
        self._add(rest)
        return lines

    def rest(self) -> bytes:
        """Return the unfinished line and clear it."""
        half, self._half = bytes(self._half), bytearray()
        return half

    def _add(self, piece: bytes) -> None:
        # Add each piece once and only as far as it fits: otherwise each piece would cost as much as all before it.
        room = self._longest - len(self._half)
        self._half += piece if len(piece) <= room else piece[:room]


# A server that is still starting is reported as pending; Claude Code waits for it before the first request.
_REACHED: Final = frozenset({"connected", "pending"})

_TOKEN: Final = "sk-ant-oat"  # noqa: S105 - how any such token begins


def claude_key(key: str) -> dict[str, str]:
    """Return the environment variable for a key. An OAuth token, recognized by its prefix, has a different one."""
    return {"CLAUDE_CODE_OAUTH_TOKEN" if key.startswith(_TOKEN) else "ANTHROPIC_API_KEY": key}


class ClaudeOutputParser(JsonOutputParser):
    """Parses Claude Code's stream-json."""

    def parse_stderr(self, line: str) -> Sequence[AgentReport]:
        """Parse a line of stderr."""
        return (ConversationUnknown(),) if line.startswith("No conversation found") else ()

    def take(self, event: JsonEvent) -> Sequence[AgentReport]:
        """Parse an event."""
        match event:
            case {"type": "system", "subtype": "init"}:
                return self._started(event)
            case {"type": "system", "subtype": "api_retry"}:
                return (Activity(f"the model's API failed ({event.get('error')}); trying again"),)
            case {"type": "stream_event", "parent_tool_use_id": None}:
                piece = nested_text(nested(event.get("event"), "delta"), "text")
                return (TextDelta(piece),) if piece else ()
            case {"type": "assistant", "parent_tool_use_id": None}:
                return self._spoke(event)
            case {"type": "assistant"}:
                # Of the agent's sub-agents, report only the tools that they use.
                return [report for report in self._spoke(event) if isinstance(report, OwnToolUse)]
            case {"type": "result"}:
                return self._ended(event)
            case _:
                return ()

    def _started(self, event: JsonEvent) -> Sequence[AgentReport]:
        servers = event.get("mcp_servers")
        listed = servers if isinstance(servers, list) else []
        states = {nested_text(server, "name"): nested_text(server, "status") for server in listed}
        state = states.get(SERVER, "missing")
        name = ConversationName(nested_text(dict(event), "session_id"))
        return (name,) if state in _REACHED else (name, ReportedFailure(f"it did not reach the session's tools ({state})", stop=True))

    def _spoke(self, event: JsonEvent) -> Sequence[AgentReport]:
        if event.get("is_api_error_message"):
            return ()
        content = nested(event.get("message"), "content")
        parts = content if isinstance(content, list) else []
        reports: list[AgentReport] = []
        text = "\n\n".join(filter(None, (nested_text(part, "text") for part in parts if nested_text(part, "type") == "text")))
        if text:
            reports.append(WholeText(text))
        reports += (
            _tool(part) for part in parts if nested_text(part, "type") == "tool_use" and not is_session_tool(nested_text(part, "name"))
        )
        return reports

    def _ended(self, event: JsonEvent) -> Sequence[AgentReport]:
        if not event.get("is_error") and event.get("subtype") == "success":
            return (ReportedEnd(),)
        errors = event.get("errors")
        messages = [str(error) for error in errors] if isinstance(errors, list) else []
        why = nested_text(dict(event), "result") or "; ".join(messages) or str(event.get("subtype"))
        if any(message.startswith("No conversation found") for message in messages):
            return (ConversationUnknown(),)
        return (ReportedFailure(why),)


def _tool(part: JsonValue) -> OwnToolUse:
    return OwnToolUse(nested_text(part, "name"), nested(part, "input"))
