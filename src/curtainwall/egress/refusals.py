"""Refused requests: the error that a client gets in its provider's dialect, and the rate-limited report of refusals."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Final

from curtainwall.model import CurtainwallError, RefusalKind, record

# Per window and kind; further refusals are only counted.
_LISTED: Final = 10
_LONGEST_WINDOW: Final = 3_600.0


@record
class Refusal:
    """A request that was refused, without its query and body. Its key is included only so that it can be masked."""

    kind: RefusalKind
    host: str
    method: str
    path: str
    reason: str
    key: str = field(default="", repr=False)


Report = Callable[[Sequence[tuple[Refusal, int]], int], Awaitable[None]]
"""Called with refusals and how often each happened, and with the number of further ones."""


async def unreported(refused: Sequence[tuple[Refusal, int]], more: int) -> None:
    """Report nothing."""


class Refusals:
    """Collects the refusals of one session's proxy. The first one opens a window; while they go on, windows grow longer."""

    def __init__(self, report: Report, window: float) -> None:
        self._report = report
        self._shortest = self._seconds = window
        self._timer: asyncio.TimerHandle | None = None
        self._repeats: dict[Refusal, int] = {}
        self._listed: Counter[RefusalKind] = Counter()
        self._more = 0
        self._reporting: set[asyncio.Future[None]] = set()

    def note(self, refusal: Refusal) -> None:
        """Report a refusal now, or count it until the window ends."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._end_window)
        if refusal in self._repeats:
            self._repeats[refusal] += 1
        elif self._listed[refusal.kind] < _LISTED:
            self._listed[refusal.kind] += 1
            self._repeats[refusal] = 0
            self._send(((refusal, 1),), 0)
        else:
            self._more += 1

    async def close(self, seconds: float) -> None:
        """Report what was only counted, and wait at most this long until everything is recorded."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flush()
        if self._reporting:
            await asyncio.wait(tuple(self._reporting), timeout=seconds)

    def _end_window(self) -> None:
        self._timer = None
        goes_on = self._flush()
        self._seconds = min(2 * self._seconds, _LONGEST_WINDOW) if goes_on else self._shortest
        if goes_on:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._end_window)

    def _flush(self) -> bool:
        """Report the counts of this window and forget them; tell whether there were any."""
        repeated, more = tuple((refusal, count) for refusal, count in self._repeats.items() if count), self._more
        self._repeats, self._more = {}, 0
        self._listed.clear()
        if repeated or more:
            self._send(repeated, more)
        return bool(repeated or more)

    def _send(self, refused: Sequence[tuple[Refusal, int]], more: int) -> None:
        # A separate task: the refused client may hang up at any moment, and must not cancel the report.
        task = asyncio.ensure_future(self._report(refused, more))
        self._reporting.add(task)
        task.add_done_callback(self._reported)

    def _reported(self, task: asyncio.Future[None]) -> None:
        self._reporting.discard(task)
        if not task.cancelled():
            task.exception()


class Dialect(StrEnum):
    """How a provider talks: what requests, replies, streams and errors look like."""

    ANTHROPIC = "anthropic"
    RESPONSES = "openai-responses"
    CHAT = "openai-chat"
    GEMINI = "gemini"


_MALFORMED: Final = frozenset((400, 411, 431, 505))


class Refused(CurtainwallError):
    """A refused request; the client gets the status and the reason, which never contains a key.

    A refusal with a `kind` is recorded; malformed HTTP or JSON always has one.
    """

    def __init__(self, status: int, reason: str, *, fatal: bool = False, kind: RefusalKind | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.fatal = fatal
        self.kind: RefusalKind | None = kind or ("malformed" if status in _MALFORMED else None)


class Broke(CurtainwallError):
    """The provider ended an exchange too early, or sent invalid HTTP."""


REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    408: "Request Timeout",
    411: "Length Required",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    421: "Misdirected Request",
    426: "Upgrade Required",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}

_ANTHROPIC_KINDS: Final = {
    400: "invalid_request_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
_GEMINI_KINDS: Final = {
    400: "INVALID_ARGUMENT",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_BEGINNINGS: Final = {
    Dialect.ANTHROPIC: b"event: error\ndata: ",
    Dialect.RESPONSES: b"event: error\ndata: ",
    Dialect.CHAT: b"data: ",
    Dialect.GEMINI: b"data: ",
}
_ENDS: Final = {
    Dialect.ANTHROPIC: b"\n\n",
    Dialect.RESPONSES: b"\n\n",
    Dialect.CHAT: b"\n\ndata: [DONE]\n\n",
    Dialect.GEMINI: b"\r\n\r\n",
}


@record
class Reason:
    """A reason for people to read; clients show it as an error of the provider."""

    status: int
    text: str

    def body(self, dialect: Dialect) -> bytes:
        """Return the JSON that a provider would answer with."""
        return json.dumps(self._error(dialect)).encode()

    def event(self, dialect: Dialect) -> bytes:
        """Return the event that ends a stream."""
        error = self._error(dialect)
        if dialect is Dialect.RESPONSES:
            error = {"type": "error", "code": "curtainwall", "message": self._message, "param": None, "sequence_number": 0}
        return _BEGINNINGS[dialect] + json.dumps(error).encode() + _ENDS[dialect]

    @property
    def _message(self) -> str:
        return f"curtainwall: {self.text}"

    def _error(self, dialect: Dialect) -> dict[str, object]:
        match dialect:
            case Dialect.ANTHROPIC:
                kind = _ANTHROPIC_KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")
                return {"type": "error", "error": {"type": kind, "message": self._message}}
            case Dialect.GEMINI:
                kind = _GEMINI_KINDS.get(self.status, "INVALID_ARGUMENT" if self.status < 500 else "INTERNAL")
                return {"error": {"code": self.status, "message": self._message, "status": kind}}
            case Dialect.RESPONSES | Dialect.CHAT:
                kind = "invalid_request_error" if self.status < 500 else "server_error"
                return {"error": {"message": self._message, "type": kind, "param": None, "code": "curtainwall"}}


def answer(status: int, body: bytes, *, content_type: str, close: bool) -> bytes:
    """Return a complete HTTP response of our own."""
    lines = [
        f"HTTP/1.1 {status} {REASONS.get(status, 'Refused')}",
        f"content-type: {content_type}",
        f"content-length: {len(body)}",
        *(("connection: close",) if close else ()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
