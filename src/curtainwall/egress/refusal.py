"""Answers that we give in a provider's place: why a request was refused or cut, in the words that each provider's clients read."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from curtainwall.model import CurtainwallError, RefusalKind


class Dialect(StrEnum):
    """How a provider talks: what requests, replies, streams and errors look like."""

    ANTHROPIC = "anthropic"
    RESPONSES = "openai-responses"
    CHAT = "openai-chat"
    GEMINI = "gemini"


_MALFORMED: Final = frozenset((400, 411, 431, 505))


class Refused(CurtainwallError):
    """A request that does not go on; the client gets the status and the reason, which never holds a key.

    One of a `kind` is recorded, and so is one that is not HTTP or JSON as it should be.
    """

    def __init__(self, status: int, reason: str, *, fatal: bool = False, kind: RefusalKind | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.fatal = fatal
        self.kind: RefusalKind | None = kind or ("malformed" if status in _MALFORMED else None)


class Broke(CurtainwallError):
    """The provider's side of an exchange ended before its time, or said something that is no HTTP."""


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


@dataclass(frozen=True, slots=True)
class Reason:
    """Why, as a person should read it; clients show it as an error of the provider."""

    status: int
    text: str

    def body(self, dialect: Dialect) -> bytes:
        """Return the JSON that a provider would answer with."""
        return json.dumps(self._error(dialect)).encode()

    def event(self, dialect: Dialect) -> bytes:
        """Return the event that ends a stream."""
        error = self._error(dialect)
        if dialect is Dialect.RESPONSES:
            error = {"type": "error", "code": "curtainwall", "message": self._told, "param": None, "sequence_number": 0}
        return _BEGINNINGS[dialect] + json.dumps(error).encode() + _ENDS[dialect]

    @property
    def _told(self) -> str:
        return f"curtainwall: {self.text}"

    def _error(self, dialect: Dialect) -> dict[str, object]:
        match dialect:
            case Dialect.ANTHROPIC:
                kind = _ANTHROPIC_KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")
                return {"type": "error", "error": {"type": kind, "message": self._told}}
            case Dialect.GEMINI:
                kind = _GEMINI_KINDS.get(self.status, "INVALID_ARGUMENT" if self.status < 500 else "INTERNAL")
                return {"error": {"code": self.status, "message": self._told, "status": kind}}
            case Dialect.RESPONSES | Dialect.CHAT:
                kind = "invalid_request_error" if self.status < 500 else "server_error"
                return {"error": {"message": self._told, "type": kind, "param": None, "code": "curtainwall"}}


def answer(status: int, body: bytes, *, content_type: str, close: bool) -> bytes:
    """Return a whole HTTP answer of our own."""
    lines = [
        f"HTTP/1.1 {status} {REASONS.get(status, 'Refused')}",
        f"content-type: {content_type}",
        f"content-length: {len(body)}",
        *(("connection: close",) if close else ()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
