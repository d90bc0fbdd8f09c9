"""Approvals as files, for scripts and other processes: each request is a file in a directory, and a complete response file is an answer."""

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import secrets
import signal
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Protocol, cast

from pydantic import JsonValue

from curtainwall.host import locked
from curtainwall.model import (
    AnswerApproval,
    AnyEvent,
    ApprovalAsked,
    ApprovalId,
    CommandRefused,
    CurtainwallError,
    Feed,
    SessionId,
    Subject,
    Who,
    session_of,
    session_stream,
)
from curtainwall.session.open_work import OpenWork, take

LARGEST = 4096

# Without file leases we cannot tell whether a file is still being written; it must then have been unchanged for this long.
_REST_SECONDS = 0.5


class Response(StrEnum):
    """The state of a response file."""

    APPROVED = "approved"
    DENIED = "denied"
    BEING_WRITTEN = "being written"
    HALF = "half-written"
    MISSING = "missing"


def read_response(path: Path) -> Response:
    """Read a response; a half-written file says nothing yet, and anything that is not exactly an answer denies."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        return Response.MISSING
    except OSError:
        # A link, a socket, or something that we may not read: not an answer of the user.
        return Response.DENIED
    try:
        return _read(descriptor)
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> Response:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid not in (os.geteuid(), 0) or status.st_size > LARGEST:
        return Response.DENIED
    try:
        # The kernel grants a read lease only while nobody has the file open for writing, and holds writers off until it ends. A writer that
        # arrives meanwhile makes it send a signal, so choose one that is harmless.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        if error.errno == errno.EAGAIN or abs(time.time() - status.st_mtime) < _REST_SECONDS:
            return Response.BEING_WRITTEN
        return _meaning(os.read(descriptor, LARGEST + 1))
    try:
        return _meaning(os.read(descriptor, LARGEST + 1))
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def _meaning(content: bytes) -> Response:
    if len(content) > LARGEST:
        return Response.DENIED
    if is_half_written(content.decode(errors="replace")):
        return Response.HALF
    try:
        answer: object = json.loads(content.decode(), object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return Response.DENIED
    return Response.APPROVED if answer == (("decision", "approved"),) else Response.DENIED


def is_half_written(text: str) -> bool:
    """Tell whether a text is the beginning of an unfinished JSON object; an empty text is, too."""
    stripped = text.lstrip(" \t\r\n")
    if not stripped:
        return True
    if stripped[0] != "{":
        return False
    depth, inside, escaped = 0, False, False
    for letter in stripped:
        if inside:
            inside = escaped or letter != '"'
            escaped = not escaped and letter == "\\"
        elif letter == '"':
            inside = True
        elif letter in "{[":
            depth += 1
        elif letter in "}]":
            depth -= 1
            if depth == 0:
                return False
    return True


BY_FILE = Who(name="response file")
"""Only the user can write into the directory, so an answer there is the user's."""


class Send(Protocol):
    """Submits a command for decision."""

    async def __call__(self, session: SessionId, command: AnswerApproval, /) -> object:
        """Send a command; raise its refusal."""
        ...


class SessionFiles:
    """The files of one session. Several processes may maintain them at once.

    INVARIANT: a response counts only if our request was there before it, so that nothing can be answered in advance. Creating a request and
    cleaning up happen under a lock, so that no process mistakes the answer to another's request for a stale file.
    """

    def __init__(self, feed: Feed, send: Send, session: SessionId, directory: Path) -> None:
        self.directory = directory
        self._feed = feed
        self._send = send
        self._session = session
        self._lock = directory.with_name(f"{directory.name}.lock")
        self._cursor = 0
        self._work = OpenWork()
        self._answered: frozenset[ApprovalId] = frozenset()
        """Asks answered here that the log may not show as settled yet."""

    @property
    def _open(self) -> dict[ApprovalId, ApprovalAsked]:
        return {approval: open_.asked for approval, open_ in self._work.approvals.items() if approval not in self._answered}

    @property
    def is_waiting(self) -> bool:
        """Tell whether an ask is open."""
        return bool(self._open)

    def take_up(self) -> None:
        """Take over from earlier processes: remove stale files, and show what is open."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        with locked(self._lock):
            for recorded in self._feed.read(session_stream(self._session)):
                self._cursor = recorded.seq
                self._note(recorded.event)
            asked = {approval for approval in self._open if self._request(approval).is_file()}
            current = {path.name for approval in asked for path in (self._request(approval), self._response(approval))}
            for path in self.directory.iterdir():
                if path.name not in current:
                    _remove(path)
            for approval in self._open.keys() - asked:
                self._show(self._open[approval])

    def catch_up(self) -> None:
        """Bring the files up to date with the log."""
        for recorded in self._feed.read(session_stream(self._session), self._cursor):
            self._cursor = recorded.seq
            before = set(self._open)
            self._note(recorded.event)
            for approval in self._open.keys() - before:
                with locked(self._lock):
                    if not self._request(approval).is_file():
                        _remove(self._response(approval))
                        self._show(self._open[approval])
            for settled in before - self._open.keys():
                self._clear(settled)

    async def answer(self) -> bool:
        """Send the complete answers; return whether a response is still being written."""
        unfinished = False
        for approval in tuple(self._open):
            match read_response(self._response(approval)):
                case Response.MISSING | Response.HALF:
                    continue
                case Response.BEING_WRITTEN:
                    unfinished = True
                case response:
                    await self._settle(approval, granted=response is Response.APPROVED)
        return unfinished

    def _note(self, event: AnyEvent) -> None:
        take(self._work, event)
        self._answered &= self._work.approvals.keys()

    def _show(self, asked: ApprovalAsked) -> None:
        """Write the request atomically."""
        subject = self._work.subject_of(asked.call)
        server, _, tool = (subject.tool if subject else "").partition(".")
        request = {
            "escalationId": asked.approval,
            "serverName": server,
            "toolName": tool,
            "arguments": _arguments(subject) if subject else {},
            "reason": "; ".join(f"{cover.role} {cover.value} ({', '.join(cover.rules)})" for cover in asked.covers),
        }
        if subject is not None and subject.changes is not None:
            # The arguments of a change set are a digest; people answer about its card.
            request["shown"] = asked.shown
        draft = self.directory / f".{secrets.token_hex(8)}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(request, file, ensure_ascii=True)
            draft.rename(self._request(asked.approval))
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    async def _settle(self, approval: ApprovalId, *, granted: bool) -> None:
        reason = "" if granted else "by a response file"
        try:
            await self._send(self._session, AnswerApproval(by=BY_FILE, approval=approval, granted=granted, reason=reason))
        except CommandRefused:
            pass  # someone else was first
        except CurtainwallError:
            return  # nothing was decided; the file stays, and the next look tries again
        self._answered |= {approval}
        self._clear(approval)

    def _clear(self, approval: ApprovalId) -> None:
        _remove(self._request(approval))
        _remove(self._response(approval))

    def _request(self, approval: ApprovalId) -> Path:
        return self.directory / f"request-{approval}.json"

    def _response(self, approval: ApprovalId) -> Path:
        return self.directory / f"response-{approval}.json"


def _remove(path: Path) -> None:
    """Remove the file of this name, or the directory if it is empty."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        with contextlib.suppress(OSError):
            path.rmdir()


def _arguments(subject: Subject) -> dict[str, JsonValue]:
    """Return the arguments that would run; for a plan, those of every step."""
    if not subject.steps:
        return dict(subject.canonical)
    return {"steps": [{"tool": step.tool, "arguments": dict(step.canonical)} for step in subject.steps]}


_SLOW_MILLIS = 2_000
_SOON = 0.05
_REST = 0.02

Concerned = Callable[[SessionId | None], Iterable[SessionId]]
"""Returns the session if its asks are shown as files, otherwise nothing; for None, all such sessions."""

DirectoryOf = Callable[[SessionId], Path]
"""Returns the directory of a session's files, and creates its parents."""


class Rendezvous:
    """The files of all sessions that use them. A session without open asks costs nothing here."""

    name = "files"

    def __init__(self, feed: Feed, send: Send, concerned: Concerned, directory_of: DirectoryOf, left: Iterable[SessionId] = ()) -> None:
        """Create one; earlier processes may have left files in the directories of the sessions in `left`."""
        self._feed = feed
        self._send = send
        self._concerned = concerned
        self._directory_of = directory_of
        self._waiting: dict[SessionId, SessionFiles] = {}
        self._faults: dict[SessionId, str] = {}
        self._check = asyncio.Event()
        self._set_changed = asyncio.Event()
        for session in left:
            self._try(session, self._take_up)

    async def run(self) -> None:
        """Keep files and approvals in step until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            tasks.create_task(self._answer())
            async for names in self._feed.changes():
                changed = {session for name in names if (session := session_of(name)) is not None}
                self._look_at(changed if names else None)
                # Every change in a busy installation comes by here; nothing is lost during the pause.
                await asyncio.sleep(_REST)

    def health(self) -> str:
        """Return which files could not be written."""
        return "; ".join(f"session {session}: {fault}; it is tried again" for session, fault in self._faults.items())

    async def answer(self) -> bool:
        """Send the complete answers; return whether a response is still being written."""
        return any([await files.answer() for files in tuple(self._waiting.values())])

    def _look_at(self, sessions: Iterable[SessionId] | None) -> None:
        """Bring the files of these sessions up to date, or those of all."""
        for session in {*self._waiting, *self._faults, *self._concerned(None)} if sessions is None else sessions:
            if session in self._waiting:
                self._try(session, self._catch_up)
            elif session in self._faults or any(True for _ in self._concerned(session)):
                self._try(session, self._take_up)

    def _try(self, session: SessionId, bring_up_to_date: Callable[[SessionId], None]) -> None:
        """Run an update and record its error; a session whose files cannot be written must not affect others."""
        try:
            bring_up_to_date(session)
        except (OSError, CurtainwallError) as fault:
            self._faults[session] = str(fault)
            self._waiting.pop(session, None)
            self._set_changed.set()
        else:
            self._faults.pop(session, None)

    def _take_up(self, session: SessionId) -> None:
        files = SessionFiles(self._feed, self._send, session, self._directory_of(session))
        files.take_up()
        if files.is_waiting:
            self._waiting[session] = files
            self._set_changed.set()

    def _catch_up(self, session: SessionId) -> None:
        files = self._waiting[session]
        files.catch_up()
        if not files.is_waiting:
            del self._waiting[session]
            self._set_changed.set()

    async def _watch(self) -> None:
        while True:
            self._set_changed.clear()
            if not self._waiting and not self._faults:
                await self._set_changed.wait()
                continue
            # A response may have arrived before the directories were watched.
            self._check.set()
            async for _ in _changes([files.directory for files in self._waiting.values()], self._set_changed):
                self._look_at(tuple(self._faults))
                self._check.set()

    async def _answer(self) -> None:
        while True:
            await self._check.wait()
            self._check.clear()
            if await self.answer():
                # A writer is still busy, and closing the file causes no event.
                await asyncio.sleep(_SOON)
                self._check.set()


async def _changes(directories: list[Path], until: asyncio.Event) -> AsyncIterator[None]:
    """Yield when something may have changed in a directory: at once if it can be watched, otherwise every few seconds."""
    import watchfiles  # imported late: only sessions with files need it

    options = {"watch_filter": None, "step": 10, "debounce": 20, "rust_timeout": _SLOW_MILLIS, "yield_on_timeout": True, "recursive": False}
    watch = cast("Callable[..., AsyncIterator[object]]", watchfiles.awatch)  # pyright: ignore[reportUnknownMemberType] - it names an optional library
    try:
        async for _ in watch(*directories, stop_event=until, **options):
            yield
    except (OSError, RuntimeError):
        pass
    while not until.is_set():
        yield
        await asyncio.sleep(_SLOW_MILLIS / 1000)
