"""Where the runtime meets everything else: small protocols, at most five methods each."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from pydantic import JsonValue

from curtainwall.model.blobs import BlobRef
from curtainwall.model.commands import HookSays
from curtainwall.model.entries import Batch, Entry, Outcome, Owner, Post, Recorded, Waiting
from curtainwall.model.events import CallPermitted, Workspace
from curtainwall.model.frozen import Frozen
from curtainwall.model.hooks import HookEvent
from curtainwall.model.ids import CallId, Millis, SessionId, StreamId, TurnId
from curtainwall.model.listings import ApprovalQuery, ApprovalRow, GrantRow, SessionQuery, SessionRow
from curtainwall.model.subjects import Subject
from curtainwall.model.tools import Prepared, ToolResult, ToolSpec
from curtainwall.model.verdicts import Mode, Verdict


class Log(Protocol):
    """The append-only truth: every stream, one writer each, told apart by sequence numbers that start at 1."""

    async def append(self, batch: Batch) -> Mapping[StreamId, int]:
        """Write the batch durably and return where its streams end now; raise `Conflict` or `TryLater` and write nothing."""
        ...

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """Return the entries after a sequence number, oldest first."""
        ...

    def watch(self) -> AbstractAsyncContextManager[AsyncIterator[frozenset[StreamId]]]:
        """Tell which streams changed, by any process; the empty set means that any may have. A post is told as `inbox_of(stream)`."""
        ...

    def head(self, stream: StreamId) -> int:
        """Return the sequence number of the last entry, 0 for none."""
        ...

    async def erase(self, stream: StreamId, batch: Batch) -> None:
        """Delete a stream and everything projected from it, together with the batch that records so."""
        ...


class Inbox(Protocol):
    """Commands that wait for a stream's owner, durable and idempotent by key."""

    async def post(self, post: Post) -> None:
        """Keep the command durably; a key that was posted before changes nothing."""
        ...

    def waiting(self, stream: StreamId) -> Sequence[Waiting]:
        """Return the undecided commands in the order in which they came."""
        ...

    def outcome(self, stream: StreamId, key: str) -> Outcome | None:
        """Return what became of a command, or None while it waits or is unknown."""
        ...


class Lease(Protocol):
    """The right to decide for one stream; it ends with the process at the latest."""

    def release(self) -> None:
        """Let someone else decide; calling it twice is harmless."""
        ...


class Leases(Protocol):
    """Who decides."""

    def take(self, stream: StreamId) -> Lease | None:
        """Return the lease, or None while another process holds it."""
        ...

    def owner(self, stream: StreamId) -> Owner | None:
        """Return who holds the lease, for a message."""
        ...


class Blobs(Protocol):
    """Big payloads by their digest."""

    async def put(self, content: bytes) -> BlobRef:
        """Keep the bytes durably and return their name."""
        ...

    def get(self, digest: str) -> bytes:
        """Return the bytes, checked against their digest; raise `NotFound` or `Broken`."""
        ...


class Index(Protocol):
    """Lists and searches: projections of the log, rebuildable, never read by a decision."""

    def sessions(self, query: SessionQuery) -> Sequence[SessionRow]:
        """Return sessions, newest first."""
        ...

    def approvals(self, query: ApprovalQuery) -> Sequence[ApprovalRow]:
        """Return approvals, newest first."""
        ...

    def grants(self, *, all_of_them: bool = False) -> Sequence[GrantRow]:
        """Return standing answers of every session and project; revoked ones only when all are wanted."""
        ...


class Clock(Protocol):
    """Time and chance, so that tests can have their own."""

    def now(self) -> Millis:
        """Return the time of day."""
        ...

    def entropy(self, size: int) -> bytes:
        """Return random bytes."""
        ...

    async def sleep_until(self, at: Millis) -> None:
        """Return when that time has come."""
        ...


class Place(Frozen):
    """The session that a call belongs to, as far as meaning depends on it."""

    session: SessionId
    workspace: Workspace
    mode: Mode = Mode.DEFAULT


class ToolHost(Protocol):
    """The catalogue and the hands: what tools there are, what a call means, and running it."""

    def find(self, tool: str) -> ToolSpec | None:
        """Return the catalogue's entry for `server.tool`."""
        ...

    def prepare(self, tool: str, arguments: JsonValue, place: Place) -> Prepared:
        """Check the arguments, find out what they mean, and mask; raise `BadCall`."""
        ...

    def masked(self, value: JsonValue) -> JsonValue:
        """Return the value with every secret masked, for the log."""
        ...

    async def run(self, prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        """Run the call with its canonical arguments only."""
        ...


class Hooks(Protocol):
    """The user's programs around calls and sessions."""

    async def before_call(self, subject: Subject, place: Place) -> "HookReply":
        """Say what the hooks want for this call."""
        ...

    async def after_call(self, subject: Subject, result: ToolResult, place: Place) -> "HookReply":
        """Tell the hooks what came of it; the outcome stands, whatever they do."""
        ...

    async def tell(self, event: HookEvent, place: Place) -> "HookReply":
        """Tell the hooks of something else that happened, or is about to."""
        ...


class HookReply(Frozen):
    """What hooks made of an event: stricter, other arguments, something the agent should know, or nothing.

    `blocked` says why the event must not go its way: the message is not taken, the agent is not done, nothing is compacted. `stopped` says
    why the agent must not go on at all. `warnings` are for people.
    """

    says: HookSays | None = None
    arguments: Mapping[str, JsonValue] | None = None
    context: str = ""
    blocked: str | None = None
    stopped: str | None = None
    warnings: tuple[str, ...] = ()


class Approver(Protocol):
    """An automatic approver: it may only approve or pass on."""

    async def approves(self, subject: Subject, human_words: Sequence[str]) -> str | None:
        """Return the approver's name if it approves, None to pass the ask on to humans."""
        ...


class Ask(Frozen):
    """One wish of an agent at the gate."""

    tool: str
    arguments: JsonValue
    call: CallId | None = None
    turn: TurnId | None = None


class Answer(Frozen):
    """What the gate says back: a result, a refusal with its rules, or that a human has to be waited for.

    `context` is what hooks want the agent to know besides; `stopped` is why, by a hook's word, it must not go on.
    """

    call: CallId
    verdict: Verdict
    result: ToolResult | None = None
    waiting: bool = False
    context: str = ""
    stopped: str | None = None


LEFT: Final = "the agent left"
"""The message with which a request at the gate is cancelled when its agent is gone, rather than no longer wanting it."""


class Gate(Protocol):
    """The one way out. Cancelling a request drops the call; with `LEFT`, an ask stays open and its answer is kept for the same subject."""

    async def request(self, session: SessionId, ask: Ask) -> Answer:
        """Walk the ten steps; wait for a human where one is asked and the session waits."""
        ...


class Feed(Protocol):
    """The log as others read it, from their own cursor."""

    def read(self, stream: StreamId, after: int = 0) -> Sequence[Recorded]:
        """Return what is there after the cursor."""
        ...

    def follow(self, stream: StreamId, after: int = 0) -> AsyncIterator[Recorded]:
        """Go on for ever with what comes after the cursor."""
        ...

    def head(self, stream: StreamId) -> int:
        """Return the cursor behind everything that is there now."""
        ...
