"""SessionStart and SessionEnd, each once in a session's life: after the log says so, and never again once they were begun."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

from curtainwall.model import (
    SYSTEM,
    AnyCommand,
    Feed,
    HistoryInherited,
    HookEvent,
    HookReply,
    Hooks,
    MessageId,
    Place,
    Recorded,
    SendMessage,
    SessionClosed,
    SessionEnd,
    SessionId,
    SessionOpened,
    SessionReady,
    SessionStart,
    StreamId,
    TurnStarted,
    Undecided,
    session_stream,
)

_TAIL = 200

Send = Callable[[SessionId, AnyCommand, str | None], Awaitable[object]]


class FileClaims:
    """Who runs a hook that runs once: whoever claims it first, in whichever process. A claim is an empty file beside the session."""

    def __init__(self, directory_of: Callable[[SessionId], Path]) -> None:
        self._directory_of = directory_of

    def has(self, session: SessionId, event: str) -> bool:
        """Tell whether someone has claimed it."""
        return (self._directory_of(session) / event).exists()

    def claim(self, session: SessionId, event: str) -> bool:
        """Claim it durably; tell whether we were the first."""
        directory = self._directory_of(session)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            os.close(os.open(directory / event, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return False
        for path in (directory, directory.parent):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        return True


class Lifecycle:
    """Tells hooks of the beginning and the end of sessions.

    INVARIANT: the event is durable before the claim, and the claim before the hook. A crash before the claim leaves the hook to whoever
    looks next; a crash after it leaves a hook of which we do not know how far it came, and it is not run again. Within a process, whoever
    comes second waits for the hook that runs, and whoever stops waiting does not stop it.
    """

    def __init__(self, hooks: Hooks, feed: Feed, claims: FileClaims, send: Send) -> None:
        self._hooks = hooks
        self._feed = feed
        self._claims = claims
        self._send = send
        self._running: dict[SessionId, asyncio.Task[None]] = {}

    async def settle(self, session: SessionId) -> None:
        """Tell of what the log says and nobody was told of; calling it again changes nothing."""
        await self.begin(session)
        await self.end(session)

    async def begin(self, session: SessionId) -> None:
        """Tell of the session's beginning where nobody has."""
        await self._alone(session, "SessionStart", self._begin)

    async def end(self, session: SessionId) -> None:
        """Tell of the session's end where it has come and nobody has."""
        await self._alone(session, "SessionEnd", self._end)

    def is_owed_an_end(self, session: SessionId) -> bool:
        """Tell whether somebody was told of the session's beginning and nobody of its end, whether or not it has come."""
        return self._claims.has(session, "SessionStart") and not self._claims.has(session, "SessionEnd")

    async def aclose(self) -> None:
        """Wait for the hooks that run."""
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _alone(self, session: SessionId, event: str, tell: Callable[[SessionId], Awaitable[None]]) -> None:
        before = self._running.get(session)
        if before is None and self._claims.has(session, event):
            return

        async def tell_after() -> None:
            if before is not None:
                await asyncio.wait((before,))
            if not self._claims.has(session, event):
                await tell(session)

        def is_done(task: asyncio.Task[None]) -> None:
            if self._running.get(session) is task:
                del self._running[session]

        task = self._running[session] = asyncio.create_task(tell_after(), name=f"{event} of {session}")
        task.add_done_callback(is_done)
        await asyncio.shield(task)

    async def _begin(self, session: SessionId) -> None:
        events = [recorded.event for recorded in self._feed.read(session_stream(session))]
        opened = next((event for event in events if isinstance(event, SessionOpened)), None)
        is_ready = any(isinstance(event, SessionReady) for event in events)
        # A session that is over has nobody left who could use what a hook says at its beginning.
        if opened is None or not is_ready or any(isinstance(event, SessionClosed) for event in events):
            return
        inherited = next((event for event in events if isinstance(event, HistoryInherited)), None)
        worked = any(isinstance(event, TurnStarted) for event in events)
        source = "resume" if worked else "startup" if inherited is None else "fork" if inherited.how == "fork" else "clear"
        reply = await self._once(session, SessionStart(source=source, model=opened.model), opened)
        if reply is not None and reply.context:
            message = SendMessage(by=SYSTEM, message=MessageId(f"hooks-{session}"), text=reply.context, role="context")
            # It is kept where nobody decides it now, and comes before whatever is said next.
            with suppress(Undecided):
                await self._send(session, message, f"hooks:SessionStart:{session}")

    async def _end(self, session: SessionId) -> None:
        stream = session_stream(session)
        last = self._feed.read(stream, max(0, self._feed.head(stream) - _TAIL))
        closed = next((recorded.event for recorded in last if isinstance(recorded.event, SessionClosed)), None)
        if closed is None:
            return
        opened = await self._opened(stream)
        if opened is not None:
            await self._once(session, SessionEnd(reason=closed.reason), opened)

    async def _opened(self, stream: StreamId) -> SessionOpened | None:
        """Return the first event of a session without reading the others, of which there may be very many by now."""
        following = self._feed.follow(stream)
        try:
            first = (await anext(following)).event
        finally:
            if isinstance(following, AsyncGenerator):
                await cast("AsyncGenerator[Recorded]", following).aclose()
        return first if isinstance(first, SessionOpened) else None

    async def _once(self, session: SessionId, event: HookEvent, opened: SessionOpened) -> HookReply | None:
        if not await asyncio.to_thread(self._claims.claim, session, type(event).__name__):
            return None
        return await self._hooks.tell(event, Place(session=session, workspace=opened.workspace, mode=opened.mode))
