"""Events as single lines for people: what happened and in which tone, or None for events that are not worth showing."""

import math
import re
from typing import Literal, assert_never

from curtainwall.channels.asks.cards import call_in_words
from curtainwall.channels.plain import plain_line, short
from curtainwall.facts import masks_in
from curtainwall.model import (
    PROGRAM_NOTES,
    SYSTEM,
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalJoined,
    ApprovalWithdrawn,
    BreakerEvent,
    BudgetEvent,
    BudgetExhausted,
    BudgetKind,
    BudgetRaised,
    BudgetWarned,
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallLost,
    CallPermitted,
    CallRequested,
    CompactionAsked,
    CompactionSet,
    CompactionSkipped,
    ConfinedEvent,
    ContextEvent,
    ContextMeasured,
    DenialsCounted,
    ExtensionNoted,
    GrantEvent,
    GrantGiven,
    GrantRevoked,
    GrantScope,
    GrantUsed,
    HeldFile,
    HistoryCompacted,
    HistoryInherited,
    InstructionsPinned,
    LabelsAdded,
    LifeEvent,
    LoopDetected,
    MessageAccepted,
    ModeChanged,
    ModelChanged,
    ProgramFinished,
    RefusedRequest,
    RequestsRefused,
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
    SpendingCounted,
    ToolUsesReported,
    TurnEnded,
    TurnStatus,
    Who,
    WorkTimed,
    held_files,
    record,
)
from curtainwall.operations.activity import SessionActivity

Tone = Literal["dim", "good", "warn", "bad"]

_NAMED = 5
_LONGEST_NOTE = 500
_ROOM = 200
_MOST_MASKS = 5
_BY_HUMAN = "denied-by-human"
_REFUSED = "PermissionError"
_RAISED = re.compile(r"[A-Z][A-Za-z]+(?:Error|Exception|Interrupt|Exit)\b|The program ")


@record
class EventLine:
    """One inert line, and its tone."""

    tone: Tone
    text: str


@record
class CommandHints:
    """The commands to suggest: slash words in a conversation, programs at a shell; an empty `budget` means that there is none for it."""

    why: str = "/why"
    budget: str = "/budget"
    revoke: str = "/revoke"


_SLASH = CommandHints()
ON_PAGES = CommandHints(budget="")
"""For pages, where slash words are not accepted."""


def doubled_limit(kind: BudgetKind, used: float, limit: float) -> str:
    """Return twice the amount of a budget, as a person types it to raise the limit."""
    amount = 2 * max(used, limit)
    return f"{max(amount, 0.01):.2f}" if kind is BudgetKind.DOLLARS else f"{math.ceil(amount)}"


def describe_event(event: AnyEvent, before: SessionActivity, typed: CommandHints = _SLASH) -> EventLine | None:
    """Return the line for an event, or None; `before` is the session's activity up to that event."""
    if isinstance(event, CallEvent):
        return _describe_call(event, before, typed)
    if isinstance(event, ApprovalEvent | GrantEvent):
        return _describe_ask(event, before, typed)
    if isinstance(event, TurnEnded):
        return _turn_ended(event)
    if isinstance(event, MessageAccepted):
        return _masked_words(event) if event.role == "human" else None
    if isinstance(event, ConfinedEvent):
        return _describe_refused(event) if isinstance(event, RequestsRefused) else EventLine("dim", _reported_words(event))
    if isinstance(event, LifeEvent | BudgetEvent | BreakerEvent | ContextEvent):
        return _describe_session(event, typed)
    if isinstance(event, ExtensionNoted) and event.extension == PROGRAM_NOTES:
        return EventLine("dim", short(f"· note: {event.data.get('text', '')}", _LONGEST_NOTE))
    if isinstance(event, ProgramFinished):
        return None if event.ok else _program_failed(event)
    return _describe_held(held_files(event, unreported=True)) if isinstance(event, ExtensionNoted) else None


def _program_failed(event: ProgramFinished) -> EventLine | None:
    """Describe a program that failed, which is also how a call of a tool that does not exist ends; a refusal has a line already."""
    shown = event.shown.inline
    lines = [line.strip() for line in shown.splitlines() if line.strip()] if isinstance(shown, str) else []
    reason = next((line for line in reversed(lines) if _RAISED.match(line)), lines[-1] if lines else "")
    if reason.startswith(_REFUSED):
        return None
    return EventLine("warn", short(plain_line(f"✗ a program of the agent failed{f': {reason}' if reason else ''}"), _ROOM))


def _describe_call(event: CallEvent, before: SessionActivity, typed: CommandHints) -> EventLine | None:
    match event:
        case CallFinished():
            subject = before.subject_of(event.call)
            words = call_in_words(subject) if subject else str(event.call)
            if subject is not None and subject.changes is not None:
                value = (event.shown or event.result).inline
                outcome = plain_line(str(value.get("outcome", "")) if isinstance(value, dict) else str(value))
                because = plain_line(str(subject.canonical.get("because", "")))
                outcome = f"{because}: {outcome}" if because else outcome
                return EventLine("dim", f"✓ {outcome}") if event.ok else EventLine("warn", f"✗ {outcome}")
            if event.ok and (code := _exit_code(event)):
                return EventLine("warn", f"✗ {words}: exit code {code}")
            return EventLine("dim", f"✓ {words}") if event.ok else EventLine("warn", f"✗ {words} failed")
        case CallPermitted():
            # Every call that touches such things carries the label; only the first one changes anything.
            new = [f"{source.label} ({source.origin})" for source in event.labels if source.label not in before.labels]
            return EventLine("dim", plain_line(f"from here on the session counts as {', '.join(new)}")) if new else None
        case CallDenied() if _BY_HUMAN in event.verdict.because:
            return None  # the answer was already shown, with who gave it
        case CallDenied():
            subject = before.subject_of(event.call)
            rules = ", ".join(event.verdict.because)
            words = f"✗ denied {call_in_words(subject) if subject else ''}: {event.verdict.reason} ({rules}); `{typed.why} {event.call}`"
            return EventLine("bad", plain_line(words))
        case CallLost():
            subject = before.subject_of(event.call)
            words = call_in_words(subject) if subject else str(event.call)
            return EventLine("warn", f"? it is unknown whether this ran: {words}")
        case CallDropped():
            return EventLine("dim", f"· let go of a call: {plain_line(event.why)}")
        case CallRequested():
            return None
        case _:
            assert_never(event)


def describe_change(event: AnyEvent, who: Who) -> EventLine | None:
    """Return the line for a change that another person made to the session."""
    if not isinstance(event, LifeEvent | SettingEvent | GrantEvent | BudgetEvent):
        return None
    match event:
        case SessionRenamed() | ModeChanged() | ModelChanged() | RuleDisabled() | RuleEnabled() | GrantRevoked() | BudgetRaised() if (
            event.by == who
        ):
            return None
        case SessionRenamed():
            return EventLine("dim", f"{event.by} named the session `{plain_line(event.name)}`")
        case ModeChanged():
            return EventLine("warn", f"{event.by} set the mode to `{event.mode}`")
        case ModelChanged():
            return EventLine("dim", f"{event.by} set the model to `{plain_line(event.model)}`")
        case RuleDisabled():
            return EventLine("warn", f"{event.by} disabled rule `{plain_line(event.rule)}` for this session")
        case RuleEnabled():
            return EventLine("dim", f"{event.by} enabled rule `{plain_line(event.rule)}` again")
        case GrantRevoked():
            return EventLine("dim", f"{event.by} took grant `{event.grant}` back")
        case BudgetRaised():
            return EventLine("dim", f"{event.by} raised the budget of {event.kind} to {event.limit:,.10g}")
        case SessionReopened():
            return EventLine("dim", f"{event.by} opened the session again")
        case SessionOpened() | SessionReady() | HistoryInherited() | SessionClosed() | LabelsAdded() | RouteAdded() | RouteRemoved():
            return None
        case GrantGiven() | GrantUsed() | BudgetWarned() | BudgetExhausted() | SpendingCounted() | WorkTimed():
            return None
        case _:
            assert_never(event)


def _masked_words(event: MessageAccepted) -> EventLine | None:
    """Tell the author of a message which parts of it the agent does not see."""
    masks = tuple(dict.fromkeys(masks_in(event.text)))
    if not masks:
        return None
    shown = ", ".join(f"`{mask}`" for mask in masks[:_MOST_MASKS])
    words = f"what looks like a secret in this message is masked, and the agent sees {shown} instead; all else reaches it as it was written"
    return EventLine("warn", words)


def _turn_ended(event: TurnEnded) -> EventLine | None:
    match event.status:
        case TurnStatus.FAILED:
            return EventLine("bad", f"the turn failed: {plain_line(event.failure)}")
        case TurnStatus.INTERRUPTED:
            return EventLine("warn", "interrupted; what was said so far is kept")
        case TurnStatus.DONE | TurnStatus.WAITING:
            return None


def _describe_ask(event: ApprovalEvent | GrantEvent, before: SessionActivity, typed: CommandHints) -> EventLine | None:
    match event:
        case ApprovalAnswered():
            ask = before.asks.get(event.approval)
            what = f"{event.approval} {ask.subject.tool if ask else ''}".strip()
            why = f" ({event.reason})" if event.reason else ""
            how_far = "once" if event.scope is GrantScope.ONCE else f"for the {event.scope}"
            verb = f"approved {how_far}" if event.granted else "denied"
            return EventLine("good" if event.granted else "bad", plain_line(f"{verb} by {event.by}: {what}{why}"))
        case ApprovalExpired():
            return EventLine("warn", f"nobody answered {event.approval} in time; it is denied")
        case ApprovalWithdrawn():
            return EventLine("dim", plain_line(f"ask {event.approval} no longer stands: {event.why}"))
        case GrantGiven() if event.grant.scope is not GrantScope.ONCE:
            return EventLine("dim", f"this stands as grant {event.grant.id}; `{typed.revoke} {event.grant.id}` takes it back")
        case ApprovalAsked() | ApprovalJoined() | GrantGiven() | GrantUsed() | GrantRevoked():
            return None
        case _:
            assert_never(event)


def _describe_session(event: LifeEvent | BudgetEvent | BreakerEvent | ContextEvent, typed: CommandHints) -> EventLine | None:
    match event:
        case BudgetWarned():
            return EventLine("warn", f"{event.used / event.limit:.0%} of the budget of {event.kind} is used" if event.limit else "")
        case BudgetExhausted():
            words = f"the budget of {event.kind} is used up ({event.used:,.10g} of {event.limit:,.10g})"
            more = f"`{typed.budget} {event.kind} {doubled_limit(event.kind, event.used, event.limit)}` allows more"
            return EventLine("warn", f"{words}; {more if typed.budget else 'raise it to go on'}")
        case LoopDetected():
            what = "the same call" if event.what == "repeat" else "asking"
            return EventLine("warn", f"the agent goes round in circles: {what}, {event.count} times")
        case DenialsCounted():
            return EventLine("warn", f"{event.count} more calls were denied")
        case HistoryCompacted():
            return EventLine("dim", f"older messages were summarised: {event.before:,} tokens became {event.after:,}; the log keeps them")
        case CompactionSkipped():
            return EventLine("warn", f"nothing was summarised: {plain_line(event.why)}")
        case SessionClosed():
            tone: Tone = "dim" if event.by == SYSTEM else "warn"
            return EventLine(tone, short(f"the session is closed: {event.reason}", 200))
        case SessionOpened() | SessionReady() | HistoryInherited() | SessionRenamed() | SessionReopened():
            return None
        case BudgetRaised() | SpendingCounted() | WorkTimed():
            return None
        case InstructionsPinned() | ContextMeasured() | CompactionAsked() | CompactionSet():
            return None
        case _:
            assert_never(event)


def _describe_refused(event: RequestsRefused) -> EventLine:
    """Describe what the network proxy refused; a foreign key is the most serious."""
    parts = [_refused_words(request) for request in event.requests[:_NAMED]]
    count = event.more + sum(request.count for request in event.requests[_NAMED:])
    others = ("more requests" if parts else "requests") if count != 1 else ("more request" if parts else "request")
    words = "; ".join((*parts, *([f"{count:,} {others}"] if count else [])))
    tone: Tone = "bad" if any(request.kind == "key" for request in event.requests) else "warn"
    return EventLine(tone, plain_line(f"✗ the network proxy refused {words}"))


def _refused_words(request: RefusedRequest) -> str:
    what = short(f"{request.method} {request.host}{request.path}".strip() or "a request", _ROOM)
    key = f" with key {request.key}" if request.key else ""
    times = f", {request.count:,} times" if request.count > 1 else ""
    return f"{what}{key}{times}: {short(request.reason, _ROOM)}"


def _reported_words(event: ToolUsesReported) -> str:
    """Describe what the agent says it did; nothing verifies it."""
    parts = [short(f"{use.tool} {use.arguments}", _ROOM) for use in event.uses[:_NAMED]]
    count = event.more + len(event.uses[_NAMED:])
    counted = [f"{count:,} {'more ' if parts else ''}{'time' if count == 1 else 'times'}"] if count else []
    return f"· the agent says it used its own tools: {'; '.join((*parts, *counted))}"


def _exit_code(event: CallFinished) -> int:
    """Return the exit code that a finished command reports: a command may run and still fail."""
    outcome = (event.shown or event.result).inline
    code = outcome.get("exit_code") if isinstance(outcome, dict) else None
    return code if type(code) is int else 0


def _describe_held(files: tuple[HeldFile, ...]) -> EventLine | None:
    """Describe the files that were set aside; the user may have written them."""
    if not files:
        return None
    names = [_in_place_of(file) for file in files[:_NAMED]]
    more = [f"{len(files) - _NAMED} more"] if len(files) > _NAMED else []
    words = f"set aside, because it came or changed while the agent worked, and runs by itself: {', '.join((*names, *more))}"
    hint = "if that was you, `curtainwall sessions held` says how to put it back"
    return EventLine("warn", plain_line(f"{words}; {hint}"))


def _in_place_of(file: HeldFile) -> str:
    if file.aside is None:
        return f"`{file.path}`, which could not be taken away: look at it"
    again = " (what was there before is back)" if file.is_replaced else ""
    return f"`{file.path}`, now `{file.aside.rpartition('/')[2]}`{again}"
