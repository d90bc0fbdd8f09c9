"""Ids, and how a decision mints new ones. Clock and entropy are inputs."""

import hashlib
from typing import Final, NewType

from curtainwall.model.records import record

SessionId = NewType("SessionId", str)
StreamId = NewType("StreamId", str)
TurnId = NewType("TurnId", str)
MessageId = NewType("MessageId", str)
CallId = NewType("CallId", str)
ApprovalId = NewType("ApprovalId", str)
GrantId = NewType("GrantId", str)
ALL_GRANTS: Final = GrantId("all")
"""Stands for every grant of a session when revoking; no id looks like this."""
PermitId = NewType("PermitId", str)
RuleId = NewType("RuleId", str)
Label = NewType("Label", str)
Digest = NewType("Digest", str)

Millis = int
"""Milliseconds since the epoch, UTC."""

# Crockford's alphabet: no i, l, o, u, so that an id read aloud or typed on a phone is not mistaken.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"

HOUSE = StreamId("house")


_PAIRS = tuple(first + second for first in _ALPHABET for second in _ALPHABET)


def _letters(number: int, width: int) -> str:
    """Return the last letters of a number. Works on two at a time, because every call and event of a turn needs an id."""
    out = ""
    for _ in range((width + 1) // 2):
        out = _PAIRS[number & 1023] + out
        number >>= 10
    return out[-width:]


def ordered_id(at: Millis, entropy: bytes) -> str:
    """Return a 16-letter id that sorts by time: nine letters of clock, seven of chance (35 bits)."""
    return _letters(at, 9) + _letters(int.from_bytes(entropy[:5], "big"), 7)


def short_id(entropy: bytes) -> str:
    """Return a 6-letter id that a person can type (30 bits); the caller must check that it is free."""
    return _letters(int.from_bytes(entropy[:4], "big"), 6)


def session_stream(session: SessionId) -> StreamId:
    """Return the stream of a session."""
    return StreamId(f"session:{session}")


def project_stream(project: str) -> StreamId:
    """Return the stream that holds a project's grants and pins; `project` is the workspace's real path."""
    return StreamId(f"project:{project}")


def inbox_of(stream: StreamId) -> StreamId:
    """Return the name under which watchers are notified of a command posted for a stream."""
    return StreamId(f"inbox:{stream}")


def wanted_lease(stream: StreamId) -> StreamId:
    """Return the name under which watchers are notified that a process waits for a stream's lease."""
    return StreamId(f"wanted:{stream}")


def freed_lease(stream: StreamId) -> StreamId:
    """Return the name under which watchers are notified that a stream's lease was released for a waiting process."""
    return StreamId(f"freed:{stream}")


def session_of(stream: StreamId) -> SessionId | None:
    """Return the session of a stream, or None for the stream of a project or the house."""
    kind, _, rest = stream.partition(":")
    return SessionId(rest) if kind == "session" else None


@record
class Moment:
    """One reading of the clock, one seed, and the size of the log in bytes; the same moment always mints the same ids."""

    at: Millis
    seed: bytes
    logged: int = 0

    def approval_id(self, name: str) -> ApprovalId:
        """Return a short id for what `name` asks."""
        return ApprovalId(short_id(self._chance("approval", name)))

    def grant_id(self, name: str) -> GrantId:
        """Return a short id; its first letter distinguishes it from approvals."""
        return GrantId("g" + short_id(self._chance("grant", name)))

    def permit_id(self, name: str) -> PermitId:
        """Return a time-ordered id that outsiders cannot guess."""
        return PermitId(ordered_id(self.at, self._chance("permit", name)))

    def _chance(self, kind: str, name: str) -> bytes:
        return hashlib.sha256(b"\0".join((self.seed, kind.encode(), name.encode()))).digest()
