"""What a session's log says about an external agent: where it works, what was said, which asks are open, and its conversation id."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never

from pydantic import JsonValue

from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    Broken,
    BudgetEvent,
    BudgetExhausted,
    BudgetKind,
    BudgetRaised,
    BudgetWarned,
    CallDenied,
    CallId,
    ExtensionNoted,
    Group,
    HistoryInherited,
    InterruptAsked,
    LabelsAdded,
    LifeEvent,
    MessageAccepted,
    MessageEvent,
    MessageId,
    MessageWithdrawn,
    Mode,
    ModeChanged,
    ModelChanged,
    Payload,
    RouteAdded,
    RouteRemoved,
    RuleDisabled,
    RuleEnabled,
    SessionClosed,
    SessionOpened,
    SessionReady,
    SessionRenamed,
    SettingEvent,
    SpeechEvent,
    SpendingCounted,
    Subject,
    TextStreamed,
    TurnEnded,
    TurnEvent,
    TurnId,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    Workspace,
    WorkTimed,
    decode_event,
)
from curtainwall.session.open_work import OpenWork, take

_MOST_WORDS = 300


@dataclass(slots=True)
class LoggedAsks:
    """Calls that have not ended, and what became of those that a turn which broke off had waited for."""

    _work: OpenWork = field(default_factory=OpenWork)
    _parked: Mapping[CallId, Subject] = field(default_factory=dict[CallId, Subject])
    refusals: list[str] = field(default_factory=list[str])
    """What was refused since the turn broke off, in words for the agent."""

    def take(self, event: AnyEvent) -> None:
        """Take in the next event."""
        take(self._work, event)
        if isinstance(event, CallDenied) and event.call in self._parked:
            self.refusals.append(f"`{self._parked[event.call].tool}` was refused: {event.verdict.reason[:_MOST_WORDS]}")
        if isinstance(event, TurnEnded):
            # A turn that waits may be taken up; what its agent had asked for is then nobody's but the agent's.
            waits = event.status is TurnStatus.WAITING
            calls = self._work.calls_in(event.turn) if waits else ()
            self._parked = {call: self._work.calls[call].subject for call in calls}
            self.refusals = self.refusals if waits else []

    def open_in(self, turn: TurnId) -> tuple[CallId, ...]:
        """Return the calls of a turn that a human has not answered yet."""
        return tuple(filter(self._work.is_asked, self._work.calls_in(turn)))

    def granted_in(self, turn: TurnId) -> tuple[CallId, ...]:
        """Return the calls of a turn that were granted and have not run."""
        return tuple(filter(self._work.is_granted, self._work.calls_in(turn)))


WordsEvent = MessageEvent | TurnEvent | SpeechEvent
TermsEvent = LifeEvent | SettingEvent | BudgetEvent

_WORDS, _TERMS = Group[WordsEvent](WordsEvent), Group[TermsEvent](TermsEvent)

_LONGEST_TALE: Final = 20_000
_GO_ON: Final = (
    "Your last turn broke off before you were done. Go on with it. Where you waited for a person's answer, make the same call again: "
    "the answer was kept."
)
_MAY_GO_ON: Final = "Your last turn was stopped because a budget was used up. There is more of it now: go on where you were."


@dataclass(slots=True)
class ExternalHistory:
    """A session up to an entry of its log; `extension` is the name under which the log keeps what only the agent's keeper knows."""

    extension: str
    load: Callable[[Payload], JsonValue]
    is_over: bool = False
    """It is the past of another session; nothing waits there to be told."""
    cursor: int = 0
    workspace: Workspace | None = None
    agent: str = ""
    model: str = ""
    mode: Mode = Mode.DEFAULT
    conversation: str = ""
    delivered: TurnId | None = None
    """The turn whose message the agent got last."""
    wanted: list[str] = field(default_factory=list[str])
    """What the agent was not told yet."""
    said: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Everything that was told before, by whom and what."""
    is_forked: bool = False
    """Some of it was said in another session, to another conversation of the agent's."""
    asks: LoggedAsks = field(default_factory=LoggedAsks)
    exhausted: set[BudgetKind] = field(default_factory=set[BudgetKind])
    is_out_of_budget: bool = False
    """Since the agent was told something last, a budget ran out."""
    _queued: dict[MessageId, str] = field(default_factory=dict[MessageId, str])
    _pieces: str = ""

    def take(self, event: AnyEvent) -> None:
        """Take in the next event."""
        self.asks.take(event)
        if _WORDS.holds(event):
            self._take_words(event)
        elif _TERMS.holds(event):
            self._take_terms(event)
        elif isinstance(event, ExtensionNoted) and event.extension == self.extension:
            self.note(event.data)

    def _take_terms(self, event: TermsEvent) -> None:
        match event:
            case SessionOpened():
                self.workspace, self.agent, self.model, self.mode = event.workspace, event.agent, event.model, event.mode
            case ModelChanged():
                self.model = event.model
            case ModeChanged():
                self.mode = event.mode
            case BudgetExhausted():
                self.exhausted.add(event.kind)
                self.is_out_of_budget = True
            case BudgetRaised():
                self.exhausted.discard(event.kind)
            case HistoryInherited():
                if event.history is not None:
                    self._inherit(self.load(Payload(blob=event.history)))
            case SessionReady() | SessionRenamed() | SessionClosed():
                pass
            case RuleDisabled() | RuleEnabled() | LabelsAdded() | RouteAdded() | RouteRemoved():
                pass
            case BudgetWarned() | SpendingCounted() | WorkTimed():
                pass
            case _:
                assert_never(event)

    def _take_words(self, event: WordsEvent) -> None:
        match event:
            case MessageAccepted() if event.role == "human":
                self._queued[event.message] = event.text
            case MessageAccepted():
                self._want(event.text)
            case TurnStarted():
                self._want(*(self._queued.pop(message) for message in event.messages if message in self._queued))
            case TextStreamed():
                self._pieces += event.text
            case AgentSpoke():
                self._pieces = ""
                self.said.append(("You", event.text))
            case TurnEnded():
                if self._pieces:
                    self.said.append(("You", self._pieces))
                    self._pieces = ""
            case MessageWithdrawn() | TurnResumed() | InterruptAsked():
                pass
            case _:
                assert_never(event)

    def _want(self, *texts: str) -> None:
        if self.is_over:
            self.said += (("User", text) for text in texts)
        else:
            self.wanted += texts

    def note(self, data: Mapping[str, object]) -> None:
        """Take in what the agent's keeper wrote down: the conversation's name, and which turn's message was delivered."""
        conversation, delivered = data.get("conversation"), data.get("delivered")
        if isinstance(conversation, str):
            self.conversation = conversation
        if isinstance(delivered, str):
            self.delivered, self.is_out_of_budget = TurnId(delivered), False
            self.said += (("User", text) for text in self.wanted)
            self.wanted = []

    def _inherit(self, told: JsonValue) -> None:
        """Take over what was said in another session; the agent's own conversation stays there."""
        # The agent's notes on what it was told stay in the other log: there, whatever a turn took up was told.
        parent = ExternalHistory("", self.load, is_over=True)
        for each in told if isinstance(told, list) else ():
            match each:
                case {"type": str(kind), "event": event}:
                    parent.take(decode_event(kind, json.dumps(event).encode()))
                case _:
                    raise Broken("an inherited history has an unknown form")
        self.said = parent.said
        self.is_forked = bool(self.said)

    def message(self) -> str:
        """Return what the agent is told now: what it was not told yet, or that its turn goes on, and what was refused meanwhile."""
        told = "\n\n".join(self.wanted) or (_MAY_GO_ON if self.is_out_of_budget else _GO_ON)
        refusals, self.asks.refusals = self.asks.refusals, []
        return "\n".join((told, *(f"{refusal}. Do not make this call again." for refusal in refusals)))

    def retold_message(self, message: str) -> str:
        """Return what an agent is told that does not know what was said before."""
        why = "This goes on from another conversation." if self.is_forked else "You have lost the conversation that this belongs to."
        return f"{why} This was said:\n\n{self.tale()}\n\nNow:\n\n{message}"

    def last_words(self) -> str:
        """Return what the agent said last."""
        return next((text for who, text in reversed(self.said) if who == "You"), "")

    def tale(self) -> str:
        """Return what was said before, for an agent that has lost it; of a long one the end."""
        told = "\n\n".join(f"{who}: {text}" for who, text in self.said)
        if len(told) > _LONGEST_TALE:
            told = f"…[the beginning is left out]…\n{told[-_LONGEST_TALE:]}"
        return told
