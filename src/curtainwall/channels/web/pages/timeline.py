"""The audits of all sessions as one timeline, newest first, gone through piece by piece however long it is."""

import heapq
import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from pydantic import JsonValue

from curtainwall.channels.web.ports import WebPorts
from curtainwall.model import Millis, SessionId, SessionQuery, SessionRow

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
    """A place in the timeline: what is smaller is older."""

    at: str
    session: str
    seq: int

    def __str__(self) -> str:
        return "~".join(map(str, self))


LATEST = Cursor("9999", "", 0)


def read_cursor(told: str) -> Cursor:
    """Return the place that an address names; anything else is the newest end."""
    found = _CURSOR.fullmatch(told) if told.isascii() else None
    return LATEST if found is None else Cursor(found[1], found[2], int(found[3]))


@dataclass(frozen=True, slots=True)
class TimelineQuery:
    """Which lines are wanted: of one session, of a kind, with a text in them, since a time."""

    since: Millis
    session: str = ""
    kind: str = ""
    text: str = ""

    def fits(self, told: "AuditLine") -> bool:
        """Tell whether a line is among them."""
        if self.kind and told.kind not in KINDS[self.kind]:
            return False
        return not self.text or self.text.casefold() in json.dumps([told.name, dict(told.line)], ensure_ascii=False).casefold()


@dataclass(frozen=True, slots=True)
class AuditLine:
    """A line of some session's audit."""

    session: SessionId
    name: str
    line: Line
    place: Cursor

    @property
    def at(self) -> str:
        """When it was."""
        return str(self.line.get("at", ""))

    @property
    def kind(self) -> str:
        """What kind of thing happened."""
        return str(self.line.get("type", ""))


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """Lines that fit, and the place behind which to go on, None at the end."""

    lines: tuple[AuditLine, ...]
    older: Cursor | None


def timeline_page(house: WebPorts, wanted: TimelineQuery, behind: Cursor) -> TimelinePage:
    """Return what a page shows; where little fits, it ends before everything was looked at."""
    found: list[AuditLine] = []
    for looked_at, told in enumerate(newest_first(house, wanted, behind), start=1):
        if wanted.fits(told):
            found.append(told)
        if len(found) == _SHOWN or looked_at == _LOOKED_AT:
            return TimelinePage(tuple(found), told.place)
    return TimelinePage(tuple(found), None)


def newest_first(house: WebPorts, wanted: TimelineQuery, behind: Cursor = LATEST) -> Iterator[AuditLine]:
    """Go back through the lines of all sessions, whether they fit or not, down to where they are too old."""
    query = SessionQuery(prefix=wanted.session or None, since=wanted.since, limit=_EVERY_SESSION)
    rows = deque(sorted(house.index.sessions(query), key=lambda row: row.changed, reverse=True))
    begun, heads = _moment(wanted.since), list[_Head]()
    while rows or heads:
        # A session is opened only once the timeline has come to its last change.
        while rows and (not heads or _moment(rows[0].changed) >= heads[0].told.place.at):
            _go_on(heads, _lines(house, rows.popleft(), behind))
        if not heads:
            continue
        head = heapq.heappop(heads)
        if head.told.place.at < begun:
            continue
        yield head.told
        _go_on(heads, head.rest)


@dataclass(frozen=True, slots=True)
class _Head:
    """The newest line of a session that was not taken yet."""

    told: AuditLine
    rest: Iterator[AuditLine]

    def __lt__(self, other: "_Head") -> bool:
        return self.told.place > other.told.place


def _go_on(heads: list[_Head], rest: Iterator[AuditLine]) -> None:
    told = next(rest, None)
    if told is not None:
        heapq.heappush(heads, _Head(told, rest))


def _lines(house: WebPorts, row: SessionRow, behind: Cursor) -> Iterator[AuditLine]:
    place = LATEST
    for line in house.records.audit(row.session, behind.at):
        at, seq = line.get("at"), line.get("seq")
        # A clock that was set back, or a line that nobody can read, stands where its neighbour stands.
        place = Cursor(min(place.at, at if isinstance(at, str) else place.at), row.session, seq if isinstance(seq, int) else place.seq)
        if place < behind:
            yield AuditLine(row.session, row.name, line, place)


def _moment(at: Millis) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
