"""The built-in agent's view of a session's log: the conversation its model saw, what is new since, and how far a turn got."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from pydantic import JsonValue

from curtainwall.agents.builtin.held_items import HeldItems
from curtainwall.agents.builtin.language_model import ITEMS, AgentMessage, ConversationItem, Program, ProgramOutcome, UserMessage
from curtainwall.agents.builtin.prompt import instructions_digest
from curtainwall.model import (
    FOLLOW_INSTRUCTIONS,
    GIT_CLONE,
    HERE,
    AgentSpoke,
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalId,
    ApprovalJoined,
    ApprovalWithdrawn,
    Broken,
    BudgetEvent,
    BudgetExhausted,
    BudgetKind,
    BudgetRaised,
    BudgetWarned,
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallId,
    CallLost,
    CallPermitted,
    CallRequested,
    CompactionAsked,
    CompactionSet,
    CompactionSkipped,
    ContextEvent,
    ContextMeasured,
    Digest,
    Group,
    HistoryCompacted,
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
    ModelEvent,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    Payload,
    ProgramEvent,
    ProgramFinished,
    ProgramSaved,
    RouteAdded,
    RouteRemoved,
    RuleDisabled,
    RuleEnabled,
    SavedProgram,
    SessionClosed,
    SessionOpened,
    SessionReady,
    SessionRenamed,
    SessionReopened,
    SettingEvent,
    SpeechEvent,
    SpendingCounted,
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

Load = Callable[[Payload], JsonValue]
"""Returns the value of a payload."""

ReplyEvent = SpeechEvent | ModelEvent | ProgramEvent
GateEvent = CallEvent | ApprovalEvent
QueueEvent = MessageEvent | TurnEvent
TermsEvent = LifeEvent | SettingEvent | ContextEvent | BudgetEvent

_REPLIES, _CALLS = Group[ReplyEvent](ReplyEvent), Group[GateEvent](GateEvent)
_TURNS, _TERMS = Group[QueueEvent](QueueEvent), Group[TermsEvent](TermsEvent)

CallEnd = CallFinished | CallDenied | CallLost | CallDropped

_CUT_OFF = "[cut off here]"
_STOPPED = "The program was stopped before its end: the turn was interrupted."


@dataclass(slots=True)
class MadeCall:
    """One call of the current turn and its outcome. Of the request, which may be megabytes, it keeps only the tool."""

    tool: str
    end: CallEnd | None = None
    approval: ApprovalId | None = None
    joined: bool = False
    """Another call asked first, and this one shares its outcome."""


@dataclass(slots=True)
class ConversationHistory:
    """One session as its model sees it, built event by event from the log alone.

    `items` is what the model was sent and what it replied. `new` is what it has not been sent yet.
    """

    load: Load
    system: str = ""
    held: HeldItems = field(default_factory=HeldItems)
    new: list[ConversationItem] = field(default_factory=list[ConversationItem])
    replies: int = 0
    request: str | None = None
    used: int | None = None
    """Tokens in the context after the last reply, as reported or estimated."""
    programs: list[Program] = field(default_factory=list[Program])
    """Programs of the last reply that have not ended, in order."""
    calls: dict[CallId, MadeCall] = field(default_factory=dict[CallId, MadeCall])
    pinned: dict[str, tuple[Digest, str]] = field(default_factory=dict[str, tuple[Digest, str]])
    following: dict[tuple[str, Digest], CallId] = field(default_factory=dict[tuple[str, Digest], CallId])
    """Calls that ask whether new or changed instructions count, by file and digest."""
    refused: set[CallId] = field(default_factory=set[CallId])
    """The refused ones among them."""
    has_acted: bool = False
    """Whether an agent may have changed the workspace: it has replied or made calls, here or in the parent session."""
    last_words: str = ""
    model: str = ""
    mode: Mode = Mode.DEFAULT
    workspace: Workspace | None = None
    threshold: float | None = None
    threshold_set: bool = False
    exhausted: set[BudgetKind] = field(default_factory=set[BudgetKind])
    """Budgets that are used up, by this agent or by sessions that it pays for."""
    _aside: set[str] = field(default_factory=set[str])
    """Open requests that are not part of the conversation."""
    _queued: dict[MessageId, str] = field(default_factory=dict[MessageId, str])
    _partial: str = ""
    _work: OpenWork = field(default_factory=OpenWork)

    @property
    def items(self) -> Sequence[ConversationItem]:
        """The messages to and from the model, unpacked if necessary."""
        return self.held.items

    @property
    def turn(self) -> TurnId | None:
        """The turn that runs or waits."""
        return self._work.turn

    @property
    def saved(self) -> SavedProgram | None:
        """The saved state of a program of the last reply that waits inside a call."""
        saved = self._work.program
        return saved if saved is not None and any(program.id == saved.program for program in self.programs) else None

    def take(self, event: AnyEvent) -> None:
        """Take in the next event."""
        take(self._work, event)
        if _REPLIES.holds(event):
            self._take_reply(event)
        elif _CALLS.holds(event):
            self._take_call(event)
        elif _TURNS.holds(event):
            self._take_turn(event)
        elif _TERMS.holds(event):
            self._take_terms(event)

    def _take_reply(self, event: ReplyEvent) -> None:
        match event:
            case TextStreamed():
                self._partial += event.text
            case AgentSpoke():
                self.last_words, self._partial = event.text, ""
            case ModelRequested() if event.purpose == "summary":
                self._aside.add(event.request)
            case ModelResponded() | ModelFailed() if event.request in self._aside:
                self._aside.discard(event.request)
            case ModelRequested():
                self._sent(event)
            case ModelResponded():
                self.has_acted = True
                message = AgentMessage.model_validate(self.load(event.normalised))
                self.held.add((message,))
                self.replies += 1
                self.programs = list(message.programs)
                self.used = event.usage.input_tokens + event.usage.output_tokens
                self._partial = ""
            case ModelFailed() | ProgramSaved():
                pass
            case ProgramFinished():
                self._finish(event.program, str(self.load(event.shown)))
                # A finished program needs its calls no more; their outcomes would pile up in memory.
                self.calls = {call: made for call, made in self.calls.items() if made.end is None}
            case _:
                assert_never(event)

    def _take_call(self, event: GateEvent) -> None:
        match event:
            case CallRequested() if event.subject.tool == FOLLOW_INSTRUCTIONS:
                path, content = event.subject.raw.get("path"), event.subject.raw.get("content")
                self.following[str(path), instructions_digest(str(content))] = event.call
            case CallDenied() | CallDropped() if event.call in self.following.values():
                self.refused.add(event.call)
            case CallFinished() | CallLost() if event.call in self.following.values():
                # This question is settled. If the same text comes back after another one, that is a new question.
                self.following = {asked: call for asked, call in self.following.items() if call != event.call}
            case CallRequested():
                self.has_acted = self.has_acted or not _is_first_clone(event)
                if event.turn is not None and event.turn == self.turn:
                    self.calls[event.call] = MadeCall(event.subject.tool)
            case ApprovalAsked() | ApprovalJoined():
                if event.call in self.calls:
                    made = self.calls[event.call]
                    made.approval, made.joined = event.approval, isinstance(event, ApprovalJoined)
            case CallFinished() | CallDenied() | CallLost() | CallDropped():
                if event.call in self.calls:
                    self.calls[event.call].end = event
            case CallPermitted() | ApprovalAnswered() | ApprovalExpired() | ApprovalWithdrawn():
                pass
            case _:
                assert_never(event)

    def _take_terms(self, event: TermsEvent) -> None:
        match event:
            case HistoryCompacted():
                content = self.load(event.summary)
                self.held.clear()
                self.held.add(ITEMS.validate_python(content["items"] if isinstance(content, dict) else ()))
                self.request, self.used = None, event.after
                if isinstance(content, dict) and "new" in content:
                    # The summary also covers results that the model had not been sent yet.
                    self.new = list(ITEMS.validate_python(content["new"]))
            case HistoryInherited():
                self.has_acted = True
                self._inherit(event)
            case SessionOpened():
                self.model, self.workspace, self.mode = event.model, event.workspace, event.mode
            case ModeChanged():
                self.mode = event.mode
            case ModelChanged():
                self.model = event.model
            case CompactionSet():
                self.threshold, self.threshold_set = event.threshold, True
            case BudgetExhausted():
                self.exhausted.add(event.kind)
            case BudgetRaised():
                self.exhausted.discard(event.kind)
            case InstructionsPinned():
                self.pinned[event.path] = (event.digest, str(self.load(event.text)))
            case SessionReady() | SessionRenamed() | SessionClosed() | SessionReopened():
                pass
            case RuleDisabled() | RuleEnabled() | LabelsAdded() | RouteAdded() | RouteRemoved():
                pass
            case ContextMeasured() | CompactionAsked() | CompactionSkipped() | BudgetWarned() | SpendingCounted() | WorkTimed():
                pass
            case _:
                assert_never(event)

    def _take_turn(self, event: QueueEvent) -> None:
        match event:
            case MessageAccepted():
                if event.role == "human":
                    self._queued[event.message] = event.text
                else:
                    self.new.append(UserMessage(text=event.text, is_context=True))
            case MessageWithdrawn():
                self._queued.pop(event.message, None)
            case TurnStarted():
                self.calls = {}
                self.new += (UserMessage(text=self._queued.pop(message)) for message in event.messages if message in self._queued)
            case TurnEnded():
                if event.status is not TurnStatus.WAITING:
                    self._close_turn()
            case TurnResumed() | InterruptAsked():
                pass
            case _:
                assert_never(event)

    def _close_turn(self) -> None:
        """Close what the turn left open, so that each program has a result in the model's next view."""
        if self._partial:
            # The model must see the part of an incomplete reply that people saw.
            self.new.insert(0, AgentMessage(text=f"{self._partial}{_CUT_OFF}"))
            self._partial = ""
        for program in tuple(self.programs):
            self._finish(program.id, _STOPPED)
        self.calls = {}

    def _finish(self, program: str, shown: str) -> None:
        self.programs = [each for each in self.programs if each.id != program]
        results = sum(isinstance(item, ProgramOutcome) for item in self.new)
        self.new.insert(results, ProgramOutcome(id=program, text=shown))

    def _sent(self, event: ModelRequested) -> None:
        content = self.load(event.added)
        if not isinstance(content, dict):
            raise Broken(f"request `{event.request}` has an unknown form")
        added = ITEMS.validate_python(content.get("items", ()))
        if event.base is None:
            self.held.clear()
        self.held.add(added)
        if isinstance(system := content.get("system"), str):
            self.system = system
        self.new, self.request = [], event.request

    def _inherit(self, event: HistoryInherited) -> None:
        """Continue from what the parent's model had seen; what was running there is over here."""
        if event.history is None:
            return
        for inherited in _events_in(self.load(Payload(blob=event.history))):
            self.take(inherited)
        self._close_turn()
        self._work = OpenWork()
        self._queued.clear()
        # Questions that are still open there are not answered here.
        self.following = {asked: call for asked, call in self.following.items() if call in self.refused}
        self.exhausted.clear()


def _is_first_clone(event: CallRequested) -> bool:
    """Tell whether this clones the repository that the user named for the session, before its first turn."""
    return event.turn is None and event.subject.tool == GIT_CLONE and event.subject.raw.get("path") == HERE


def _events_in(history: JsonValue) -> list[AnyEvent]:
    if not isinstance(history, list):
        raise Broken("an inherited history has an unknown form")
    events: list[AnyEvent] = []
    for entry in history:
        match entry:
            case {"type": str(kind), "event": event}:
                events.append(decode_event(kind, json.dumps(event).encode()))
            case _:
                raise Broken("an inherited history has an unknown form")
    return events
