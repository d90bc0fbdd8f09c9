"""A batch as the one who writes needs it: bytes, text and values, made before the transaction and by whoever wants it written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from curtainwall.model import Batch, Millis, Outcome, Post, StreamId, Write, encode_command, inbox_of, session_of
from curtainwall.store.audit.lines import AUDITED
from curtainwall.store.projection import changes, net
from curtainwall.store.tables import Statement, statements


@dataclass(slots=True, eq=False)
class PreparedWrite:
    """Events as bytes, and what they change in the tables."""

    stream: StreamId
    expected: int
    events: Sequence[tuple[str, int, bytes]]
    rows: list[Statement]
    at: Millis
    audited: bool


@dataclass(slots=True, eq=False)
class PreparedBatch:
    """A batch that needs nothing but a transaction; `erase` names a stream that goes with it.

    It is doubtful where somebody was given it to write and died: it may stand in the database already.
    """

    writes: list[PreparedWrite]
    consumed: list[tuple[StreamId, str, Outcome]]
    posts: list[tuple[StreamId, str, str, bytes]]
    erase: StreamId | None = None
    is_doubtful: bool = False

    @property
    def touched(self) -> set[StreamId]:
        """Return the streams that change, and those for which commands wait by their inbox's name."""
        names = {write.stream for write in self.writes if write.events}
        names.update(row[0] for row in self.consumed)
        names.update(inbox_of(row[0]) for row in self.posts)
        if self.erase is not None:
            names.add(self.erase)
        return names

    @property
    def audited(self) -> list[StreamId]:
        """Return the streams that have more to tell in their audit files."""
        return [write.stream for write in self.writes if write.audited]

    @property
    def ends(self) -> Mapping[StreamId, int]:
        """Return where the streams end once it is written."""
        return {write.stream: write.expected + len(write.events) for write in self.writes}


def prepare(batch: Batch, erase: StreamId | None = None) -> PreparedBatch:
    """Do everything for a batch that can be done before the transaction."""
    if erase is not None and any(write.stream == erase and write.events for write in batch.writes):
        raise ValueError(f"`{erase}` cannot be erased and written to at once")
    return PreparedBatch(
        [_prepared(write) for write in batch.writes],
        [(row.stream, row.key, row.outcome) for row in batch.consumed],
        [prepare_post(post) for post in batch.posts],
        erase,
    )


def prepare_post(post: Post) -> tuple[StreamId, str, str, bytes]:
    """Return the inbox row of a command."""
    kind, payload = encode_command(post.command)
    return post.stream, post.key, kind, payload


def _prepared(write: Write) -> PreparedWrite:
    stream, events, encoded = write.stream, write.events, write.encoded
    audited = any(kind in AUDITED for kind, _, _ in encoded) and session_of(stream) is not None
    rows = [row for change in net([change for event in events for change in changes(stream, event)]) for row in statements(change)]
    return PreparedWrite(stream, write.expected, encoded, rows, events[-1].at if events else 0, audited)
