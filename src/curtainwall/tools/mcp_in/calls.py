"""The calls of one connection: bounded at the gate and in the queue, answered once, with refusals that name the rule."""

import asyncio
import json
import logging
import re
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, cast

from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from mcp_types.version import is_version_at_least
from pydantic import JsonValue, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from curtainwall.model import (
    Answer,
    CallId,
    CallRequest,
    Clock,
    Closed,
    CurtainwallError,
    Gate,
    NotReady,
    Presence,
    SessionId,
    TryLater,
    TurnId,
    Verdict,
    ordered_id,
)
from curtainwall.tools.mcp_in.bounds import SocketLoad
from curtainwall.tools.mcp_in.frames import FrameFault, McpRequest, Params, RequestId, error_line, is_id, reply_line
from curtainwall.tools.mcp_in.handshake import ServerDescription, stamped
from curtainwall.tools.mcp_in.progress import ProgressNotes, ProgressReporter, WatchedCall
from curtainwall.tools.runners import progress_to

_STRUCTURED_SINCE = "2025-06-18"
_HINTS = {
    "unknown-tool": "call one of the tools in the list",
    "invalid-arguments": "correct the arguments as the tool's schema says",
    "no-rule": "work inside the workspace, or with what the human has listed",
    "protected-path": "no rule and no human can allow this path; use another one",
    "denied-by-human": "do not ask for the same again; say what you need and why, or find another way",
    "approval-expired": "ask again if it is still needed",
    "call-dropped": "call again if it is still needed",
    "call-budget": "this session has made as many calls as it may; a human can raise the limit",
    "repeated-call": "change the call, or wait a minute",
    "ask-storm": "wait a minute, then ask for what matters most",
    "masked-arguments": "leave the masked text where it is and edit the lines around it",
    "known-credential": "leave the value out; where a tool takes a credential, give it the credential's name",
}
_OTHERWISE = "the same call will be refused again: use what the rule leaves open (the workspace is free), or tell the human what you need"
_APPROVAL = re.compile(r"\s*\(?approval\s+`?[0-9a-z]{6}`?\)?", re.IGNORECASE)


def result_of(answer: Answer, version: str) -> bytes:
    """Return the encoded result of a call that came back from the gate."""
    # Messages from hooks to the agent go beside the result, never into it.
    stop = None if answer.stopped is None else f"You must not go on: {answer.stopped}"
    extra_texts = tuple(text for text in (answer.context, stop) if text)
    if answer.result is not None:
        return _encoded(answer.result.value, version, *extra_texts, is_error=not answer.result.ok)
    if answer.waiting:
        words = "A human is asked and has not answered yet. Call again later with the same arguments to learn the answer."
        return _encoded(words, version, is_error=True)
    return _encoded(refusal(answer.verdict), version, *extra_texts, is_error=True)


def failure_of(error: CurtainwallError, version: str) -> bytes:
    """Return the encoded result of a call that the gate could not take."""
    match error:
        case Closed():
            text = "this session has ended; no call runs any more"
        case NotReady():
            text = "the session is not ready yet; try again in a moment"
        case TryLater():
            text = "nothing was done because of something that passes; try again in a moment"
        case _:
            text = "the call could not be made, and nothing says that it ran"
    return _encoded(text, version, is_error=True)


def refusal(verdict: Verdict) -> str:
    """Return a refusal in words: which rules decided, why, and what would be allowed instead."""
    rules = ", ".join(f"`{rule}`" for rule in verdict.because) or "`no-rule`"
    hint = next((_HINTS[rule] for rule in verdict.because if rule in _HINTS), _OTHERWISE)
    # INVARIANT: an agent never learns an approval's id, wherever the reason came from.
    reason = _APPROVAL.sub("", verdict.reason).strip()
    return f"Refused by {rules}{f': {reason}' if reason else ''}. Instead: {hint}."


def _encoded(value: JsonValue, version: str, *extra_texts: str, is_error: bool) -> bytes:
    try:
        return to_json(_result(value, version, *extra_texts, is_error=is_error), inf_nan_mode="null")
    except PydanticSerializationError:
        # A file name that is not UTF-8 arrives as surrogates, which no client could read.
        return to_json(_result(_readable(value), version, *extra_texts, is_error=is_error), inf_nan_mode="null")


def _result(value: JsonValue, version: str, *extra_texts: str, is_error: bool) -> dict[str, Any]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    result: dict[str, Any] = {"content": [{"type": "text", "text": each} for each in (text, *extra_texts)], "isError": is_error}
    if isinstance(value, dict) and is_version_at_least(version, _STRUCTURED_SINCE):
        result["structuredContent"] = value
    return stamped(version, result)


def _readable(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {cast("str", _readable(key)): _readable(part) for key, part in value.items()}
    return [_readable(part) for part in value] if isinstance(value, list) else value


_log = logging.getLogger(__name__)


class CallParts(Protocol):
    """The parts of its server that a connection uses."""

    session: SessionId
    turn: TurnId | None
    gate: Gate
    clock: Clock
    greetings: ServerDescription
    notes: ProgressNotes
    load: SocketLoad
    tasks: set[asyncio.Task[None]]


class CallClient(Protocol):
    """The client that makes the calls."""

    def send(self, line: bytes) -> None:
        """Send a line."""
        ...

    def go_on(self) -> None:
        """Continue reading if there is room."""
        ...


@dataclass(slots=True, eq=False)
class _Call:
    id: RequestId
    version: str
    params: Params
    size: int
    unclear: str = ""
    task: asyncio.Task[None] | None = None
    watched: WatchedCall | None = None
    is_unwanted: bool = False
    presence: Presence = field(default_factory=Presence)


class McpCalls:
    """Calls by the ids that their client gave them."""

    def __init__(self, parts: CallParts, peer: CallClient) -> None:
        self._parts = parts
        self._peer = peer
        self._bounds = parts.load.bounds
        self._all: dict[RequestId, _Call] = {}
        self._waiting: deque[_Call] = deque()

    def __contains__(self, id_: RequestId) -> bool:
        return id_ in self._all

    def __len__(self) -> int:
        return len(self._all)

    @property
    def is_full(self) -> bool:
        """Tell whether the queue is full."""
        return len(self._waiting) >= self._bounds.waiting

    def add(self, request: McpRequest, version: str, size: int) -> None:
        """Queue a call; the bytes of its frame count until it is over."""
        self._all[request.id] = call = _Call(request.id, version, request.params, size, request.unclear)
        self._waiting.append(call)
        self._start()

    def cancel(self, id_: JsonValue) -> None:
        """Drop the call with that id, if any, without a reply."""
        if is_id(id_) and (call := self._all.get(cast("RequestId", id_))) is not None:
            self._abandon(call)

    def leave(self) -> None:
        """Drop all calls. A pending ask stays open, and its answer is kept for when the agent returns."""
        self._waiting.clear()
        for call in tuple(self._all.values()):
            call.presence.leave()
            self._abandon(call)

    def _abandon(self, call: _Call) -> None:
        call.is_unwanted = True
        if call.task is not None:
            call.task.cancel()
            return
        if call in self._waiting:
            self._waiting.remove(call)
        self._finish(call)

    def _start(self) -> None:
        while self._waiting and len(self._all) - len(self._waiting) < self._bounds.in_flight:
            call = self._waiting.popleft()
            call.task = asyncio.create_task(self._serve(call))
            self._parts.tasks.add(call.task)
            # A task cancelled before its first step never runs its cleanup, so a callback does it.
            call.task.add_done_callback(partial(self._served, call))

    def _served(self, call: _Call, task: asyncio.Task[None]) -> None:
        self._parts.tasks.discard(task)
        self._finish(call)

    def _finish(self, call: _Call) -> None:
        del self._all[call.id]
        self._parts.load.give_back(call.size)
        if call.watched is not None:
            self._parts.notes.forget(call.watched)
        self._start()
        self._peer.go_on()

    async def _serve(self, call: _Call) -> None:
        try:
            line = reply_line(call.id, await self._result(call))
        except FrameFault as fault:
            line = error_line(call.id, fault)
        except Exception:  # noqa: BLE001 - an internal error must not end the connection
            _log.exception("a call over MCP failed")
            line = error_line(call.id, FrameFault(INTERNAL_ERROR, "internal error"))
        if not call.is_unwanted:
            self._peer.send(line)

    async def _result(self, call: _Call) -> bytes:
        parts, params = self._parts, call.params
        tool = parts.greetings.full_name(cast("str", params["name"]))
        try:
            watched = self._watched(call)
            request = _request(tool, call, watched.call if watched else None, parts.turn)
            with progress_to(watched.teller.report) if watched else nullcontext():
                return result_of(await parts.gate.request(parts.session, request, presence=call.presence), call.version)
        except CurtainwallError as error:
            return failure_of(error, call.version)

    def _watched(self, call: _Call) -> WatchedCall | None:
        """If the client wants progress, give the call the id that it will have in the feed, and track it."""
        meta = call.params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        if is_id(token):
            name = CallId(ordered_id(self._parts.clock.now(), self._parts.clock.entropy(5)))
            call.watched = self._parts.notes.watch(name, ProgressReporter(token, self._peer.send))
        return call.watched


def _request(tool: str, call: _Call, name: CallId | None, turn: TurnId | None) -> CallRequest:
    arguments = call.params.get("arguments")
    try:
        return CallRequest(tool=tool, arguments={} if arguments is None else arguments, call=name, turn=turn, unclear=call.unclear)
    except ValidationError:
        raise FrameFault(INVALID_PARAMS, "the arguments cannot be read") from None
