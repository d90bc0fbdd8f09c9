"""The audits of all sessions as one timeline, newest first, read page by page however long it is."""

import heapq
import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from pydantic import JsonValue

from curtainwall.channels.web.ports import WebPorts
from curtainwall.model import Millis, SessionId, SessionQuery, SessionRow, record

KINDS: Mapping[str, tuple[str, ...]] = {
    "verdicts": ("CallRequested", "CallPermitted", "CallDenied"),
    "asks": ("ApprovalAsked", "ApprovalJoined", "ApprovalAnswered", "ApprovalExpired", "ApprovalWithdrawn"),
    "outcomes": ("CallFinished", "CallLost", "CallDropped"),
    "grants": ("GrantGiven", "GrantUsed", "GrantRevoked"),
    "rules and modes": ("RuleDisabled", "RuleEnabled", "ModeChanged", "LabelsAdded"),
    "refused requests": ("RequestsRefused",),
    "agents' own accounts": ("ToolUsesReported",),
}
_EVERY_SESSION = 1_000_000
_SHOWN = 200
_LOOKED_AT = 20_000
_CURSOR = re.compile(r"([0-9T:.Z-]{10,40})~([0-9A-Za-z]{1,40})~([0-9]{1,15})")

Line = Mapping[str, JsonValue]


class Cursor(NamedTuple):
    """A position in the timeline; smaller is older."""

    at: str
    session: str
    seq: int

    def __str__(self) -> str:
        return "~".join(map(str, self))


LATEST = Cursor("9999", "", 0)


def read_cursor(text: str) -> Cursor:
    """Return the position that an address names; the newest end for anything else."""
    match = _CURSOR.fullmatch(text) if text.isascii() else None
    return LATEST if match is None else Cursor(match[1], match[2], int(match[3]))


@record
class TimelineQuery:
    """The lines to show: of one session, of a kind, containing a text, since a time."""

    since: Millis
    session: str = ""
    kind: str = ""
    text: str = ""

    def fits(self, line: "AuditLine") -> bool:
        """Tell whether a line matches."""
        if self.kind and line.kind not in KINDS[self.kind]:
            return False
        return not self.text or self.text.casefold() in json.dumps([line.name, dict(line.line)], ensure_ascii=False).casefold()


@record
class AuditLine:
    """A line of a session's audit."""

    session: SessionId
    name: str
    line: Line
    place: Cursor

    @property
    def at(self) -> str:
        """When it happened."""
        return str(self.line.get("at", ""))

    @property
    def kind(self) -> str:
        """The type of the event."""
        return str(self.line.get("type", ""))


@record
class TimelinePage:
    """The matching lines, and the position after which to continue; None at the end."""

    lines: tuple[AuditLine, ...]
    older: Cursor | None


def timeline_page(ports: WebPorts, query: TimelineQuery, before: Cursor) -> TimelinePage:
    """Return one page; if few lines match, it ends before everything was read."""
    lines: list[AuditLine] = []
    for count, line in enumerate(newest_first(ports, query, before), start=1):
        if query.fits(line):
            lines.append(line)
        if len(lines) == _SHOWN or count == _LOOKED_AT:
            return TimelinePage(tuple(lines), line.place)
    return TimelinePage(tuple(lines), None)


def newest_first(ports: WebPorts, query: TimelineQuery, before: Cursor = LATEST) -> Iterator[AuditLine]:
    """Yield the lines of all sessions backwards, matching or not, until they are too old."""
    sessions_query = SessionQuery(prefix=query.session or None, since=query.since, limit=_EVERY_SESSION)
    rows = deque(sorted(ports.index.sessions(sessions_query), key=lambda row: row.changed, reverse=True))
    oldest, heads = _moment(query.since), list[_Head]()
    while rows or heads:
        # A session's audit is opened only when the timeline reaches its last change.
        while rows and (not heads or _moment(rows[0].changed) >= heads[0].line.place.at):
            _push_next(heads, _lines(ports, rows.popleft(), before))
        if not heads:
            continue
        head = heapq.heappop(heads)
        if head.line.place.at < oldest:
            continue
        yield head.line
        _push_next(heads, head.rest)


@record
class _Head:
    """The newest line of a session that was not taken yet."""

    line: AuditLine
    rest: Iterator[AuditLine]

    def __lt__(self, other: "_Head") -> bool:
        return self.line.place > other.line.place


def _push_next(heads: list[_Head], rest: Iterator[AuditLine]) -> None:
    line = next(rest, None)
    if line is not None:
        heapq.heappush(heads, _Head(line, rest))


def _lines(ports: WebPorts, row: SessionRow, before: Cursor) -> Iterator[AuditLine]:
    place = LATEST
    for line in ports.records.audit(row.session, before.at):
        at, seq = line.get("at"), line.get("seq")
        # A line with a clock set back, or an unreadable one, is placed next to its neighbour.
        place = Cursor(min(place.at, at if isinstance(at, str) else place.at), row.session, seq if isinstance(seq, int) else place.seq)
        if place < before:
            yield AuditLine(row.session, row.name, line, place)


def _moment(at: Millis) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
