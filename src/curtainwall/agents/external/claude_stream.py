"""Listens to Claude Code's stream-json, whoever started it. Pure."""

from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from curtainwall.agents.external.reports import (
    SERVER,
    Does,
    Event,
    Failed,
    Finished,
    Heard,
    JsonEar,
    Lost,
    Named,
    Said,
    Spoke,
    Used,
    below,
    is_ours,
    text_below,
)

# A server that is still starting is reported as pending, and waited for before the first request.
_REACHED: Final = frozenset({"connected", "pending"})

_TOKEN: Final = "sk-ant-oat"  # noqa: S105 - how any such token begins


def claude_key(key: str) -> dict[str, str]:
    """Return the variable in which the program looks for a key; a token of OAuth has one of its own, and is told by how it begins."""
    return {"CLAUDE_CODE_OAUTH_TOKEN" if key.startswith(_TOKEN) else "ANTHROPIC_API_KEY": key}


class ClaudeEar(JsonEar):
    """Listens to stream-json."""

    def overhear(self, line: str) -> Sequence[Heard]:
        """Take a line of stderr."""
        return (Lost(),) if line.startswith("No conversation found") else ()

    def take(self, event: Event) -> Sequence[Heard]:
        """Take an event."""
        match event:
            case {"type": "system", "subtype": "init"}:
                return self._begun(event)
            case {"type": "system", "subtype": "api_retry"}:
                return (Does(f"the model's API failed ({event.get('error')}); trying again"),)
            case {"type": "stream_event", "parent_tool_use_id": None}:
                piece = text_below(below(event.get("event"), "delta"), "text")
                return (Said(piece),) if piece else ()
            case {"type": "assistant", "parent_tool_use_id": None}:
                return self._spoke(event)
            case {"type": "assistant"}:
                # Of what the agent's helpers do, only the tools that they use.
                return [heard for heard in self._spoke(event) if isinstance(heard, Used)]
            case {"type": "result"}:
                return self._ended(event)
            case _:
                return ()

    def _begun(self, event: Event) -> Sequence[Heard]:
        servers = event.get("mcp_servers")
        listed = servers if isinstance(servers, list) else []
        states = {text_below(server, "name"): text_below(server, "status") for server in listed}
        state = states.get(SERVER, "missing")
        named = Named(text_below(dict(event), "session_id"))
        return (named,) if state in _REACHED else (named, Failed(f"it did not reach the session's tools ({state})", stop=True))

    def _spoke(self, event: Event) -> Sequence[Heard]:
        if event.get("is_api_error_message"):
            return ()
        content = below(event.get("message"), "content")
        parts = content if isinstance(content, list) else []
        heard: list[Heard] = []
        text = "".join(text_below(part, "text") for part in parts if text_below(part, "type") == "text")
        if text:
            heard.append(Spoke(text))
        heard += (_tool(part) for part in parts if text_below(part, "type") == "tool_use" and not is_ours(text_below(part, "name")))
        return heard

    def _ended(self, event: Event) -> Sequence[Heard]:
        if not event.get("is_error") and event.get("subtype") == "success":
            return (Finished(),)
        errors = event.get("errors")
        listed = [str(each) for each in errors] if isinstance(errors, list) else []
        why = text_below(dict(event), "result") or "; ".join(listed) or str(event.get("subtype"))
        if any(each.startswith("No conversation found") for each in listed):
            return (Lost(),)
        return (Failed(why),)


def _tool(part: JsonValue) -> Used:
    return Used(text_below(part, "name"), below(part, "input"))
