"""One session's approvals as files: requests that appear in a directory, and complete responses there, which are answers."""

import contextlib
import json
import os
import secrets
from pathlib import Path
from typing import Protocol

from pydantic import JsonValue

from curtainwall.channels.ask_files.responses import Response, read_response
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
    session_stream,
)
from curtainwall.session.open_work import OpenWork, take

BY_FILE = Who(name="response file")
"""Only the user can write into the directory, so an answer there is the user's own."""


class Send(Protocol):
    """The way to have a command decided."""

    async def __call__(self, session: SessionId, command: AnswerApproval, /) -> object:
        """Send a command; raise its refusal."""
        ...


class SessionFiles:
    """The files of one session. Several processes may look after them at once.

    INVARIANT: a response counts only where our request was there before it, so that nothing can be answered in advance. Whoever makes a
    request or clears away does so under a lock, so that no process takes an answer for something stale that another has asked for.
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
        """Asks that were answered here, of which the log may not have told yet."""

    @property
    def _open(self) -> dict[ApprovalId, ApprovalAsked]:
        return {approval: open_.asked for approval, open_ in self._work.approvals.items() if approval not in self._answered}

    @property
    def is_waiting(self) -> bool:
        """Tell whether an answer is waited for."""
        return bool(self._open)

    def take_up(self) -> None:
        """Take up what earlier processes left: stale files go, and what is open is shown."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        with locked(self._lock):
            for recorded in self._feed.read(session_stream(self._session)):
                self._cursor = recorded.seq
                self._note(recorded.event)
            asked = {approval for approval in self._open if self._request(approval).is_file()}
            kept = {path.name for approval in asked for path in (self._request(approval), self._response(approval))}
            for path in self.directory.iterdir():
                if path.name not in kept:
                    _remove(path)
            for approval in self._open.keys() - asked:
                self._show(self._open[approval])

    def catch_up(self) -> None:
        """Keep files and approvals in step with what has happened since."""
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

    def _note(self, event: AnyEvent) -> None:
        take(self._work, event)
        self._answered &= self._work.approvals.keys()

    def _show(self, asked: ApprovalAsked) -> None:
        """Write the request, whole or not at all."""
        subject = self._work.subject_of(asked.call)
        server, _, tool = (subject.tool if subject else "").partition(".")
        told = {
            "escalationId": asked.approval,
            "serverName": server,
            "toolName": tool,
            "arguments": _arguments(subject) if subject else {},
            "reason": "; ".join(f"{cover.role} {cover.value} ({', '.join(cover.rules)})" for cover in asked.covers),
        }
        draft = self.directory / f".{secrets.token_hex(8)}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(told, file, ensure_ascii=True)
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
            return  # nothing was written; the file stays, and the next look tries again
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
