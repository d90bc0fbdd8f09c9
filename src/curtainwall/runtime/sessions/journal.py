"""An agent's work on its way into the log, and to whoever listens right now."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from pydantic import JsonValue

from curtainwall.model import (
    SYSTEM,
    AnyEvent,
    Broken,
    Conflict,
    CurtainwallError,
    Live,
    ModelFailed,
    ModelResponded,
    Payload,
    Progress,
    RecordProgress,
    SessionId,
    TryLater,
)
from curtainwall.runtime.results import keep, load
from curtainwall.runtime.sessions.registry import SessionRegistry

_MANY = 10_000


class SessionJournal:
    """The journal of the sessions that this house decides for."""

    def __init__(self, house: SessionRegistry) -> None:
        self._house = house
        self._listeners: dict[SessionId, set[asyncio.Queue[Live]]] = {}
        self._again: dict[SessionId, Live] = {}
        """What is tried again right now. It may stay true for minutes, so whoever begins to listen meanwhile is told, too."""

    async def record(self, session: SessionId, events: Sequence[Progress]) -> Sequence[AnyEvent]:
        """Keep the events durably and return everything that happened because of them.

        Where the disk does not take them, whoever tells them hears so; but what a model call used was used, and is owed to the log.
        """
        # Whatever comes of a model, it is no longer tried.
        self._again.pop(session, None)
        async with self._house.hold(session) as actor:
            try:
                return await actor.submit(RecordProgress(by=SYSTEM, events=tuple(events)))
            except (TryLater, Broken) as fault:
                used = tuple(_without_words(event, fault) for event in events if isinstance(event, ModelResponded | ModelFailed))
                with suppress(Conflict):
                    if used:
                        actor.owe(RecordProgress(by=SYSTEM, events=used))
                raise

    async def keep(self, value: JsonValue) -> Payload:
        """Return the payload of a value, kept as a blob where it is big."""
        return await keep(value, self._house.stores.blobs)

    def load(self, payload: Payload) -> JsonValue:
        """Return the value of a payload."""
        return load(payload, self._house.stores.blobs)

    def say(self, session: SessionId, live: Live) -> None:
        """Tell whoever listens; one who does not keep up misses something, which the log has."""
        if live.kind == "again":
            self._again[session] = live
        else:
            self._again.pop(session, None)
        for listener in self._listeners.get(session, ()):
            if listener.qsize() < _MANY:
                listener.put_nowait(live)

    @asynccontextmanager
    async def listen(self, session: SessionId) -> AsyncGenerator[AsyncIterator[Live]]:
        """Tell what is tried again right now, and everything that is said while the context is open."""
        queue: asyncio.Queue[Live] = asyncio.Queue()
        if (again := self._again.get(session)) is not None:
            queue.put_nowait(again)
        listeners = self._listeners.setdefault(session, set())
        listeners.add(queue)
        try:
            yield _each(queue)
        finally:
            listeners.discard(queue)
            if not listeners:
                self._listeners.pop(session, None)


def _without_words(event: ModelResponded | ModelFailed, fault: CurtainwallError) -> ModelFailed:
    """Return the end of a model call that counts, while whoever made it goes on as if nothing had come."""
    if isinstance(event, ModelFailed):
        return event
    why = f"the reply could not be kept: {fault}"
    return ModelFailed(at=event.at, turn=event.turn, request=event.request, failure=why, usage=event.usage)


async def _each(queue: "asyncio.Queue[Live]") -> AsyncIterator[Live]:
    while True:
        yield await queue.get()
