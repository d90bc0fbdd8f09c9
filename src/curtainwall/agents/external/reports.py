"""What an external agent reports while it works, and the parsers that read its output line by line. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, cast

from pydantic import JsonValue

from curtainwall.model import is_deeper

JsonEvent = Mapping[str, JsonValue]

SERVER: Final = "curtainwall"
"""How the session's tools are called as a tool server."""

MOST_WORDS: Final = 2_000
"""How many letters of what an agent says about a failure of its are kept."""

_DEEPEST: Final = 200


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the agent's text while it comes."""

    text: str


@dataclass(frozen=True, slots=True)
class WholeText:
    """A whole message; it replaces the pieces that came before it."""

    text: str


@dataclass(frozen=True, slots=True)
class Activity:
    """A word on what the agent is doing."""

    text: str


@dataclass(frozen=True, slots=True)
class OwnToolUse:
    """A tool of the agent's own that it says it uses; one of the session's is told by the gate."""

    tool: str
    arguments: JsonValue = None


@dataclass(frozen=True, slots=True)
class ConversationName:
    """The agent's own name of the conversation that it is in."""

    conversation: str


@dataclass(frozen=True, slots=True)
class ReportedFailure:
    """The turn has failed, whatever the exit code will be; `stop` says that there is no sense in waiting for the end."""

    why: str
    stop: bool = False


@dataclass(frozen=True, slots=True)
class ConversationUnknown:
    """The agent does not know the conversation that it was to go on with."""


@dataclass(frozen=True, slots=True)
class ReportedEnd:
    """The agent says itself that its turn is over."""


AgentReport = TextDelta | WholeText | Activity | OwnToolUse | ConversationName | ReportedFailure | ConversationUnknown | ReportedEnd


class OutputParser(Protocol):
    """Listens to one turn of an agent, line by line."""

    def hear(self, line: str) -> Sequence[AgentReport]:
        """Take a line of stdout."""
        ...

    def parse_stderr(self, line: str) -> Sequence[AgentReport]:
        """Take a line of stderr."""
        ...


def is_session_tool(name: str) -> bool:
    """Tell whether a tool is one of the session's, under any of the spellings that agents have for it."""
    return SERVER in name


class JsonOutputParser:
    """An ear for agents that tell each event as a JSON object on a line; anything else on stdout is passed over."""

    def hear(self, line: str) -> Sequence[AgentReport]:
        """Take a line of stdout."""
        event = parse_event(line)
        return () if event is None else self.take(event)

    def parse_stderr(self, line: str) -> Sequence[AgentReport]:
        """Take a line of stderr."""
        del line
        return ()

    def take(self, event: JsonEvent) -> Sequence[AgentReport]:
        """Take an event."""
        raise NotImplementedError


def parse_event(line: str) -> JsonEvent | None:
    """Return the object that a line is; None for anything else, and for one that is nested too deeply to be told of."""
    try:
        event = cast("JsonValue", json.loads(line))
    except (ValueError, RecursionError):
        return None
    # What has so few brackets is not deep, and that is nearly every line.
    is_flat = line.count("{") + line.count("[") <= _DEEPEST
    return event if isinstance(event, dict) and (is_flat or not is_deeper(event, _DEEPEST)) else None


def nested(value: JsonValue, *names: str) -> JsonValue:
    """Return what is found by these names inside objects, or None."""
    for name in names:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def nested_text(value: JsonValue, *names: str) -> str:
    """Return the text that is found by these names inside objects, or nothing."""
    found = nested(value, *names)
    return found if isinstance(found, str) else ""


class LineSplitter:
    """The lines of one stream. Of one that is too long only the beginning is kept, which makes it unreadable."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._half = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that end in a piece, without their ends."""
        *ends, rest = piece.split(b"\n")
        lines: list[bytes] = []
        for end in ends:
            self._add(end)
            lines.append(self.rest())
        self._add(rest)
        return lines

    def rest(self) -> bytes:
        """Return the line that has not ended, and forget it."""
        half, self._half = bytes(self._half), bytearray()
        return half

    def _add(self, piece: bytes) -> None:
        # Looked at once, and never more than there is room for: otherwise each piece would cost as much as all before it.
        room = self._longest - len(self._half)
        self._half += piece if len(piece) <= room else piece[:room]


# A server that is still starting is reported as pending, and waited for before the first request.
_REACHED: Final = frozenset({"connected", "pending"})

_TOKEN: Final = "sk-ant-oat"  # noqa: S105 - how any such token begins


def claude_key(key: str) -> dict[str, str]:
    """Return the variable in which the program looks for a key; a token of OAuth has one of its own, and is told by how it begins."""
    return {"CLAUDE_CODE_OAUTH_TOKEN" if key.startswith(_TOKEN) else "ANTHROPIC_API_KEY": key}


class ClaudeOutputParser(JsonOutputParser):
    """Listens to stream-json."""

    def parse_stderr(self, line: str) -> Sequence[AgentReport]:
        """Take a line of stderr."""
        return (ConversationUnknown(),) if line.startswith("No conversation found") else ()

    def take(self, event: JsonEvent) -> Sequence[AgentReport]:
        """Take an event."""
        match event:
            case {"type": "system", "subtype": "init"}:
                return self._begun(event)
            case {"type": "system", "subtype": "api_retry"}:
                return (Activity(f"the model's API failed ({event.get('error')}); trying again"),)
            case {"type": "stream_event", "parent_tool_use_id": None}:
                piece = nested_text(nested(event.get("event"), "delta"), "text")
                return (TextDelta(piece),) if piece else ()
            case {"type": "assistant", "parent_tool_use_id": None}:
                return self._spoke(event)
            case {"type": "assistant"}:
                # Of what the agent's helpers do, only the tools that they use.
                return [heard for heard in self._spoke(event) if isinstance(heard, OwnToolUse)]
            case {"type": "result"}:
                return self._ended(event)
            case _:
                return ()

    def _begun(self, event: JsonEvent) -> Sequence[AgentReport]:
        servers = event.get("mcp_servers")
        listed = servers if isinstance(servers, list) else []
        states = {nested_text(server, "name"): nested_text(server, "status") for server in listed}
        state = states.get(SERVER, "missing")
        named = ConversationName(nested_text(dict(event), "session_id"))
        return (named,) if state in _REACHED else (named, ReportedFailure(f"it did not reach the session's tools ({state})", stop=True))

    def _spoke(self, event: JsonEvent) -> Sequence[AgentReport]:
        if event.get("is_api_error_message"):
            return ()
        content = nested(event.get("message"), "content")
        parts = content if isinstance(content, list) else []
        heard: list[AgentReport] = []
        text = "".join(nested_text(part, "text") for part in parts if nested_text(part, "type") == "text")
        if text:
            heard.append(WholeText(text))
        heard += (
            _tool(part) for part in parts if nested_text(part, "type") == "tool_use" and not is_session_tool(nested_text(part, "name"))
        )
        return heard

    def _ended(self, event: JsonEvent) -> Sequence[AgentReport]:
        if not event.get("is_error") and event.get("subtype") == "success":
            return (ReportedEnd(),)
        errors = event.get("errors")
        listed = [str(each) for each in errors] if isinstance(errors, list) else []
        why = nested_text(dict(event), "result") or "; ".join(listed) or str(event.get("subtype"))
        if any(each.startswith("No conversation found") for each in listed):
            return (ConversationUnknown(),)
        return (ReportedFailure(why),)


def _tool(part: JsonValue) -> OwnToolUse:
    return OwnToolUse(nested_text(part, "name"), nested(part, "input"))
