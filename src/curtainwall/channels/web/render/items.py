"""A session's conversation as things on a page, each under a name of its own: made from the events alone, one event at a time."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, assert_never

from pydantic import JsonValue

from curtainwall.channels.asks.event_lines import ON_PAGES, Tone, describe_change, describe_event
from curtainwall.model import (
    SYSTEM,
    TRUST_SKILL,
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
    Role,
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
from curtainwall.model.tools import FOLLOW_INSTRUCTIONS
from curtainwall.operations.activity import SessionActivity
from curtainwall.session.open_work import OpenApproval, pending_ask

Standing = Literal["requested", "asked", "running", "done", "failed", "denied", "lost", "dropped"]

_LONGEST_STEP = 32
"""How many items come before it is looked at again whether older ones can go."""


@dataclass(slots=True)
class Item:
    """One thing on the page; `changed` is the entry of the log that last changed it."""

    key: str
    at: Millis
    changed: int

    @property
    def is_open(self) -> bool:
        """Tell whether an event may still change it."""
        return False

    @property
    def weight(self) -> int:
        """Return how many characters it holds, roughly."""
        return 0


@dataclass(slots=True)
class MessageItem(Item):
    """What a person or a system said to the agent."""

    kind: ClassVar[str] = "said"
    by: str
    text: str
    standing: Literal["queued", "taken", "withdrawn"] = "queued"

    @property
    def is_open(self) -> bool:
        """Tell whether it waits for its turn."""
        return self.standing == "queued"

    @property
    def weight(self) -> int:
        """Return how many characters it holds."""
        return len(self.text)


@dataclass(slots=True)
class SpeechItem(Item):
    """What the agent said, or is saying."""

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
    """Something that happened, in a line; `session` is another one that it is about."""

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
    """The question about a call, open until `settled` says in words how it ended."""

    pending: PendingAsk
    settled: str = ""
    granted: bool = False


@dataclass(slots=True)
class CallItem(Item):
    """What the agent wanted from outside, and what became of it."""

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
            asked + result + sum(_characters(dict(it.raw)) + _characters(dict(it.canonical)) for it in (self.subject, *self.subject.steps))
        )


AnyItem = MessageItem | SpeechItem | NoteItem | CallItem

_OWN_PLACE = CallEvent | ApprovalEvent | GrantGiven
"""What is told at the call that it is about."""
_NOBODY = SYSTEM.model_copy(update={"name": "nobody at all"})


_ONE_TEXT = frozenset({FOLLOW_INSTRUCTIONS, TRUST_SKILL})
"""What a yes to one text is about, which is given once at a time."""


def scopes_for(subject: Subject) -> tuple[GrantScope, ...]:
    """Return how far a yes may reach; the decision itself sees to it once more."""
    if subject.steps or any(it.role is Role.RAISE_BUDGET or it.value in _ONE_TEXT for it in subject.resources):
        return (GrantScope.ONCE,)
    if any(it.role is Role.USE_CREDENTIAL for it in subject.resources):
        return (GrantScope.ONCE, GrantScope.SESSION)
    return tuple(GrantScope)


@dataclass(slots=True)
class PageConversation:
    """The page so far, from some entry of the log on. Feeding it the same events always makes the same items under the same names.

    Where older ones are shed, those that an event may still change stay.
    """

    begin: int = 0
    """The entry behind which it begins; what came before is not on the page."""
    items: dict[str, AnyItem] = field(default_factory=dict[str, AnyItem])
    seq: int = field(init=False)
    left_out: int = 0
    """How many items were shed."""
    tale: SessionActivity = field(default_factory=SessionActivity)
    # Where the message before ended, so that a name does not depend on where the page begins.
    _spoken: int = field(init=False)
    _calls: dict[CallId, str] = field(default_factory=dict[CallId, str])
    _asks: dict[ApprovalId, str] = field(default_factory=dict[ApprovalId, str])
    _gone: int = 0
    _look_at: int = 0

    def __post_init__(self) -> None:
        self.seq = self._spoken = self.begin

    @property
    def saying(self) -> str:
        """Return the name of the message that the agent says now, or will say next."""
        return f"spoke-{self._spoken}"

    def changed_after(self, seq: int) -> list[AnyItem] | None:
        """Return what somebody has not seen who has seen the log up to there, in the order of the page; None where some of it is gone."""
        return None if seq < self._gone else [item for item in self.items.values() if item.changed > seq]

    def shed(self, most: int, heaviest: int) -> None:
        """Let go of older items, so that about so many stay, with so many characters, besides those that may still change."""
        if len(self.items) < self._look_at:
            return
        kept: list[AnyItem] = []
        count = weight = 0
        for item in reversed(self.items.values()):
            if not item.is_open:
                count, weight = count + 1, weight + item.weight
            if item.is_open or (count <= most and weight <= heaviest):
                kept.append(item)
            else:
                self._gone = max(self._gone, item.changed)
        self.left_out += len(self.items) - len(kept)
        self.items = {item.key: item for item in reversed(kept)}
        self._calls = {call: key for call, key in self._calls.items() if key in self.items}
        self._asks = {approval: key for approval, key in self._asks.items() if key in self.items}
        self._look_at = len(kept) + _LONGEST_STEP

    def take(self, recorded: Recorded) -> AnyItem | None:
        """Go on by one event, and return the item that it made or changed."""
        event, self.seq = recorded.event, recorded.seq
        item = self._take(event)
        if item is None and not isinstance(event, _OWN_PLACE):
            item = self._noted(event)
        self.tale.take(event)
        if item is not None:
            item.changed = self.seq
        return item

    def _put(self, item: AnyItem) -> AnyItem:
        self.items[item.key] = item
        return item

    def _take(self, event: AnyEvent) -> AnyItem | None:
        if isinstance(event, MessageEvent | TurnEvent | SpeechEvent | ModelEvent):
            return self._take_words(event)
        return self._take_call(event) if isinstance(event, CallEvent | ApprovalEvent) else None

    def _take_words(self, event: MessageEvent | TurnEvent | SpeechEvent | ModelEvent) -> AnyItem | None:
        match event:
            case MessageAccepted():
                # What is put beside the conversation goes to the agent with its next request, and no turn takes it.
                standing = "queued" if event.role == "human" else "taken"
                return self._put(MessageItem(f"said-{event.message}", event.at, 0, str(event.by), event.text, standing))
            case MessageWithdrawn():
                said = self.items.get(f"said-{event.message}")
                if isinstance(said, MessageItem):
                    said.standing = "withdrawn"
                return said
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
                return self._broken_off("cut off")
            case TurnEnded() if self.saying in self.items and event.status is not TurnStatus.WAITING:
                return self._broken_off(event.status.value)
            case TurnEnded() | TurnResumed() | InterruptAsked() | ModelRequested() | ModelResponded() | ModelFailed():
                return None
            case _:
                assert_never(event)

    def _spoke(self, at: Millis) -> SpeechItem:
        found = self.items.get(self.saying)
        if isinstance(found, SpeechItem):
            return found
        made = SpeechItem(self.saying, at, 0, "")
        self._put(made)
        return made

    def _broken_off(self, end: str) -> AnyItem:
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
                new = tuple(source for source in event.labels if source.label not in self.tale.labels)
                return self._call_at(event.call, "running", verdict=event.verdict, answered_by=event.answered_by, labels=new)
            case CallFinished():
                return self._call_at(event.call, "done" if event.ok else "failed", result=event.shown or event.result)
            case CallDenied():
                return self._call_at(event.call, "denied", verdict=event.verdict)
            case CallLost():
                return self._call_at(event.call, "lost", end="it is unknown whether this ran")
            case CallDropped():
                return self._call_at(event.call, "dropped", end=event.why)
            case ApprovalJoined():
                return self._call_at(event.call, "asked", end=f"shares ask {event.approval}")
            case ApprovalAsked():
                return self._asked(event)
            case ApprovalAnswered():
                how_far = "once" if event.scope is GrantScope.ONCE else f"for the {event.scope}"
                why = f" ({event.reason})" if event.reason else ""
                words = f"approved {how_far} by {event.by}{why}" if event.granted else f"denied by {event.by}{why}"
                return self._settled(event.approval, words, granted=event.granted)
            case ApprovalExpired():
                return self._settled(event.approval, "nobody answered in time; it is denied")
            case ApprovalWithdrawn():
                return self._settled(event.approval, f"no longer asked: {event.why}")
            case _:
                assert_never(event)

    def _call_at(self, call: CallId, standing: Standing, **told: object) -> AnyItem | None:
        item = self.items.get(self._calls.get(call, ""))
        if not isinstance(item, CallItem):
            return None
        item.standing = standing
        for name, value in told.items():
            setattr(item, name, value)
        return item

    def _asked(self, event: ApprovalAsked) -> AnyItem | None:
        item = self._call_at(event.call, "asked")
        if isinstance(item, CallItem):
            item.ask = Ask(pending_ask(OpenApproval(event, (event.call,)), item.subject))
            self._asks[event.approval] = item.key
        return item

    def _settled(self, approval: ApprovalId, words: str, *, granted: bool = False) -> AnyItem | None:
        item = self.items.get(self._asks.get(approval, ""))
        if isinstance(item, CallItem) and item.ask is not None and item.ask.pending.approval == approval:
            item.ask.settled, item.ask.granted = words, granted
            return item
        return None

    def _noted(self, event: AnyEvent) -> AnyItem | None:
        key = f"note-{self.seq}"
        if isinstance(event, HistoryInherited):
            words = "goes on from what was said in" if event.how == "fork" else "a fresh start in the workspace of"
            return self._put(NoteItem(key, event.at, 0, "dim", words, event.parent))
        told = describe_event(event, self.tale, ON_PAGES) or describe_change(event, _NOBODY)
        return None if told is None or not told.text else self._put(NoteItem(key, event.at, 0, told.tone, told.text))


def _characters(value: JsonValue) -> int:
    """Return about how many characters a value has."""
    match value:
        case str():
            return len(value)
        case dict():
            return sum(len(name) + _characters(each) for name, each in value.items())
        case list():
            return sum(map(_characters, value))
        case _:
            return 1
