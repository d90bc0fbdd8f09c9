"""Approvals as files, for scripts and foreign processes: requests appear in a directory, and complete responses there are answers."""

import asyncio
import contextlib
import json
import os
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol, cast

from pydantic import JsonValue

from curtainwall.channels.responses import Response, read_response
from curtainwall.model import (
    AnswerApproval,
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalExpired,
    ApprovalId,
    ApprovalWithdrawn,
    CallDenied,
    CallDropped,
    CallFinished,
    CallId,
    CallLost,
    CallRequested,
    CommandRefused,
    CurtainwallError,
    Feed,
    SessionId,
    Subject,
    Who,
    session_stream,
)

BY_FILE = Who(name="response file")
"""Only the user can write into the directory, so an answer there is the user's own."""

_SLOW_MILLIS = 2_000
_SOON = 0.05


class Send(Protocol):
    """The way to have a command decided."""

    async def __call__(self, session: SessionId, command: AnswerApproval, /) -> object:
        """Send a command; raise its refusal."""
        ...


class Rendezvous:
    """The files of one session; it runs in the process that owns the session.

    INVARIANT: a response counts only where our request was there before it, so that nothing can be answered in advance.
    """

    def __init__(self, feed: Feed, send: Send, session: SessionId, directory: Path) -> None:
        self._feed = feed
        self._send = send
        self._session = session
        self._directory = directory
        self._subjects: dict[CallId, Subject] = {}
        self._open: dict[ApprovalId, ApprovalAsked] = {}
        self._look = asyncio.Event()

    async def run(self, cursor: int) -> None:
        """Keep files and approvals in step from the cursor on, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(cursor))
            tasks.create_task(self._watch())
            tasks.create_task(self._answer())

    async def start(self) -> int:
        """Take up what earlier processes left: stale files go, responses to our requests count; return the cursor to go on from."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        cursor = 0
        for recorded in self._feed.read(session_stream(self._session)):
            cursor = recorded.seq
            self._note(recorded.event)
        names = {self._request(approval).name for approval in self._open}
        answerable = {approval for approval in self._open if self._request(approval).is_file()}
        for path in self._directory.iterdir():
            if path.name not in names and path.name not in {self._response(approval).name for approval in answerable}:
                _remove(path)
        for asked in self._open.values():
            self._show(asked)
        await self._answer_all()
        return cursor

    async def _follow(self, cursor: int) -> None:
        async for recorded in self._feed.follow(session_stream(self._session), cursor):
            event = recorded.event
            before = set(self._open)
            self._note(event)
            if isinstance(event, ApprovalAsked):
                _remove(self._response(event.approval))
                self._show(event)
            for settled in before - self._open.keys():
                self._clear(settled)

    def _note(self, event: AnyEvent) -> None:
        match event:
            case CallRequested():
                self._subjects[event.call] = event.subject
            case CallDenied() | CallDropped() | CallFinished() | CallLost():
                self._subjects.pop(event.call, None)
            case ApprovalAsked():
                self._open[event.approval] = event
            case ApprovalAnswered() | ApprovalExpired() | ApprovalWithdrawn():
                self._open.pop(event.approval, None)
            case _:
                pass

    def _show(self, asked: ApprovalAsked) -> None:
        """Write the request, whole or not at all."""
        subject = self._subjects.get(asked.call)
        server, _, tool = (subject.tool if subject else "").partition(".")
        told = {
            "escalationId": asked.approval,
            "serverName": server,
            "toolName": tool,
            "arguments": _arguments(subject) if subject else {},
            "reason": "; ".join(f"{cover.role} {cover.value} ({', '.join(cover.rules)})" for cover in asked.covers),
        }
        draft = self._directory / f".{secrets.token_hex(8)}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(told, file, ensure_ascii=True)
            draft.rename(self._request(asked.approval))
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    async def _watch(self) -> None:
        async for _ in _changes(self._directory):
            self._look.set()

    async def _answer(self) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            if await self._answer_all():
                # Someone is still writing, and the end of that makes no event.
                await asyncio.sleep(_SOON)
                self._look.set()

    async def _answer_all(self) -> bool:
        """Send the answers that are complete; return whether a response is still being written."""
        unfinished = False
        for approval in tuple(self._open):
            match read_response(self._response(approval)):
                case Response.MISSING | Response.HALF:
                    continue
                case Response.BEING_WRITTEN:
                    unfinished = True
                case said:
                    await self._settle(approval, granted=said is Response.APPROVED)
        return unfinished

    async def _settle(self, approval: ApprovalId, *, granted: bool) -> None:
        reason = "" if granted else "by a response file"
        try:
            await self._send(self._session, AnswerApproval(by=BY_FILE, approval=approval, granted=granted, reason=reason))
        except CommandRefused:
            pass  # someone else was first
        except CurtainwallError:
            return  # nothing was written; the file stays, and the next look tries again
        self._open.pop(approval, None)
        self._clear(approval)

    def _clear(self, approval: ApprovalId) -> None:
        _remove(self._request(approval))
        _remove(self._response(approval))

    def _request(self, approval: ApprovalId) -> Path:
        return self._directory / f"request-{approval}.json"

    def _response(self, approval: ApprovalId) -> Path:
        return self._directory / f"response-{approval}.json"


async def _changes(directory: Path) -> AsyncIterator[None]:
    """Tell when something may have changed in a directory: at once where it can be watched, else every few seconds."""
    import watchfiles  # imported late: only sessions with files need it

    options = {"watch_filter": None, "step": 10, "debounce": 20, "rust_timeout": _SLOW_MILLIS, "yield_on_timeout": True, "recursive": False}
    watch = cast("Callable[..., AsyncIterator[object]]", watchfiles.awatch)  # pyright: ignore[reportUnknownMemberType] - it names an optional library
    try:
        async for _ in watch(directory, **options):
            yield
    except (OSError, RuntimeError):
        pass
    while True:
        await asyncio.sleep(_SLOW_MILLIS / 1000)
        yield


def _remove(path: Path) -> None:
    """Remove whatever has this name; a directory only if it is empty."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        with contextlib.suppress(OSError):
            path.rmdir()


def _arguments(subject: Subject) -> dict[str, JsonValue]:
    """Return what would run; of a plan, every step."""
    if not subject.steps:
        return dict(subject.canonical)
    return {"steps": [{"tool": step.tool, "arguments": dict(step.canonical)} for step in subject.steps]}
