"""Report SessionStart and SessionEnd to hooks once for each time a session is open, after the log has recorded them, and never again."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from curtainwall.model import (
    SYSTEM,
    AnyCommand,
    AnyEvent,
    Feed,
    HistoryInherited,
    HookEvent,
    HookReply,
    Hooks,
    MessageId,
    ModeChanged,
    ModelChanged,
    Place,
    SendMessage,
    SessionClosed,
    SessionEnd,
    SessionId,
    SessionOpened,
    SessionReady,
    SessionReopened,
    SessionStart,
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

    async def settle(self, session: SessionId, reopened: int = 0) -> None:
        """Report whatever the log records and hooks have not received; calling it again changes nothing."""
        await self.begin(session, reopened)
        await self.end(session, reopened)

    async def begin(self, session: SessionId, reopened: int = 0) -> None:
        """Report that a session is open unless that was done, and before that every earlier end; it was opened again so many times."""
        await self._run_once(session, claim_of("SessionStart", reopened), self._begin)

    async def end(self, session: SessionId, reopened: int = 0) -> None:
        """Report the end of the session if it has ended, unless that was done."""
        await self._run_once(session, claim_of("SessionEnd", reopened), self._end)

    def is_owed_an_end(self, session: SessionId) -> bool:
        """Tell whether the last reported start of the session has no reported end, whether or not it has ended."""
        reopened = 0
        while self._claims.has(session, claim_of("SessionStart", reopened + 1)):
            reopened += 1
        has = self._claims.has
        return has(session, claim_of("SessionStart", reopened)) and not has(session, claim_of("SessionEnd", reopened))

    async def aclose(self) -> None:
        """Wait for the running hooks."""
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _run_once(self, session: SessionId, claim: str, tell: Callable[[SessionId], Awaitable[None]]) -> None:
        previous = self._running.get(session)
        if previous is None and self._claims.has(session, claim):
            return

        async def tell_after() -> None:
            if previous is not None:
                await asyncio.wait((previous,))
            if not self._claims.has(session, claim):
                await tell(session)

        def is_done(task: asyncio.Task[None]) -> None:
            if self._running.get(session) is task:
                del self._running[session]

        task = self._running[session] = asyncio.create_task(tell_after(), name=f"{claim} of {session}")
        task.add_done_callback(is_done)
        await asyncio.shield(task)

    async def _begin(self, session: SessionId) -> None:
        events = [recorded.event for recorded in self._feed.read(session_stream(session))]
        opened = next((event for event in events if isinstance(event, SessionOpened)), None)
        is_ready = any(isinstance(event, SessionReady) for event in events)
        if opened is None or not is_ready:
            return
        reopened = await self._end_each(session, events, opened)
        changes = [event for event in events if isinstance(event, SessionClosed | SessionReopened)]
        # In a session that has ended, nobody could use the reply of its start hooks.
        if changes and isinstance(changes[-1], SessionClosed):
            return
        inherited = next((event for event in events if isinstance(event, HistoryInherited)), None)
        has_turns = any(isinstance(event, TurnStarted) for event in events)
        source = "resume" if has_turns or reopened else "startup" if inherited is None else "fork" if inherited.how == "fork" else "clear"
        start = SessionStart(source=source, model=_model(events, opened))
        reply = await self._once(session, start, reopened, _place(session, events, opened))
        if reply is not None and reply.context:
            name = f"hooks-{session}" if not reopened else f"hooks-{session}-{reopened + 1}"
            message = SendMessage(by=SYSTEM, message=MessageId(name), text=reply.context, role="context")
            # An undecided message is kept, and comes before the next message.
            with suppress(Undecided):
                await self._send(session, message, f"hooks:{claim_of('SessionStart', reopened)}:{session}")

    async def _end(self, session: SessionId) -> None:
        stream = session_stream(session)
        # A long log is read as a whole only if it ends with the end of the session.
        last = self._feed.read(stream, max(0, self._feed.head(stream) - _TAIL))
        if any(isinstance(recorded.event, SessionClosed) for recorded in last):
            events = [recorded.event for recorded in self._feed.read(stream)]
            if isinstance(events[0], SessionOpened):
                await self._end_each(session, events, events[0])

    async def _end_each(self, session: SessionId, events: Sequence[AnyEvent], opened: SessionOpened) -> int:
        """Report each end of a session that was not reported, and return how often it was opened again."""
        reopened = 0
        for place, event in enumerate(events):
            if isinstance(event, SessionReopened):
                reopened += 1
            elif isinstance(event, SessionClosed) and not self._claims.has(session, claim_of("SessionEnd", reopened)):
                await self._once(session, SessionEnd(reason=event.reason), reopened, _place(session, events[:place], opened))
        return reopened

    async def _once(self, session: SessionId, event: HookEvent, reopened: int, place: Place) -> HookReply | None:
        if not await asyncio.to_thread(self._claims.claim, session, claim_of(type(event).__name__, reopened)):
            return None
        return await self._hooks.tell(event, place)


def claim_of(event: str, reopened: int) -> str:
    """Return the name of the claim on an event of a session that was opened again so many times."""
    return event if reopened == 0 else f"{event}-{reopened + 1}"


def _place(session: SessionId, events: Sequence[AnyEvent], opened: SessionOpened) -> Place:
    mode = next((event.mode for event in reversed(events) if isinstance(event, ModeChanged)), opened.mode)
    return Place(session=session, workspace=opened.workspace, mode=mode)


def _model(events: Sequence[AnyEvent], opened: SessionOpened) -> str:
    return next((event.model for event in reversed(events) if isinstance(event, ModelChanged)), opened.model)
