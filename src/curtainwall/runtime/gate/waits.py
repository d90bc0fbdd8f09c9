"""Calls that wait here for a human's answer, and asks whose agent has left: their answers are kept until it returns."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import assert_never

from curtainwall.model import (
    SYSTEM,
    Answer,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalId,
    ApprovalJoined,
    ApprovalWithdrawn,
    CallDenied,
    CallDropped,
    CallFinished,
    CallId,
    CommandRefused,
    CurtainwallError,
    DropCall,
    NotFound,
    SessionId,
    denial,
    session_stream,
)
from curtainwall.runtime.gate.outcomes import shared_outcome
from curtainwall.runtime.sessions.actor import Actor
from curtainwall.runtime.sessions.registry import SessionRegistry
from curtainwall.session import CallStatus

GONE = "the agent was gone when the answer came"
_MANY = 64


class OrphanedAsks:
    """Calls that nobody waits for. They are dropped when answered, which leaves a grant for one use, or when another call replaces them."""

    def __init__(self, registry: SessionRegistry) -> None:
        self._registry = registry
        self._tasks: set[asyncio.Task[None]] = set()

    def keep(self, session: SessionId, call: CallId, approval: ApprovalId, cursor: int) -> bool:
        """Look after a call from here on; return False if there are too many already."""
        if len(self._tasks) >= _MANY:
            return False
        task = self._registry.spawn(self._look_after(session, call, approval, cursor), f"orphan {call}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _look_after(self, session: SessionId, call: CallId, approval: ApprovalId, cursor: int) -> None:
        async for recorded in self._registry.feed.follow(session_stream(session), cursor):
            event = recorded.event
            if isinstance(event, CallDropped) and event.call == call:
                return
            if not isinstance(event, ApprovalEvent) or event.approval != approval:
                continue
            match event:
                case ApprovalAnswered():
                    if event.granted:
                        break
                    return
                case ApprovalJoined():
                    if event.call != call:
                        break
                case ApprovalExpired() | ApprovalWithdrawn():
                    return
                case ApprovalAsked():
                    pass
                case _:
                    assert_never(event)
        with suppress(CurtainwallError):
            await self._registry.send(session, DropCall(by=SYSTEM, call=call, why=GONE))


class WaitingCalls:
    """The calls that someone in this process waits for."""

    def __init__(self, registry: SessionRegistry) -> None:
        self._registry = registry
        self._calls: set[CallId] = set()

    @contextmanager
    def on(self, call: CallId) -> Generator[None]:
        """Register a waiter for a call while the context is open."""
        self._calls.add(call)
        try:
            yield
        finally:
            self._calls.discard(call)

    async def until_settled(self, actor: Actor, call: CallId, cursor: int) -> Answer | None:
        """Wait until a call is answered, or return how else it ended. Only this coroutine is held meanwhile."""
        finished: CallFinished | None = None
        async for recorded in self._registry.feed.follow(actor.stream, cursor):
            await actor.catch_up(recorded.seq)
            open_ = actor.state.calls.get(call)
            if open_ is not None and open_.standing is CallStatus.ANSWERED:
                return None
            await self.take_over(actor, call)
            event = recorded.event
            if isinstance(event, CallFinished):
                finished = event
            elif isinstance(event, CallDenied) and event.call == call:
                return Answer(call=call, verdict=event.verdict)
            elif isinstance(event, CallDropped) and event.call == call:
                if finished is not None and event.shares == finished.call:
                    return shared_outcome(call, finished, self._registry.stores.blobs)
                return Answer(call=call, verdict=denial("call-dropped", event.why))
        raise NotFound("the session was deleted")

    async def take_over(self, actor: Actor, call: CallId) -> None:
        """Drop the call that holds the answer this one waits for, if the process that waited for it is gone."""
        approval = actor.state.calls[call].approval if call in actor.state.calls else None
        if approval is None:
            return
        for other, open_ in tuple(actor.state.calls.items()):
            if open_.approval == approval and open_.standing is CallStatus.ANSWERED and other not in self._calls:
                with suppress(CommandRefused):
                    await actor.submit(DropCall(by=SYSTEM, call=other, why=GONE))
