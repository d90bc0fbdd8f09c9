"""Calls that wait for a human's answer here. One who is gone does not keep an answer from the others who asked the same."""

from collections.abc import Generator
from contextlib import contextmanager, suppress

from curtainwall.model import (
    SYSTEM,
    Answer,
    CallDenied,
    CallDropped,
    CallFinished,
    CallId,
    CommandRefused,
    DropCall,
    NotFound,
    denial,
)
from curtainwall.runtime.gate.orphans import GONE
from curtainwall.runtime.gate.outcomes import shared_outcome
from curtainwall.runtime.sessions.actor import Actor
from curtainwall.runtime.sessions.house import House
from curtainwall.session import Standing


class Waiting:
    """Knows for which calls somebody in this process waits."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._calls: set[CallId] = set()

    @contextmanager
    def on(self, call: CallId) -> Generator[None]:
        """Count as somebody who waits for a call."""
        self._calls.add(call)
        try:
            yield
        finally:
            self._calls.discard(call)

    async def until_settled(self, actor: Actor, call: CallId, cursor: int) -> Answer | None:
        """Wait until a call is answered, or return what else it has come to. Nothing of ours is held meanwhile but this coroutine."""
        finished: CallFinished | None = None
        async for recorded in self._house.feed.follow(actor.stream, cursor):
            await actor.catch_up(recorded.seq)
            open_ = actor.state.calls.get(call)
            if open_ is not None and open_.standing is Standing.ANSWERED:
                return None
            await self.take_over(actor, call)
            match recorded.event:
                case CallFinished() as event:
                    finished = event
                case CallDenied() as denied if denied.call == call:
                    return Answer(call=call, verdict=denied.verdict)
                case CallDropped() as dropped if dropped.call == call:
                    if finished is not None and dropped.shares == finished.call:
                        return shared_outcome(call, finished, self._house.stores.blobs)
                    return Answer(call=call, verdict=denial("call-dropped", dropped.why))
                case _:
                    continue
        raise NotFound("the session was deleted")

    async def take_over(self, actor: Actor, call: CallId) -> None:
        """Let go of the call that holds the answer this one waits for, where the process that waited for it is gone."""
        approval = actor.state.calls[call].approval if call in actor.state.calls else None
        if approval is None:
            return
        for other, open_ in tuple(actor.state.calls.items()):
            if open_.approval == approval and open_.standing is Standing.ANSWERED and other not in self._calls:
                with suppress(CommandRefused):
                    await actor.submit(DropCall(by=SYSTEM, call=other, why=GONE))
