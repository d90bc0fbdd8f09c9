"""An external agent's history, folded from a session's log: workspace, messages, open approvals, and conversation id."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never

from pydantic import JsonValue

from curtainwall.model import (
    APPLY_CHANGES,
    PROGRAM_INSTRUCTIONS,
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
    CallRequested,
    ExtensionNoted,
    Group,
    HistoryInherited,
    InstructionsPinned,
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
    SessionReopened,
    SettingEvent,
    SpeechEvent,
    SpendingCounted,
    Subject,
    TextStreamed,
    ToolUsesReported,
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

_LONGEST_REASON = 300


@dataclass(slots=True)
class LoggedAsks:
    """The open calls, and the refusals of calls that an interrupted turn was waiting for."""

    _work: OpenWork = field(default_factory=OpenWork)
    _parked: Mapping[CallId, Subject] = field(default_factory=dict[CallId, Subject])
    refusals: list[str] = field(default_factory=list[str])
    """Refusals since the turn was interrupted, worded for the agent."""

    def take(self, event: AnyEvent) -> None:
        """Take in the next event."""
        take(self._work, event)
        parked = self._parked.get(event.call) if isinstance(event, CallDenied) else None
        # What the agent changed in a view is presented by us, and a message says what was answered.
        if isinstance(event, CallDenied) and parked is not None and parked.tool != APPLY_CHANGES:
            self.refusals.append(f"`{parked.tool}` was refused: {event.verdict.reason[:_LONGEST_REASON]}")
        if isinstance(event, TurnEnded):
            # A waiting turn may be resumed, and then only its agent needs the outcome of these calls.
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

_LONGEST_TRANSCRIPT: Final = 20_000
_GO_ON: Final = (
    "Your last turn broke off before you were done. Go on with it. Where you waited for a person's answer, make the same call again: "
    "the answer was kept."
)
_MAY_GO_ON: Final = "Your last turn was stopped because a budget was used up. There is more of it now: go on where you were."
_ONCE_MORE: Final = "In case you do not have it, this is the message that it was about:"


@dataclass(slots=True)
class ExternalHistory:
    """A session up to an entry of its log. `extension` is the name under which the log keeps the agent's own notes."""

    extension: str
    load: Callable[[Payload], JsonValue]
    is_over: bool = False
    """This is the past of another session, where no message is waiting for delivery."""
    cursor: int = 0
    workspace: Workspace | None = None
    agent: str = ""
    model: str = ""
    mode: Mode = Mode.DEFAULT
    image: str = ""
    """The image that the session was given to build on."""
    instructions: str = ""
    """The instructions of the program that opened the session."""
    conversation: str = ""
    delivered: TurnId | None = None
    """The turn whose message was delivered last."""
    undelivered: list[str] = field(default_factory=list[str])
    """Messages not delivered to the agent yet."""
    unconfirmed: str = ""
    """What was delivered last, while the agent has neither said nor done anything since: it may not have stored it yet."""
    transcript: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The earlier messages, as pairs of speaker and text."""
    is_forked: bool = False
    """Whether a part of them is from another session, and so from another conversation."""
    asks: LoggedAsks = field(default_factory=LoggedAsks)
    exhausted: set[BudgetKind] = field(default_factory=set[BudgetKind])
    is_out_of_budget: bool = False
    """A budget ran out after the last delivery."""
    _queued: dict[MessageId, str] = field(default_factory=dict[MessageId, str])
    _pieces: str = ""

    def take(self, event: AnyEvent) -> None:
        """Take in the next event."""
        self.asks.take(event)
        if _WORDS.holds(event):
            self._take_words(event)
        elif _TERMS.holds(event):
            self._take_terms(event)
        elif isinstance(event, InstructionsPinned):
            if event.path == PROGRAM_INSTRUCTIONS:
                self.instructions = str(self.load(event.text))
        elif isinstance(event, CallRequested | ToolUsesReported):
            self.unconfirmed = ""
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
            case SessionReady() | SessionRenamed() | SessionClosed() | SessionReopened():
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
                self._add_undelivered(event.text)
            case TurnStarted():
                self._add_undelivered(*(self._queued.pop(message) for message in event.messages if message in self._queued))
            case TextStreamed():
                self._pieces += event.text
                self.unconfirmed = ""
            case AgentSpoke():
                self._pieces = ""
                self.unconfirmed = self.unconfirmed if event.ours else ""
                self.transcript.append(("Curtainwall" if event.ours else "You", event.text))
            case TurnEnded():
                if event.status is not TurnStatus.WAITING:
                    self.unconfirmed = ""
                if self._pieces:
                    self.transcript.append(("You", self._pieces))
                    self._pieces = ""
            case MessageWithdrawn() | TurnResumed() | InterruptAsked():
                pass
            case _:
                assert_never(event)

    def _add_undelivered(self, *texts: str) -> None:
        if self.is_over:
            self.transcript += (("User", text) for text in texts)
        else:
            self.undelivered += texts

    def note(self, data: Mapping[str, object]) -> None:
        """Apply a note about the agent: its image, the conversation's name, and the turn whose message was delivered."""
        conversation, delivered, image = data.get("conversation"), data.get("delivered"), data.get("image")
        if isinstance(image, str):
            self.image = image
        if isinstance(conversation, str):
            self.conversation = conversation
        if isinstance(delivered, str):
            self.delivered, self.is_out_of_budget = TurnId(delivered), False
            self.transcript += (("User", text) for text in self.undelivered)
            self.unconfirmed = "\n\n".join(self.undelivered) or self.unconfirmed
            self.undelivered = []

    def _inherit(self, history: JsonValue) -> None:
        """Inherit the messages of another session, but not the agent's conversation."""
        # The delivery notes stay in the other log. Every message that a turn there took up counts as delivered.
        parent = ExternalHistory("", self.load, is_over=True)
        for entry in history if isinstance(history, list) else ():
            match entry:
                case {"type": str(kind), "event": event}:
                    parent.take(decode_event(kind, json.dumps(event).encode()))
                case _:
                    raise Broken("an inherited history has an unknown form")
        self.transcript, self.instructions = parent.transcript, parent.instructions
        self.is_forked = bool(self.transcript)

    def message(self, *, repeats: bool = False) -> str:
        """Return the next message for the agent: what is not delivered yet, or a note to continue; then the refusals.

        The note can repeat a message that the agent may have lost: some name their conversation before they store what they were told.
        """
        note = _MAY_GO_ON if self.is_out_of_budget else _GO_ON
        text = "\n\n".join(self.undelivered) or (f"{note} {_ONCE_MORE} {self.unconfirmed}" if repeats and self.unconfirmed else note)
        refusals, self.asks.refusals = self.asks.refusals, []
        return "\n".join((text, *(f"{refusal}. Do not make this call again." for refusal in refusals)))

    def replay_message(self, message: str) -> str:
        """Return the message, preceded by the earlier conversation if the agent does not know that."""
        why = "This goes on from another conversation." if self.is_forked else "You have lost the conversation that this belongs to."
        return f"{why} This was said:\n\n{self.render_transcript()}\n\nNow:\n\n{message}"

    def last_words(self) -> str:
        """Return the agent's last reply."""
        return next((text for speaker, text in reversed(self.transcript) if speaker == "You"), "")

    def render_transcript(self) -> str:
        """Return the earlier conversation, or only its end if it is long."""
        transcript = "\n\n".join(f"{speaker}: {text}" for speaker, text in self.transcript)
        if len(transcript) > _LONGEST_TRANSCRIPT:
            transcript = f"…[the beginning is left out]…\n{transcript[-_LONGEST_TRANSCRIPT:]}"
        return transcript
