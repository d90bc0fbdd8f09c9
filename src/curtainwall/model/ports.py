"""Where the runtime meets everything else: small protocols, at most five methods each."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from pydantic import JsonValue

from curtainwall.model.blobs import BlobRef, Payload
from curtainwall.model.commands import AnyCommand, HookSays
from curtainwall.model.entries import Batch, Entry, Outcome, Owner, Post, Recorded, Waiting
from curtainwall.model.events import AnyEvent, Progress
from curtainwall.model.events.calls import CallPermitted
from curtainwall.model.events.life import Workspace
from curtainwall.model.events.turns import TurnStatus
from curtainwall.model.events.work import SavedProgram
from curtainwall.model.frozen import Frozen
from curtainwall.model.hooks import HookEvent
from curtainwall.model.ids import CallId, Millis, SessionId, StreamId, TurnId
from curtainwall.model.listings import ApprovalQuery, ApprovalRow, GrantRow, SessionQuery, SessionRow, Tally
from curtainwall.model.people import Route, Who
from curtainwall.model.subjects import Subject
from curtainwall.model.tools import Prepared, ToolResult, ToolSpec
from curtainwall.model.verdicts import Mode, Verdict
from curtainwall.model.views import Opened, Opening, RuleStanding, SessionView, VerdictTold

Concerns = Callable[[StreamId], bool]
"""Tells whether a watcher wants to hear of a stream."""


class Log(Protocol):
    """The append-only truth: every stream, one writer each, told apart by sequence numbers that start at 1."""

    async def append(self, batch: Batch) -> Mapping[StreamId, int]:
        """Write the batch durably and return where its streams end now; raise `Conflict` or `TryLater` and write nothing."""
        ...

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """Return the entries after a sequence number, oldest first."""
        ...

    def watch(self, concerns: Concerns | None = None) -> AbstractAsyncContextManager[AsyncIterator[frozenset[StreamId]]]:
        """Tell which streams changed, by any process; the empty set means that any may have. A post is told as `inbox_of(stream)`.

        Who names what concerns them is asked about each name at the moment it changes, on their own loop, and not woken by any other.
        """
        ...

    def head(self, stream: StreamId) -> int:
        """Return the sequence number of the last entry, 0 for none."""
        ...

    async def erase(self, stream: StreamId, batch: Batch) -> None:
        """Delete a stream and everything projected from it, together with the batch that records so.

        Raise `Conflict` where a command waits for the stream that the batch does not decide.
        """
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

    def tell(self, news: StreamId) -> None:
        """Let every watcher of the log hear `wanted_lease(stream)` or `freed_lease(stream)`; a hint, which may get lost."""
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

    def grants(self, *, all_of_them: bool = False, of: StreamId | None = None) -> Sequence[GrantRow]:
        """Return standing answers of every session and project, or of one; revoked ones only when all are wanted."""
        ...

    def session_at(self, route: Route) -> SessionId | None:
        """Return the session that a place leads to."""
        ...

    def routes_to(self, session: SessionId) -> Sequence[Route]:
        """Return the places that lead to a session."""
        ...


class Tallies(Protocol):
    """How many there are of everything, without a look at each."""

    def tally(self) -> Tally:
        """Count sessions and approvals by how they stand."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
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


class CallRequest(Frozen):
    """One wish of an agent at the gate; where `server` is named, whoever makes it has the tools of that one and no others."""

    tool: str
    arguments: JsonValue
    call: CallId | None = None
    turn: TurnId | None = None
    by_house: bool = False
    server: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the gate says back: a result, a refusal with its rules, or that a human has to be waited for.

    `context` is what hooks want the agent to know besides; `stopped` is why, by a hook's word, it must not go on.
    """

    call: CallId
    verdict: Verdict
    result: ToolResult | None = None
    waiting: bool = False
    context: str = ""
    stopped: str | None = None


class Live(Frozen):
    """Something that happens right now and is not kept: a piece of the agent's text, what it does, or what failed and is tried again."""

    kind: Literal["text", "doing", "again"]
    text: str


Save = Callable[[], Awaitable[SavedProgram]]
"""Gives a program as it stands right before a call."""

LEFT: Final = "the agent left"
"""The message with which a request at the gate is cancelled when its agent is gone, rather than no longer wanting it."""


class Gate(Protocol):
    """The one way out. Cancelling a request drops the call; with `LEFT`, an ask stays open and its answer is kept for the same subject."""

    async def request(self, session: SessionId, request: CallRequest, *, wait: bool = True, save: Save | None = None) -> Answer:
        """Walk the ten steps; where a human is asked, wait for the answer, or return at once with `waiting`.

        `save` gives the program that makes the call, as it stands right before it; it is called where the program has to be kept.
        """
        ...

    async def go_on(self, session: SessionId, call: CallId) -> Answer:
        """Go on with a call that was asked for: run it where it is granted by now, return at once with `waiting` where it is still open."""
        ...

    async def drop(self, session: SessionId, call: CallId, why: str) -> None:
        """Let go of a call that nobody waits for any more."""
        ...


class Journal(Protocol):
    """Where an agent writes down its work."""

    async def record(self, session: SessionId, events: Sequence[Progress]) -> Sequence[AnyEvent]:
        """Keep the events durably and return everything that happened because of them."""
        ...

    async def keep(self, value: JsonValue) -> Payload:
        """Return the payload of a value, kept as a blob where it is big."""
        ...

    def load(self, payload: Payload) -> JsonValue:
        """Return the value of a payload."""
        ...

    def say(self, session: SessionId, live: Live) -> None:
        """Tell whoever listens what happens right now; nothing is kept."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAt:
    """A turn that an agent is to work on; `resumed` says that it may have worked on it before."""

    session: SessionId
    turn: TurnId
    resumed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """How an agent left a turn: done, failed with a reason, or waiting for the answers to these calls."""

    status: TurnStatus
    failure: str = ""
    fault: str = ""
    """The name of what went wrong, for programs."""
    waits_for: tuple[CallId, ...] = ()
    last: tuple[Progress, ...] = ()
    """What the agent has not recorded yet, to be kept together with the end of the turn."""


class Agent(Protocol):
    """Whoever does a session's work. Cancelling `work` interrupts the turn; what was shown is kept."""

    async def work(self, at: TurnAt) -> TurnResult:
        """Work on the turn until it is done or has to wait."""
        ...

    async def compact(self, session: SessionId, instructions: str) -> None:
        """Replace older messages by a summary, or record why not."""
        ...

    def forget(self, session: SessionId) -> None:
        """Let go of what is held in memory for a session; the log knows it all."""
        ...


class Desk(Protocol):
    """What a channel can do with sessions; whoever decides for them, here or in another process."""

    async def send(self, session: SessionId, command: AnyCommand, key: str | None = None) -> int:
        """Have a command decided and return where the log ends then; raise its refusal. The same key twice is the same command."""
        ...

    def view(self, session: SessionId) -> SessionView:
        """Return the session as it is now; raise `NotFound`."""
        ...

    def find(self, query: SessionQuery) -> Sequence[SessionRow]:
        """Return sessions, newest first."""
        ...

    async def open(self, wish: Opening, by: Who) -> Opened:
        """Open a session, and let its agent work here."""
        ...

    def explain(self, session: SessionId, what: Literal["rules", "why", "skills", "memory"], about: str = "") -> str:
        """Return in words which rules are in force, why an approval or a call was judged as it was, or what skills and notes there are."""
        ...


class Explaining(Protocol):
    """Rules and verdicts of a session, for whoever wants to know why."""

    def rules(self, session: SessionId) -> Sequence[RuleStanding]:
        """Return every rule with its standing in the session; raise `NotFound`."""
        ...

    def why(self, session: SessionId, about: str = "") -> VerdictTold:
        """Return why a call, or that of an approval, open or settled, was judged as it was; without one, the last call."""
        ...


class Places(Protocol):
    """Which session a place leads to, and who may do more there than talk."""

    def session_at(self, place: Route) -> SessionId | None:
        """Return the session that a place leads to."""
        ...

    async def lead(self, place: Route, by: Who) -> SessionId:
        """Return the session that a place leads to, opened first where there is none, and let its agent work here."""
        ...

    async def move(self, place: Route, session: SessionId, by: Who, instead_of: SessionId | None) -> SessionId:
        """Let a place lead to another session, show that one's asks there, and return the session that it leads to now."""
        ...

    def may_control(self, who: Who) -> bool:
        """Tell whether someone may answer asks and use control words, rather than only talk."""
        ...


class Listening(Protocol):
    """What happens right now in a session that this process works on."""

    def listen(self, session: SessionId) -> AbstractAsyncContextManager[AsyncIterator[Live]]:
        """Tell everything that is said while the context is open."""
        ...


class Feed(Protocol):
    """The log as others read it, from their own cursor."""

    def read(self, stream: StreamId, after: int = 0) -> Sequence[Recorded]:
        """Return what is there after the cursor."""
        ...

    def follow(self, stream: StreamId, after: int = 0) -> AsyncIterator[Recorded]:
        """Go on with what comes after the cursor, until the stream is deleted."""
        ...

    async def grown(self, stream: StreamId, after: int, within: float | None = None) -> None:
        """Return when there is something after the cursor, or so many seconds have passed."""
        ...

    def head(self, stream: StreamId) -> int:
        """Return the cursor behind everything that is there now."""
        ...

    def changes(self) -> AsyncIterator[frozenset[StreamId]]:
        """Tell for ever which streams changed; the empty set, which comes first, means that any may have."""
        ...


class Marks(Protocol):
    """What a channel has to remember besides the log: how far it has told something, what it has told already."""

    def get(self, channel: str, name: str) -> str | None:
        """Return what was remembered under a name."""
        ...

    def all(self, channel: str) -> Mapping[str, str]:
        """Return everything that a channel remembers, by name."""
        ...

    async def set(self, channel: str, marks: Mapping[str, str | None]) -> None:
        """Remember these durably, all or none; None forgets a name."""
        ...
