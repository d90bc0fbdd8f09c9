"""Names for things, and the moment in which a decision makes new ones. Clock and entropy are inputs."""

import hashlib
from dataclasses import dataclass
from typing import Final, NewType

SessionId = NewType("SessionId", str)
StreamId = NewType("StreamId", str)
TurnId = NewType("TurnId", str)
MessageId = NewType("MessageId", str)
CallId = NewType("CallId", str)
ApprovalId = NewType("ApprovalId", str)
GrantId = NewType("GrantId", str)
ALL_GRANTS: Final = GrantId("all")
"""Names every grant of a session where one is to be revoked; no id is like this."""
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
    """Return the last letters of a number, two at a time: ids are made for every call and every event of a turn."""
    out = ""
    for _ in range((width + 1) // 2):
        out = _PAIRS[number & 1023] + out
        number >>= 10
    return out[-width:]


def ordered_id(at: Millis, entropy: bytes) -> str:
    """Return a 16-letter id that sorts by time: nine letters of clock, seven of chance (35 bits)."""
    return _letters(at, 9) + _letters(int.from_bytes(entropy[:5], "big"), 7)


def short_id(entropy: bytes) -> str:
    """Return a 6-letter id that a person can type (30 bits); whoever mints it sees that it is free."""
    return _letters(int.from_bytes(entropy[:4], "big"), 6)


def session_stream(session: SessionId) -> StreamId:
    """Return the stream that is this session."""
    return StreamId(f"session:{session}")


def project_stream(project: str) -> StreamId:
    """Return the stream that holds a project's grants and pins; `project` is the workspace's real path."""
    return StreamId(f"project:{project}")


def inbox_of(stream: StreamId) -> StreamId:
    """Return the name under which watchers hear that a command was posted for a stream."""
    return StreamId(f"inbox:{stream}")


def wanted_lease(stream: StreamId) -> StreamId:
    """Return the name under which watchers hear that somebody waits for a stream's lease."""
    return StreamId(f"wanted:{stream}")


def freed_lease(stream: StreamId) -> StreamId:
    """Return the name under which watchers hear that a stream's lease was let go for whoever waits for it."""
    return StreamId(f"freed:{stream}")


def session_of(stream: StreamId) -> SessionId | None:
    """Return the session that a stream is, or None for a project's or the house's."""
    kind, _, rest = stream.partition(":")
    return SessionId(rest) if kind == "session" else None


@dataclass(frozen=True, slots=True)
class Moment:
    """One reading of the clock and one seed, and how many bytes the log holds; the same moment always mints the same ids."""

    at: Millis
    seed: bytes
    logged: int = 0

    def approval_id(self, name: str) -> ApprovalId:
        """Return a short id for what `name` asks."""
        return ApprovalId(short_id(self._chance("approval", name)))

    def grant_id(self, name: str) -> GrantId:
        """Return a short id, told from approvals by its first letter."""
        return GrantId("g" + short_id(self._chance("grant", name)))

    def permit_id(self, name: str) -> PermitId:
        """Return a time-ordered id that nobody outside can guess."""
        return PermitId(ordered_id(self.at, self._chance("permit", name)))

    def _chance(self, kind: str, name: str) -> bytes:
        return hashlib.sha256(b"\0".join((self.seed, kind.encode(), name.encode()))).digest()
