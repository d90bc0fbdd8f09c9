"""Report SessionStart and SessionEnd to hooks once per session, only after the log has recorded them, and never again once begun."""

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
    """Claims on hooks that run once: the first process to claim one runs it. A claim is an empty file beside the session."""

    def __init__(self, directory_of: Callable[[SessionId], Path]) -> None:
        self._directory_of = directory_of

    def has(self, session: SessionId, event: str) -> bool:
        """Tell whether a process has claimed the event."""
        return (self._directory_of(session) / event).exists()

    def claim(self, session: SessionId, event: str) -> bool:
        """Claim the event durably; return whether we were the first."""
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
    """Report the start and end of sessions to hooks.

    INVARIANT: the event is durable before the claim, and the claim before the hook. After a crash before the claim, the next process to
    check runs the hook. After a crash that follows the claim, we do not know how far the hook got, and it does not run again. Within a
    process, a second caller waits for the running hook, and a caller that is cancelled does not stop it.
    """

    def __init__(self, hooks: Hooks, feed: Feed, claims: FileClaims, send: Send) -> None:
        self._hooks = hooks
        self._feed = feed
        self._claims = claims
        self._send = send
        self._running: dict[SessionId, asyncio.Task[None]] = {}

    async def settle(self, session: SessionId) -> None:
        """Report whatever the log records and hooks have not received; calling it again changes nothing."""
        await self.begin(session)
        await self.end(session)

    async def begin(self, session: SessionId) -> None:
        """Report the start of the session unless that was done."""
        await self._run_once(session, "SessionStart", self._begin)

    async def end(self, session: SessionId) -> None:
        """Report the end of the session if it has ended, unless that was done."""
        await self._run_once(session, "SessionEnd", self._end)

    def is_owed_an_end(self, session: SessionId) -> bool:
        """Tell whether the start of the session was reported and its end was not, whether or not it has ended."""
        return self._claims.has(session, "SessionStart") and not self._claims.has(session, "SessionEnd")

    async def aclose(self) -> None:
        """Wait for the running hooks."""
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _run_once(self, session: SessionId, event: str, tell: Callable[[SessionId], Awaitable[None]]) -> None:
        previous = self._running.get(session)
        if previous is None and self._claims.has(session, event):
            return

        async def tell_after() -> None:
            if previous is not None:
                await asyncio.wait((previous,))
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
        # In a session that has ended, nobody could use the reply of its start hooks.
        if opened is None or not is_ready or any(isinstance(event, SessionClosed) for event in events):
            return
        inherited = next((event for event in events if isinstance(event, HistoryInherited)), None)
        has_turns = any(isinstance(event, TurnStarted) for event in events)
        source = "resume" if has_turns else "startup" if inherited is None else "fork" if inherited.how == "fork" else "clear"
        reply = await self._once(session, SessionStart(source=source, model=opened.model), opened)
        if reply is not None and reply.context:
            message = SendMessage(by=SYSTEM, message=MessageId(f"hooks-{session}"), text=reply.context, role="context")
            # An undecided message is kept, and comes before the next message.
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
        """Return the first event of a session without reading the rest, which may be long."""
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
