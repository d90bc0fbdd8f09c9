"""A session's conversation as items on a page, each with its own key, built from the events alone, one at a time."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, assert_never

from pydantic import JsonValue

from curtainwall.channels.asks.event_lines import ON_PAGES, Tone, describe_change, describe_event
from curtainwall.model import (
    SYSTEM,
    AgentSpoke,
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalId,
    ApprovalJoined,
    ApprovalWithdrawn,
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallId,
    CallLost,
    CallPermitted,
    CallRequested,
    GrantGiven,
    GrantScope,
    HistoryInherited,
    InterruptAsked,
    LabelSource,
    MessageAccepted,
    MessageEvent,
    MessageWithdrawn,
    Millis,
    ModelEvent,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    Payload,
    PendingAsk,
    Recorded,
    SessionId,
    SpeechEvent,
    Subject,
    TextStreamed,
    TurnEnded,
    TurnEvent,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    Verdict,
)
from curtainwall.operations.activity import SessionActivity
from curtainwall.session.open_work import OpenApproval, pending_ask

Standing = Literal["requested", "asked", "running", "done", "failed", "denied", "lost", "dropped"]

_LONGEST_STEP = 32
"""How many new items to wait for before checking again whether older ones can be dropped."""


@dataclass(slots=True)
class Item:
    """One item on the page; `changed` is the log entry that last changed it."""

    key: str
    at: Millis
    changed: int

    @property
    def is_open(self) -> bool:
        """Tell whether an event may still change it."""
        return False

    @property
    def weight(self) -> int:
        """Return about how many characters it holds."""
        return 0


@dataclass(slots=True)
class MessageItem(Item):
    """A message of a person or a system to the agent."""

    kind: ClassVar[str] = "said"
    by: str
    text: str
    standing: Literal["queued", "taken", "withdrawn"] = "queued"

    @property
    def is_open(self) -> bool:
        """Tell whether it is queued."""
        return self.standing == "queued"

    @property
    def weight(self) -> int:
        """Return how many characters it holds."""
        return len(self.text)


@dataclass(slots=True)
class SpeechItem(Item):
    """The agent's text, complete or still streaming."""

    kind: ClassVar[str] = "spoke"
    text: str
    is_whole: bool = False
    end: str = ""

    @property
    def is_open(self) -> bool:
        """Tell whether more of it is to come."""
        return not self.is_whole

    @property
    def weight(self) -> int:
        """Return how many characters it holds."""
        return len(self.text)


@dataclass(slots=True)
class NoteItem(Item):
    """An event in one line; `session` is another session that it refers to."""

    kind: ClassVar[str] = "note"
    tone: Tone
    text: str
    session: SessionId | None = None

    @property
    def weight(self) -> int:
        """Return how many characters it holds."""
        return len(self.text)


@dataclass(slots=True)
class Ask:
    """The question about a call, open until `settled` says how it ended."""

    pending: PendingAsk
    settled: str = ""
    granted: bool = False


@dataclass(slots=True)
class CallItem(Item):
    """A call of the agent, and what happened to it."""

    kind: ClassVar[str] = "call"
    call: CallId
    subject: Subject
    standing: Standing = "requested"
    verdict: Verdict | None = None
    answered_by: tuple[str, ...] = ()
    labels: tuple[LabelSource, ...] = ()
    result: Payload | None = None
    end: str = ""
    ask: Ask | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether it has no outcome yet."""
        return self.standing in ("requested", "asked", "running")

    @property
    def weight(self) -> int:
        """Return how many characters its arguments, its question and its result hold."""
        asked = 0 if self.ask is None else len(self.ask.pending.shown)
        result = 0 if self.result is None else _characters(self.result.inline)
        return (
            asked
            + result
            + sum(_characters(dict(call.raw)) + _characters(dict(call.canonical)) for call in (self.subject, *self.subject.steps))
        )


AnyItem = MessageItem | SpeechItem | NoteItem | CallItem

_SHOWN_AT_CALL = CallEvent | ApprovalEvent | GrantGiven
"""Events that are shown at their call."""
_NOBODY = SYSTEM.model_copy(update={"name": "nobody at all"})


@dataclass(slots=True)
class PageConversation:
    """The page so far, from some log entry on. The same events always make the same items under the same keys.

    When older items are dropped, those that an event may still change stay.
    """

    begin: int = 0
    """The entry after which the page begins; what came before is not on it."""
    items: dict[str, AnyItem] = field(default_factory=dict[str, AnyItem])
    seq: int = field(init=False)
    left_out: int = 0
    """How many items were dropped."""
    activity: SessionActivity = field(default_factory=SessionActivity)
    # Where the previous message ended, so that a key does not depend on where the page begins.
    _spoken: int = field(init=False)
    _calls: dict[CallId, str] = field(default_factory=dict[CallId, str])
    _asks: dict[ApprovalId, str] = field(default_factory=dict[ApprovalId, str])
    _dropped: int = 0
    _next_check: int = 0

    def __post_init__(self) -> None:
        self.seq = self._spoken = self.begin

    @property
    def saying(self) -> str:
        """The key of the message that the agent is saying, or will say next."""
        return f"spoke-{self._spoken}"

    def changed_after(self, seq: int) -> list[AnyItem] | None:
        """Return the items changed after a log entry, in page order; None if some of them were dropped."""
        return None if seq < self._dropped else [item for item in self.items.values() if item.changed > seq]

    def shed(self, most: int, heaviest: int) -> None:
        """Drop older items, to keep about `most` items and `heaviest` characters besides those that may still change."""
        if len(self.items) < self._next_check:
            return
        remaining: list[AnyItem] = []
        count = weight = 0
        for item in reversed(self.items.values()):
            if not item.is_open:
                count, weight = count + 1, weight + item.weight
            if item.is_open or (count <= most and weight <= heaviest):
                remaining.append(item)
            else:
                self._dropped = max(self._dropped, item.changed)
        self.left_out += len(self.items) - len(remaining)
        self.items = {item.key: item for item in reversed(remaining)}
        self._calls = {call: key for call, key in self._calls.items() if key in self.items}
        self._asks = {approval: key for approval, key in self._asks.items() if key in self.items}
        self._next_check = len(remaining) + _LONGEST_STEP

    def take(self, recorded: Recorded) -> AnyItem | None:
        """Apply one event, and return the item that it made or changed."""
        event, self.seq = recorded.event, recorded.seq
        item = self._take(event)
        if item is None and not isinstance(event, _SHOWN_AT_CALL):
            item = self._note_for(event)
        self.activity.take(event)
        if item is not None:
            item.changed = self.seq
        return item

    def _put(self, item: AnyItem) -> AnyItem:
        self.items[item.key] = item
        return item

    def _take(self, event: AnyEvent) -> AnyItem | None:
        if isinstance(event, MessageEvent | TurnEvent | SpeechEvent | ModelEvent):
            return self._take_text(event)
        return self._take_call(event) if isinstance(event, CallEvent | ApprovalEvent) else None

    def _take_text(self, event: MessageEvent | TurnEvent | SpeechEvent | ModelEvent) -> AnyItem | None:
        match event:
            case MessageAccepted():
                # Messages beside the conversation go to the agent with its next request, and no turn takes them.
                standing = "queued" if event.role == "human" else "taken"
                return self._put(MessageItem(f"said-{event.message}", event.at, 0, str(event.by), event.text, standing))
            case MessageWithdrawn():
                item = self.items.get(f"said-{event.message}")
                if isinstance(item, MessageItem):
                    item.standing = "withdrawn"
                return item
            case TurnStarted():
                taken: AnyItem | None = None
                for message in event.messages:
                    taken = self.items.get(f"said-{message}")
                    if isinstance(taken, MessageItem):
                        taken.standing, taken.changed = "taken", self.seq
                return taken
            case TextStreamed():
                spoke = self._spoke(event.at)
                spoke.text += event.text
                return spoke
            case AgentSpoke():
                spoke = self._spoke(event.at)
                spoke.text, spoke.is_whole = event.text, True
                self._spoken = self.seq
                return spoke
            case ModelFailed() if self.saying in self.items:
                return self._end_speech("cut off")
            case TurnEnded() if self.saying in self.items and event.status is not TurnStatus.WAITING:
                return self._end_speech(event.status.value)
            case TurnEnded() | TurnResumed() | InterruptAsked() | ModelRequested() | ModelResponded() | ModelFailed():
                return None
            case _:
                assert_never(event)

    def _spoke(self, at: Millis) -> SpeechItem:
        item = self.items.get(self.saying)
        if isinstance(item, SpeechItem):
            return item
        speech = SpeechItem(self.saying, at, 0, "")
        self._put(speech)
        return speech

    def _end_speech(self, end: str) -> AnyItem:
        spoke = self._spoke(0)
        spoke.is_whole, spoke.end = True, end
        self._spoken = self.seq
        return spoke

    def _take_call(self, event: CallEvent | ApprovalEvent) -> AnyItem | None:
        match event:
            case CallRequested():
                key = f"call-{event.call}"
                self._calls[event.call] = key
                return self._put(CallItem(key, event.at, 0, event.call, event.subject))
            case CallPermitted():
                new = tuple(source for source in event.labels if source.label not in self.activity.labels)
                return self._update_call(event.call, "running", verdict=event.verdict, answered_by=event.answered_by, labels=new)
            case CallFinished():
                return self._update_call(event.call, "done" if event.ok else "failed", result=event.shown or event.result)
            case CallDenied():
                return self._update_call(event.call, "denied", verdict=event.verdict)
            case CallLost():
                return self._update_call(event.call, "lost", end="it is unknown whether this ran")
            case CallDropped():
                return self._update_call(event.call, "dropped", end=event.why)
            case ApprovalJoined():
                return self._update_call(event.call, "asked", end=f"shares ask {event.approval}")
            case ApprovalAsked():
                return self._on_asked(event)
            case ApprovalAnswered():
                how_far = "once" if event.scope is GrantScope.ONCE else f"for the {event.scope}"
                why = f" ({event.reason})" if event.reason else ""
                words = f"approved {how_far} by {event.by}{why}" if event.granted else f"denied by {event.by}{why}"
                return self._on_settled(event.approval, words, granted=event.granted)
            case ApprovalExpired():
                return self._on_settled(event.approval, "nobody answered in time; it is denied")
            case ApprovalWithdrawn():
                return self._on_settled(event.approval, f"no longer asked: {event.why}")
            case _:
                assert_never(event)

    def _update_call(self, call: CallId, standing: Standing, **fields: object) -> AnyItem | None:
        item = self.items.get(self._calls.get(call, ""))
        if not isinstance(item, CallItem):
            return None
        item.standing = standing
        for name, value in fields.items():
            setattr(item, name, value)
        return item

    def _on_asked(self, event: ApprovalAsked) -> AnyItem | None:
        item = self._update_call(event.call, "asked")
        if isinstance(item, CallItem):
            item.ask = Ask(pending_ask(OpenApproval(event, (event.call,)), item.subject))
            self._asks[event.approval] = item.key
        return item

    def _on_settled(self, approval: ApprovalId, words: str, *, granted: bool = False) -> AnyItem | None:
        item = self.items.get(self._asks.get(approval, ""))
        if isinstance(item, CallItem) and item.ask is not None and item.ask.pending.approval == approval:
            item.ask.settled, item.ask.granted = words, granted
            return item
        return None

    def _note_for(self, event: AnyEvent) -> AnyItem | None:
        key = f"note-{self.seq}"
        if isinstance(event, HistoryInherited):
            words = "goes on from what was said in" if event.how == "fork" else "a fresh start in the workspace of"
            return self._put(NoteItem(key, event.at, 0, "dim", words, event.parent))
        line = describe_event(event, self.activity, ON_PAGES) or describe_change(event, _NOBODY)
        return None if line is None or not line.text else self._put(NoteItem(key, event.at, 0, line.tone, line.text))


def _characters(value: JsonValue) -> int:
    """Return about how many characters a value has."""
    match value:
        case str():
            return len(value)
        case dict():
            return sum(len(name) + _characters(item) for name, item in value.items())
        case list():
            return sum(map(_characters, value))
        case _:
            return 1
