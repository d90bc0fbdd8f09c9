"""A session's conversation as things on a page, each under a name of its own: made from the events alone, one event at a time."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from curtainwall.channels.tale import Tale
from curtainwall.channels.telling import ON_PAGES, Tone, tell, tell_change
from curtainwall.model import (
    SYSTEM,
    TRUST_SKILL,
    AgentSpoke,
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalExpired,
    ApprovalId,
    ApprovalJoined,
    ApprovalWithdrawn,
    CallDenied,
    CallDropped,
    CallFinished,
    CallId,
    CallLost,
    CallPermitted,
    CallRequested,
    GrantGiven,
    GrantScope,
    HistoryInherited,
    LabelSource,
    MessageAccepted,
    MessageWithdrawn,
    Millis,
    ModelFailed,
    Payload,
    PendingAsk,
    Recorded,
    Role,
    SessionId,
    Subject,
    TextStreamed,
    TurnEnded,
    TurnStarted,
    TurnStatus,
    Verdict,
)
from curtainwall.model.tools import FOLLOW_INSTRUCTIONS

Standing = Literal["requested", "asked", "running", "done", "failed", "denied", "lost", "dropped"]


@dataclass(slots=True)
class Item:
    """One thing on the page; `changed` is the entry of the log that last changed it."""

    key: str
    at: Millis
    changed: int


@dataclass(slots=True)
class Said(Item):
    """What a person or a system said to the agent."""

    kind: ClassVar[str] = "said"
    by: str
    text: str
    standing: Literal["queued", "taken", "withdrawn"] = "queued"


@dataclass(slots=True)
class Spoke(Item):
    """What the agent said, or is saying."""

    kind: ClassVar[str] = "spoke"
    text: str
    is_whole: bool = False
    end: str = ""


@dataclass(slots=True)
class Note(Item):
    """Something that happened, in a line; `session` is another one that it is about."""

    kind: ClassVar[str] = "note"
    tone: Tone
    text: str
    session: SessionId | None = None


@dataclass(slots=True)
class Ask:
    """The question about a call, open until `settled` says in words how it ended."""

    pending: PendingAsk
    settled: str = ""
    granted: bool = False


@dataclass(slots=True)
class Call(Item):
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


AnyItem = Said | Spoke | Note | Call

_OWN_PLACE = (
    CallFinished,
    CallPermitted,
    CallDenied,
    CallLost,
    CallDropped,
    ApprovalAnswered,
    ApprovalExpired,
    ApprovalWithdrawn,
    GrantGiven,
)
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
class Conversation:
    """The page so far. Feeding it the same events always makes the same items under the same names."""

    items: dict[str, AnyItem] = field(default_factory=dict[str, AnyItem])
    seq: int = 0
    tale: Tale = field(default_factory=Tale)
    _spoken: int = 0
    _calls: dict[CallId, str] = field(default_factory=dict[CallId, str])
    _asks: dict[ApprovalId, str] = field(default_factory=dict[ApprovalId, str])

    @property
    def saying(self) -> str:
        """Return the name of the message that the agent says now, or will say next."""
        return f"spoke-{self._spoken}"

    def changed_after(self, seq: int) -> list[AnyItem]:
        """Return what somebody has not seen who has seen the log up to there, in the order of the page."""
        return [item for item in self.items.values() if item.changed > seq]

    def take(self, recorded: Recorded) -> AnyItem | None:
        """Go on by one event, and return the item that it made or changed."""
        event, self.seq = recorded.event, recorded.seq
        item = self._take(event) or self._take_call(event)
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
        match event:
            case MessageAccepted():
                return self._put(Said(f"said-{event.message}", event.at, 0, str(event.by), event.text))
            case MessageWithdrawn():
                said = self.items.get(f"said-{event.message}")
                if isinstance(said, Said):
                    said.standing = "withdrawn"
                return said
            case TurnStarted():
                taken: AnyItem | None = None
                for message in event.messages:
                    taken = self.items.get(f"said-{message}")
                    if isinstance(taken, Said):
                        taken.standing, taken.changed = "taken", self.seq
                return taken
            case TextStreamed():
                spoke = self._spoke(event.at)
                spoke.text += event.text
                return spoke
            case AgentSpoke():
                spoke = self._spoke(event.at)
                spoke.text, spoke.is_whole = event.text, True
                self._spoken += 1
                return spoke
            case ModelFailed() if self.saying in self.items:
                return self._broken_off("cut off")
            case TurnEnded() if self.saying in self.items and event.status is not TurnStatus.WAITING:
                return self._broken_off(event.status.value)
            case _:
                return None

    def _spoke(self, at: Millis) -> Spoke:
        found = self.items.get(self.saying)
        if isinstance(found, Spoke):
            return found
        made = Spoke(self.saying, at, 0, "")
        self._put(made)
        return made

    def _broken_off(self, end: str) -> AnyItem:
        spoke = self._spoke(0)
        spoke.is_whole, spoke.end = True, end
        self._spoken += 1
        return spoke

    def _take_call(self, event: AnyEvent) -> AnyItem | None:
        match event:
            case CallRequested():
                key = f"call-{event.call}"
                self._calls[event.call] = key
                return self._put(Call(key, event.at, 0, event.call, event.subject))
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
                return None

    def _call_at(self, call: CallId, standing: Standing, **told: object) -> AnyItem | None:
        item = self.items.get(self._calls.get(call, ""))
        if not isinstance(item, Call):
            return None
        item.standing = standing
        for name, value in told.items():
            setattr(item, name, value)
        return item

    def _asked(self, event: ApprovalAsked) -> AnyItem | None:
        item = self._call_at(event.call, "asked")
        if isinstance(item, Call):
            because = tuple(dict.fromkeys(rule for cover in event.covers for rule in cover.rules))
            pending = PendingAsk(
                approval=event.approval,
                call=event.call,
                subject=item.subject,
                because=because,
                shown=event.shown,
                asked=event.at,
                deadline=event.deadline,
                shared_by=1,
            )
            item.ask = Ask(pending)
            self._asks[event.approval] = item.key
        return item

    def _settled(self, approval: ApprovalId, words: str, *, granted: bool = False) -> AnyItem | None:
        item = self.items.get(self._asks.get(approval, ""))
        if isinstance(item, Call) and item.ask is not None and item.ask.pending.approval == approval:
            item.ask.settled, item.ask.granted = words, granted
            return item
        return None

    def _noted(self, event: AnyEvent) -> AnyItem | None:
        key = f"note-{self.seq}"
        if isinstance(event, HistoryInherited):
            words = "goes on from what was said in" if event.how == "fork" else "a fresh start in the workspace of"
            return self._put(Note(key, event.at, 0, "dim", words, event.parent))
        told = tell(event, self.tale, ON_PAGES) or tell_change(event, _NOBODY)
        return None if told is None or not told.text else self._put(Note(key, event.at, 0, told.tone, told.text))
