"""Records an agent's work in the log, and passes it on to live listeners."""

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
    """The journal of the sessions that this process owns."""

    def __init__(self, registry: SessionRegistry) -> None:
        self._registry = registry
        self._listeners: dict[SessionId, set[asyncio.Queue[Live]]] = {}
        self._retries: dict[SessionId, Live] = {}
        """The retry under way in each session. It may take minutes, so new listeners receive it too."""

    async def record(self, session: SessionId, events: Sequence[Progress]) -> Sequence[AnyEvent]:
        """Record the events durably and return everything that happened because of them.

        If the disk fails, raise the fault; but the usage of a model call has been spent, so recording it is owed to the log.
        """
        # A result of any kind ends the retry.
        self._retries.pop(session, None)
        async with self._registry.hold(session) as actor:
            try:
                return await actor.submit(RecordProgress(by=SYSTEM, events=tuple(events)))
            except (TryLater, Broken) as fault:
                used = tuple(_without_words(event, fault) for event in events if isinstance(event, ModelResponded | ModelFailed))
                with suppress(Conflict):
                    if used:
                        actor.owe(RecordProgress(by=SYSTEM, events=used))
                raise

    async def keep(self, value: JsonValue) -> Payload:
        """Return a value as a payload, stored as a blob if it is big."""
        return await keep(value, self._registry.stores.blobs)

    def load(self, payload: Payload) -> JsonValue:
        """Return the value of a payload."""
        return load(payload, self._registry.stores.blobs)

    def publish(self, session: SessionId, live: Live) -> None:
        """Pass live output to all listeners. One that does not keep up misses some of it, but the log has it."""
        if live.kind == "again":
            self._retries[session] = live
        else:
            self._retries.pop(session, None)
        for listener in self._listeners.get(session, ()):
            if listener.qsize() < _MANY:
                listener.put_nowait(live)

    @asynccontextmanager
    async def listen(self, session: SessionId) -> AsyncGenerator[AsyncIterator[Live]]:
        """Yield the retry under way, if any, and all live output while the context is open."""
        queue: asyncio.Queue[Live] = asyncio.Queue()
        if (retry := self._retries.get(session)) is not None:
            queue.put_nowait(retry)
        listeners = self._listeners.setdefault(session, set())
        listeners.add(queue)
        try:
            yield _each(queue)
        finally:
            listeners.discard(queue)
            if not listeners:
                self._listeners.pop(session, None)


def _without_words(event: ModelResponded | ModelFailed, fault: CurtainwallError) -> ModelFailed:
    """Return the event that accounts for a model call whose reply its caller treats as never received."""
    if isinstance(event, ModelFailed):
        return event
    why = f"the reply could not be kept: {fault}"
    return ModelFailed(at=event.at, turn=event.turn, request=event.request, failure=why, usage=event.usage)


async def _each(queue: "asyncio.Queue[Live]") -> AsyncIterator[Live]:
    while True:
        yield await queue.get()
