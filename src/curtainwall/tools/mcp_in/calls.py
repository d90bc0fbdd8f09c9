"""The calls of one connection: a bounded number at the gate, a bounded number waiting, and each answered once."""

import asyncio
import logging
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, cast

from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from pydantic import JsonValue, ValidationError

from curtainwall.model import CallId, CallRequest, Clock, CurtainwallError, Gate, Presence, SessionId, TurnId, ordered_id
from curtainwall.tools.mcp_in.bounds import Load
from curtainwall.tools.mcp_in.frames import Fault, Params, Request, RequestId, complaint, is_id, reply
from curtainwall.tools.mcp_in.greetings import Greetings
from curtainwall.tools.mcp_in.notes import Notes, Teller, Watched
from curtainwall.tools.mcp_in.results import failure_of, result_of
from curtainwall.tools.progress import hearing

_log = logging.getLogger(__name__)


class Room(Protocol):
    """What a connection needs of the door that it came through."""

    session: SessionId
    turn: TurnId | None
    gate: Gate
    clock: Clock
    greetings: Greetings
    notes: Notes
    load: Load
    tasks: set[asyncio.Task[None]]


class Peer(Protocol):
    """Whoever made the calls."""

    def send(self, line: bytes) -> None:
        """Send a line."""
        ...

    def go_on(self) -> None:
        """Take more where there is room for more."""
        ...


@dataclass(slots=True, eq=False)
class _Call:
    id: RequestId
    version: str
    params: Params
    size: int
    unclear: str = ""
    task: asyncio.Task[None] | None = None
    watched: Watched | None = None
    is_unwanted: bool = False
    presence: Presence = field(default_factory=Presence)


class Calls:
    """Calls by the ids that their client gave them."""

    def __init__(self, room: Room, peer: Peer) -> None:
        self._room = room
        self._peer = peer
        self._bounds = room.load.bounds
        self._all: dict[RequestId, _Call] = {}
        self._waiting: deque[_Call] = deque()

    def __contains__(self, id_: RequestId) -> bool:
        return id_ in self._all

    def __len__(self) -> int:
        return len(self._all)

    @property
    def is_full(self) -> bool:
        """Tell whether no more may wait."""
        return len(self._waiting) >= self._bounds.waiting

    def add(self, request: Request, version: str, size: int) -> None:
        """Take a call, whose frame's bytes count until it is over."""
        self._all[request.id] = call = _Call(request.id, version, request.params, size, request.unclear)
        self._waiting.append(call)
        self._start()

    def cancel(self, id_: JsonValue) -> None:
        """Drop the call of that id, if there is one; nobody is told what became of it."""
        if is_id(id_) and (call := self._all.get(cast("RequestId", id_))) is not None:
            self._abandon(call)

    def leave(self) -> None:
        """Let go of everything. An ask stays open: its answer is kept for when the agent comes back."""
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
            self._room.tasks.add(call.task)
            # A task that is cancelled before its first step runs nothing of its own, so its end is noted from outside.
            call.task.add_done_callback(partial(self._served, call))

    def _served(self, call: _Call, task: asyncio.Task[None]) -> None:
        self._room.tasks.discard(task)
        self._finish(call)

    def _finish(self, call: _Call) -> None:
        del self._all[call.id]
        self._room.load.give_back(call.size)
        if call.watched is not None:
            self._room.notes.forget(call.watched)
        self._start()
        self._peer.go_on()

    async def _serve(self, call: _Call) -> None:
        try:
            line = reply(call.id, await self._result(call))
        except Fault as fault:
            line = complaint(call.id, fault)
        except Exception:  # noqa: BLE001 - a fault of ours must not end the connection
            _log.exception("a call over MCP failed")
            line = complaint(call.id, Fault(INTERNAL_ERROR, "internal error"))
        if not call.is_unwanted:
            self._peer.send(line)

    async def _result(self, call: _Call) -> bytes:
        room, params = self._room, call.params
        tool = room.greetings.full_name(cast("str", params["name"]))
        try:
            watched = self._watched(call)
            request = _request(tool, call, watched.call if watched else None, room.turn)
            with hearing(watched.teller.hear) if watched else nullcontext():
                return result_of(await room.gate.request(room.session, request, presence=call.presence), call.version)
        except CurtainwallError as error:
            return failure_of(error, call.version)

    def _watched(self, call: _Call) -> Watched | None:
        """Where its client wants to hear of progress, give a call the name by which the feed will speak of it."""
        meta = call.params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        if is_id(token):
            name = CallId(ordered_id(self._room.clock.now(), self._room.clock.entropy(5)))
            call.watched = self._room.notes.watch(name, Teller(token, self._peer.send))
        return call.watched


def _request(tool: str, call: _Call, name: CallId | None, turn: TurnId | None) -> CallRequest:
    arguments = call.params.get("arguments")
    try:
        return CallRequest(tool=tool, arguments={} if arguments is None else arguments, call=name, turn=turn, unclear=call.unclear)
    except ValidationError:
        raise Fault(INVALID_PARAMS, "the arguments cannot be read") from None
