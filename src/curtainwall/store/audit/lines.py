"""The chained lines of `audit.jsonl`: verdicts, approvals, outcomes and refused requests of a session, all derived from the log."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple, assert_never

from pydantic import JsonValue
from pydantic_core import to_json

from curtainwall.model import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalJoined,
    ApprovalWithdrawn,
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallLost,
    CallPermitted,
    CallRequested,
    ConfinedEvent,
    Cover,
    GrantEvent,
    GrantGiven,
    GrantRevoked,
    GrantUsed,
    Group,
    LabelsAdded,
    LabelSource,
    ModeChanged,
    ModelChanged,
    Payload,
    RequestsRefused,
    RouteAdded,
    RouteRemoved,
    RuleDisabled,
    RuleEnabled,
    SettingEvent,
    Subject,
    ToolUsesReported,
    canonical_json,
    record,
)

START = "0" * 64
"""The `prev` hash of the first line."""

# The result of decoding a character of which only the first bytes were written.
_HALF_READ = "\ufffd"
_MARK = ',"hash":"'
_TAIL = len(_MARK) + 64 + len('"}')

AuditedEvent = (
    CallRequested
    | CallDenied
    | ApprovalAsked
    | ApprovalJoined
    | ApprovalAnswered
    | ApprovalExpired
    | ApprovalWithdrawn
    | GrantGiven
    | GrantUsed
    | GrantRevoked
    | CallPermitted
    | CallFinished
    | CallLost
    | CallDropped
    | ModeChanged
    | RuleDisabled
    | RuleEnabled
    | LabelsAdded
    | RequestsRefused
    | ToolUsesReported
)
AUDITED = frozenset(kind.__name__ for kind in AuditedEvent.__args__)
"""The event types that become lines."""


class Line(NamedTuple):
    """One line of the file."""

    seq: int
    prev: str
    hash: str
    text: str


@record
class AuditFault:
    """The first wrong line: its number in the file, the log entry it should record, and what is wrong."""

    line: int
    seq: int
    what: Literal["edited", "removed", "reordered", "added", "cut off"]

    def __str__(self) -> str:
        return f"audit line {self.line} (entry {self.seq}): {self.what}"


def line_of(seq: int, event: AnyEvent, prev: str) -> Line | None:
    """Return the line that records an event, or None if the event is not audited."""
    fields = _fields(event)
    if fields is None:
        return None
    at = datetime.fromtimestamp(event.at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    content: dict[str, JsonValue] = {"seq": seq, "at": at, "type": type(event).__name__, **fields, "prev": prev}
    body = to_json(content)
    digest = hashlib.sha256(body).hexdigest()
    return Line(seq, prev, digest, f'{body[:-1].decode()}{_MARK}{digest}"}}')


def parse_line(text: str) -> Line | None:
    """Parse a line; return None unless its hash is right."""
    body = text[:-_TAIL] + "}"
    digest = hashlib.sha256(body.encode(errors="replace")).hexdigest()
    if text[-_TAIL:] != f'{_MARK}{digest}"}}':
        return None
    try:
        content = json.loads(body)
        return Line(int(content["seq"]), str(content["prev"]), digest, text)
    except (ValueError, TypeError, LookupError):
        return None


def verify_lines(lines: Sequence[str], expected: Iterable[Line], complete_upto: int, torn: str = "") -> AuditFault | None:
    """Return the first line that does not match the log. A file may lack what came after `complete_upto`.

    `torn` is the text after the last line break: part of the next line, which the next write repairs, or something foreign.
    """
    number = 0
    remaining = list(expected)
    for number, (text, line) in enumerate(zip(lines, remaining, strict=False), start=1):
        if text == line.text:
            continue
        parsed = parse_line(text)
        if parsed is None or parsed.seq == line.seq:
            return AuditFault(number, line.seq, "edited")
        if any(other == line.text or _seq_of(other) == line.seq for other in lines[number:]):
            return AuditFault(number, line.seq, "reordered")
        return AuditFault(number, line.seq, "removed" if parsed.seq > line.seq else "added")
    if len(lines) > len(remaining):
        return AuditFault(number + 1, _seq_of(lines[number]) or 0, "added")
    if torn and not (number < len(remaining) and remaining[number].text.startswith(torn.rstrip(_HALF_READ))):
        return AuditFault(number + 1, remaining[number].seq if number < len(remaining) else 0, "added")
    if number < len(remaining) and remaining[number].seq <= complete_upto:
        return AuditFault(number + 1, remaining[number].seq, "cut off")
    return None


def _seq_of(text: str) -> int | None:
    line = parse_line(text)
    return line.seq if line else None


def _subject(subject: Subject) -> dict[str, JsonValue]:
    resources: list[JsonValue] = [{"role": it.role.value, "value": it.value} for it in subject.resources]
    return {"tool": subject.tool, "resources": resources, "digest": subject.digest}


TermsEvent = GrantEvent | SettingEvent | ConfinedEvent

_CALLS, _APPROVALS, _TERMS = Group[CallEvent](CallEvent), Group[ApprovalEvent](ApprovalEvent), Group[TermsEvent](TermsEvent)


def _fields(event: AnyEvent) -> dict[str, JsonValue] | None:
    if _CALLS.holds(event):
        return _call(event)
    if _APPROVALS.holds(event):
        return _approval(event)
    return _terms(event) if _TERMS.holds(event) else None


def _call(event: CallEvent) -> dict[str, JsonValue]:
    content: dict[str, JsonValue]
    match event:
        case CallRequested():
            content = {"call": event.call, **_subject(event.subject)}
            return {**content, "steps": [_subject(step) for step in event.subject.steps]} if event.subject.steps else content
        case CallDenied():
            return {"call": event.call, "because": list(event.verdict.because), "reason": event.verdict.reason}
        case CallPermitted():
            content = {"call": event.call, "permit": event.permit, "digest": event.digest, "because": [*event.verdict.because]}
            content["answered_by"] = [*event.answered_by]
            return content | _only(event.only) | _labels(event.labels)
        case CallFinished():
            return {"call": event.call, "permit": event.permit, "ok": event.ok, "result": _measure(event.result)}
        case CallLost():
            return {"call": event.call}
        case CallDropped():
            return {"call": event.call, "why": event.why}
        case _:
            assert_never(event)


def _terms(event: TermsEvent) -> dict[str, JsonValue] | None:
    content: dict[str, JsonValue]
    match event:
        case GrantGiven():
            grant = event.grant
            content = {"grant": grant.id, "scope": grant.scope.value, "covers": _covers(grant.covers), "by": str(grant.by)}
            return content | ({"digest": grant.digest} if grant.digest else {})
        case GrantUsed():
            return {"grant": event.grant}
        case GrantRevoked():
            return {"grant": event.grant, "by": str(event.by)}
        case ModeChanged():
            return {"mode": event.mode.value, "by": str(event.by)}
        case RuleDisabled() | RuleEnabled():
            return {"rule": event.rule, "by": str(event.by)}
        case LabelsAdded():
            return _labels(event.labels)
        case RequestsRefused():
            return {"turn": event.turn, "refused": [request.model_dump(mode="json") for request in event.requests], "more": event.more}
        case ToolUsesReported():
            uses: list[JsonValue] = [{"tool": use.tool, "arguments": use.arguments} for use in event.uses]
            return {"turn": event.turn, "by_its_own_account": uses, "more": event.more}
        case ModelChanged() | RouteAdded() | RouteRemoved():
            return None
        case _:
            assert_never(event)


def _approval(event: ApprovalEvent) -> dict[str, JsonValue]:
    content: dict[str, JsonValue]
    match event:
        case ApprovalAsked():
            content = {"approval": event.approval, "call": event.call, "digest": event.digest}
            return content | {"covers": _covers(event.covers), "shown": event.shown, "deadline": event.deadline}
        case ApprovalJoined():
            return {"approval": event.approval, "call": event.call}
        case ApprovalAnswered():
            content = {"approval": event.approval, "granted": event.granted, "by": str(event.by)}
            content |= {"scope": event.scope.value, "reason": event.reason}
            return content | _only(event.only) | ({"discard": True} if event.discard else {})
        case ApprovalExpired():
            return {"approval": event.approval}
        case ApprovalWithdrawn():
            return {"approval": event.approval, "why": event.why}
        case _:
            assert_never(event)


def _covers(covers: tuple[Cover, ...]) -> JsonValue:
    return [{"role": cover.role.value, "value": cover.value, "rules": [*cover.rules]} for cover in covers]


def _only(paths: tuple[str, ...] | None) -> dict[str, JsonValue]:
    return {} if paths is None else {"only": [*paths]}


def _labels(labels: tuple[LabelSource, ...]) -> dict[str, JsonValue]:
    return {"labels": [label.model_dump(mode="json", exclude_defaults=True) for label in labels]} if labels else {}


def _measure(payload: Payload) -> JsonValue:
    """Return the size and digest of a result; its content stays in the log."""
    if payload.blob is not None:
        return {"size": payload.blob.size, "digest": payload.blob.digest}
    content = canonical_json(payload.inline)
    return {"size": len(content), "digest": hashlib.sha256(content).hexdigest()}
