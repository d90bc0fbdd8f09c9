"""Run permitted calls to the user's servers and return their results as JSON of bounded size."""

import asyncio
import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.model import (
    CallPermitted,
    Feed,
    ModeChanged,
    Place,
    Prepared,
    SessionClosed,
    SessionId,
    ToolResult,
    session_stream,
    works_on_view,
)
from curtainwall.tools.runners import CannotDo, Runner, progress_listener
from curtainwall.tools.servers.client import ServerLost, ServerRefused, ServerSilent
from curtainwall.tools.servers.large_entry import MOST_VALUES
from curtainwall.tools.servers.launch import CannotStart
from curtainwall.tools.servers.offered import encodable_text
from curtainwall.tools.servers.reviews import Reviews, ServerCatalogue, ToolStatus
from curtainwall.tools.servers.spec import WORKSPACE, ServerSpec
from curtainwall.tools.servers.supervisor import ServerSupervisor, SupervisorGrounds

LARGEST: Final = 4 * 1024 * 1024
"""Characters of text in one result."""

_MOST_PARTS: Final = 1_000


def call_result(reply: dict[str, JsonValue]) -> ToolResult:
    """Convert a server's reply into the result of a call."""
    if reply.get("resultType", "complete") != "complete":
        return ToolResult(ok=False, value="the server wants to ask a human or a model something first, which no server may do here")
    content = reply.get("content")
    room = LARGEST
    parts: list[JsonValue] = []
    for block in (content if isinstance(content, list) else [])[:_MOST_PARTS]:
        part = _part(block)
        if isinstance(part, str):
            part, room = _cut(part, room)
        parts.append(part)
    if isinstance(content, list) and len(content) > _MOST_PARTS:
        parts.append(f"[… {len(content) - _MOST_PARTS} more parts left out …]")
    return ToolResult(ok=reply.get("isError") is not True, value=_joined(parts, reply.get("structuredContent")))


def _joined(parts: list[JsonValue], structured: JsonValue) -> JsonValue:
    """Return the parts, together with the structured content unless it only repeats them."""
    plain = parts[0] if len(parts) == 1 else parts
    if structured is None:
        return plain
    if len(json.dumps(structured)) > LARGEST:
        return {"content": plain, "structured": "[… too big, left out …]"}
    if not parts or (isinstance(plain, str) and _repeats(plain, structured)):
        return structured
    if isinstance(structured, dict) and len(structured) == 1 and plain in structured.values():
        return plain
    return {"content": plain, "structured": structured}


def _repeats(text: str, structured: JsonValue) -> bool:
    try:
        may_be_same = text.lstrip()[:1] in {"{", "["} and text.count(",") <= MOST_VALUES
        return may_be_same and json.loads(text) == structured
    except (ValueError, RecursionError):
        return False


def _part(block: JsonValue) -> JsonValue:
    if not isinstance(block, dict):
        return "[something that is no content]"
    match block.get("type"):
        case "text":
            text = block.get("text")
            return encodable_text(text) if isinstance(text, str) else ""
        case "image" | "audio" as kind:
            return {"type": kind, **_measured(block.get("data")), "mimeType": _short(block.get("mimeType"))}
        case "resource":
            inner = block.get("resource")
            resource = inner if isinstance(inner, dict) else {}
            text = resource.get("text")
            if isinstance(text, str):
                return encodable_text(text)
            return {
                "type": "resource",
                "uri": _short(resource.get("uri")),
                **_measured(resource.get("blob")),
                "mimeType": _short(resource.get("mimeType")),
            }
        case "resource_link":
            return {"type": "resource_link", **{key: _short(block.get(key)) for key in ("uri", "name", "description", "mimeType")}}
        case _:
            return "[content of a kind that is not known here]"


def _measured(data: JsonValue) -> dict[str, JsonValue]:
    """Return the size and digest of binary content; the content itself is left out."""
    try:
        content = base64.b64decode(cast("str", data), validate=True)
    except (binascii.Error, ValueError, TypeError):
        return {"note": "it cannot be read"}
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), "note": "left out"}


def _short(value: JsonValue) -> JsonValue:
    return encodable_text(value)[:500] if isinstance(value, str) else None


def _cut(text: str, room: int) -> tuple[str, int]:
    if len(text) <= room:
        return text, room - len(text)
    return f"{text[:room]}\n[… {len(text) - room} characters left out …]", 0


_SEES_PROJECT: Final = "(in review mode this server sees the project as it is, without your changes, and cannot change it)"


def _with_note(result: ToolResult, spec: ServerSpec, place: Place) -> ToolResult:
    """Tell the agent in review mode what a server with the workspace has seen."""
    is_given = any(WORKSPACE in text for text in (*spec.read, *spec.write, *spec.args))
    if not is_given or not isinstance(result.value, str) or not works_on_view(place.workspace, place.mode):
        return result
    return result.model_copy(update={"value": f"{result.value}\n{_SEES_PROJECT}"})


class Servers:
    """The servers in the user's configuration. The creator must close it."""

    def __init__(self, specs: Iterable[ServerSpec], reviews: Reviews, grounds: SupervisorGrounds, feed: Feed | None = None) -> None:
        self._specs: Mapping[str, ServerSpec] = {spec.name: spec for spec in specs}
        self._feed = feed
        self._followed: dict[SessionId, asyncio.Task[None]] = {}
        self.catalogue = ServerCatalogue(self._specs, reviews)
        self.supervisor = ServerSupervisor(self._specs, grounds, self.catalogue.seen)

    def __contains__(self, server: str) -> bool:
        return server in self._specs

    def runners(self, server: str) -> Mapping[str, Runner]:
        """Return a runner for each tool of a server."""
        return dict.fromkeys((spec.full_name for spec in self.catalogue.catalogue(server).listing()), self.run)

    async def run(self, prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        """Call a tool with its canonical arguments; return a result or raise `CannotDo`, whatever the server does."""
        del permit
        server, _, tool = prepared.subject.tool.partition(".")
        self._follow(place.session)
        try:
            async with self.supervisor.using(server, place) as client:
                # The server has just listed its tools, which may differ from what a human reviewed.
                if self.catalogue.standing(server, tool) is not ToolStatus.READY:
                    raise CannotDo(
                        f"tool-changed: `{server}.{tool}` describes itself otherwise than when it was reviewed, so it was not called; "
                        f"a human can look at it with `curtainwall servers annotate {server}`"
                    )
                reply = await client.call(tool, prepared.arguments, self._specs[server].timeout, progress_listener())
        except CannotStart as error:
            raise CannotDo(str(error)) from error
        except ServerLost as error:
            raise CannotDo(
                f"`{server}` died during the call, which may have had its effect; the next call starts it again: {error}"
            ) from error
        except ServerSilent as error:
            raise CannotDo(f"`{server}` was told to stop: {error}; the call may have had its effect") from error
        except ServerRefused as error:
            raise CannotDo(f"`{server}` refused the call: {error}") from error
        return _with_note(call_result(reply), self._specs[server], place)

    async def leave(self, session: SessionId) -> None:
        """Stop the servers of a session that is over."""
        await self.supervisor.leave(session)

    async def close(self) -> None:
        """Stop all servers."""
        for task in (followers := tuple(self._followed.values())):
            task.cancel()
        await asyncio.gather(*followers, return_exceptions=True)
        await self.supervisor.close()

    def _follow(self, session: SessionId) -> None:
        """Follow a session to stop its servers when it ends or its mode forbids them, whichever process records that."""
        if self._feed is not None and session not in self._followed:
            self._followed[session] = task = asyncio.create_task(self._until_closed(session, self._feed), name=f"servers of {session}")
            task.add_done_callback(lambda _: self._followed.pop(session, None))

    async def _until_closed(self, session: SessionId, feed: Feed) -> None:
        stream = session_stream(session)
        async for recorded in feed.follow(stream, feed.head(stream)):
            match recorded.event:
                case SessionClosed():
                    break
                case ModeChanged() as event:
                    await self.supervisor.change_mode(session, event.mode)
                case _:
                    continue
        await self.supervisor.leave(session)
