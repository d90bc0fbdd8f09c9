"""Claude Code's stream-json in both directions: the lines we send, and the signals that only Claude Code sends. Pure."""

import hashlib
import json
import uuid
from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from curtainwall.agents.external import (
    SERVER,
    AgentReport,
    ClaudeOutputParser,
    ConversationUnknown,
    JsonEvent,
    ReportedFailure,
    nested,
    nested_text,
    parse_event,
)
from curtainwall.model import record

_NAMESPACE: Final = uuid.UUID("6f6cb1c2-54b2-5e0e-9a53-0a3c0d5a6f11").bytes
_COUNTED: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)
_OURS: Final = f"mcp__{SERVER}__"
_NO_LOGIN: Final = ("Not logged in", "Invalid API key", "Failed to authenticate", "OAuth token")


@record
class MeasuredContext:
    """The usage of the turn, and how full the model's context is; a size of 0 means unknown."""

    used: int
    size: int
    usage: dict[str, JsonValue]


@record
class CompactionDone:
    """A summary replaced the conversation; tokens before and after."""

    before: int
    after: int


@record
class CompactionSummary:
    """The summary that replaced the conversation."""

    text: str


@record
class CompactionFailed:
    """No summary could be made; the conversation is unchanged."""

    why: str


@record
class ControlRequest:
    """The agent asks us for something during its turn and waits for this reply."""

    reply: bytes


@record
class MessageStarted:
    """The agent started on our message with this id; everything after it answers that message."""

    mark: str


@record
class ControlReply:
    """The answer to one of our control requests."""

    request: str


@record
class LoggedOut:
    """The provider rejects the key, or there is none."""

    why: str


@record
class Noise:
    """A line that is not stream-json. A broken one was meant to be, so whatever it said is missing."""

    line: bytes
    is_broken: bool = False


Signal = (
    AgentReport
    | MessageStarted
    | MeasuredContext
    | CompactionDone
    | CompactionSummary
    | CompactionFailed
    | ControlRequest
    | ControlReply
    | LoggedOut
    | Noise
)


def message_mark(turn: str, text: str) -> str:
    """Return a message's id in the transcript; the same turn and text always give the same id."""
    digest = hashlib.sha1(_NAMESPACE + f"{turn}\n{text}".encode(), usedforsecurity=False).digest()
    return str(uuid.UUID(bytes=digest[:16], version=5))


def message_line(text: str, mark: str) -> bytes:
    """Return the line that sends the agent a message."""
    return _line({"type": "user", "uuid": mark, "parent_tool_use_id": None, "message": {"role": "user", "content": text}})


def interrupt_line(request: str) -> bytes:
    """Return the line that interrupts a turn and keeps what was said."""
    return _line({"type": "control_request", "request_id": request, "request": {"subtype": "interrupt"}})


def ping_line(request: str) -> bytes:
    """Return a line that a live process answers with an error, and that leaves no trace in the conversation."""
    return _line({"type": "control_request", "request_id": request, "request": {"subtype": "curtainwall_ping"}})


class ClaudeStreamParser:
    """Parses the output of one process, over all its turns."""

    def __init__(self) -> None:
        self._output = ClaudeOutputParser()
        self._used = 0
        self._is_compacting = False

    def parse_stdout(self, line: bytes) -> Sequence[Signal]:
        """Parse a line of stdout."""
        event = parse_event(line.decode("utf-8", errors="replace"))
        return (Noise(line[:200], _is_broken(line)),) if event is None else self._take(event)

    def parse_stderr(self, line: str) -> Sequence[AgentReport]:
        """Parse a line of stderr."""
        return (ConversationUnknown(),) if line.startswith("Failed to resume session") else self._output.parse_stderr(line)

    def _take(self, event: JsonEvent) -> Sequence[Signal]:
        match event:
            case {"type": "control_request"}:
                return (ControlRequest(_reply(event)),)
            case {"type": "control_response"}:
                return (ControlReply(nested_text(event.get("response"), "request_id")),)
            case {"type": "system", "subtype": "compact_boundary"}:
                self._is_compacting = True
                about = event.get("compact_metadata")
                return (CompactionDone(_number(nested(about, "pre_tokens")), _number(nested(about, "post_tokens"))),)
            case {"type": "system", "subtype": "status", "compact_result": "failed"}:
                # The turn still ends normally, for example when there was nothing to replace.
                why = event.get("compact_error")
                return (CompactionFailed(why if isinstance(why, str) else "no summary could be made"),)
            case {"type": "user", "isReplay": True, "uuid": str(mark)} if not self._is_compacting:
                return (MessageStarted(mark),)
            case {"type": "user"} if self._is_compacting:
                self._is_compacting = False
                return (CompactionSummary(nested_text(event.get("message"), "content")),)
            case {"type": "assistant", "parent_tool_use_id": None}:
                self._used = _tokens(nested(event.get("message"), "usage")) or self._used
                return () if event.get("aborted") else self._output.take(event)
            case {"type": "result"}:
                return self._ended(event)
            case _:
                return self._output.take(event)

    def _ended(self, event: JsonEvent) -> Sequence[Signal]:
        models = event.get("modelUsage")
        sizes = [_number(nested(each, "contextWindow")) for each in models.values()] if isinstance(models, dict) else []
        usage = event.get("usage")
        counts = {name: value for name, value in usage.items() if isinstance(value, int)} if isinstance(usage, dict) else {}
        measured = MeasuredContext(self._used, max(sizes, default=0), {**counts, "cost_usd": event.get("total_cost_usd")})
        return (measured, *(_classified(report) for report in self._output.take(event)))


def _is_broken(line: bytes) -> bool:
    """Tell whether a line looks like the beginning or the end of a JSON object and is not JSON."""
    text = line.strip()
    if not text.startswith(b"{") and not text.endswith(b"}"):
        return False
    try:
        json.loads(text)
    except ValueError:
        return True
    except RecursionError:
        return False
    return False


def _classified(report: AgentReport) -> Signal:
    """Turn a failure that has a specific remedy into its own signal."""
    if isinstance(report, ReportedFailure) and report.why.startswith(_NO_LOGIN):
        return LoggedOut(report.why)
    return ConversationUnknown() if isinstance(report, ReportedFailure) and report.why.startswith("Failed to resume session") else report


def _reply(event: JsonEvent) -> bytes:
    """Answer a control request: allow the session's tools, whose calls the gate judges, and refuse everything else."""
    request_id, request = event.get("request_id"), event.get("request")
    if nested_text(request, "subtype") != "can_use_tool":
        return _line({"type": "control_response", "response": {"subtype": "error", "request_id": request_id, "error": "not offered here"}})
    if nested_text(request, "tool_name").startswith(_OURS):
        decision: dict[str, JsonValue] = {"behavior": "allow", "updatedInput": nested(request, "input")}
    else:
        decision = {"behavior": "deny", "message": f"only the tools of `{SERVER}` can be used here; each of their calls is judged by rules"}
    return _line({"type": "control_response", "response": {"subtype": "success", "request_id": request_id, "response": decision}})


def _tokens(usage: JsonValue) -> int:
    return sum(_number(usage.get(name)) for name in _COUNTED) if isinstance(usage, dict) else 0


def _number(value: JsonValue) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _line(value: JsonValue) -> bytes:
    return _ENCODER.encode(value).encode("utf-8", errors="replace") + b"\n"
