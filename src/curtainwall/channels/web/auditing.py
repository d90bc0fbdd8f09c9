"""The audit: verdicts, approvals and outcomes over all sessions, filtered, and as files to keep."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from curtainwall.channels.web.house import House
from curtainwall.channels.web.site import Site
from curtainwall.model import SessionId, SessionQuery

_DAYS = 7
_SESSIONS, _LINES = 60, 500
_SHOWN = 300
_LONGEST = 200
_CSV = ("at", "session", "name", "seq", "type", "tool", "call", "approval", "because", "by", "detail", "hash")
# Programs for tables take a cell that begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

KINDS: Mapping[str, tuple[str, ...]] = {
    "verdicts": ("CallRequested", "CallPermitted", "CallDenied"),
    "asks": ("ApprovalAsked", "ApprovalJoined", "ApprovalAnswered", "ApprovalExpired", "ApprovalWithdrawn"),
    "outcomes": ("CallFinished", "CallLost", "CallDropped"),
    "grants": ("GrantGiven", "GrantUsed", "GrantRevoked"),
    "rules and modes": ("RuleDisabled", "RuleEnabled", "ModeChanged", "LabelsAdded"),
}

Line = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which lines are wanted."""

    session: str = ""
    kind: str = ""
    text: str = ""
    days: int = _DAYS

    @property
    def query(self) -> str:
        """Return the same as part of an address."""
        return urlencode({"session": self.session, "kind": self.kind, "q": self.text, "days": self.days})


@dataclass(frozen=True, slots=True)
class Told:
    """A line of some session's audit."""

    session: SessionId
    name: str
    line: Line

    @property
    def at(self) -> str:
        """When it was."""
        return str(self.line.get("at", ""))

    @property
    def kind(self) -> str:
        """What kind of thing happened."""
        return str(self.line.get("type", ""))

    @property
    def tone(self) -> str:
        """How good or bad the news is, as a class of the style sheet."""
        if self.kind == "ApprovalAnswered":
            return "good" if self.line.get("granted") is True else "bad"
        return {"CallDenied": "bad", "ApprovalExpired": "bad", "ApprovalAsked": "open", "GrantGiven": "good"}.get(self.kind, "")

    @property
    def about(self) -> str:
        """What it says besides, in one line."""
        hidden = ("seq", "at", "type", "prev", "hash", "digest", "permit", "shown")
        told = {name: value for name, value in self.line.items() if name not in hidden and value not in ("", [], None)}
        return ", ".join(_yes_or_no(name, value) if isinstance(value, bool) else f"{name} {_short(value)}" for name, value in told.items())


def lines_of(house: House, wanted: Filter) -> list[Told]:
    """Return the lines that fit, newest first, of the sessions that changed last."""
    since = datetime.now(UTC) - timedelta(days=wanted.days)
    millis = int(since.timestamp() * 1000)
    query = SessionQuery(prefix=wanted.session or None, since=millis, limit=_SESSIONS)
    found: list[Told] = []
    for row in house.index.sessions(query):
        found += (Told(row.session, row.name, line) for line in house.records.audit(row.session, _LINES))
    begun = since.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    fitting = [it for it in found if it.at >= begun and _fits(it, wanted)]
    return sorted(fitting, key=lambda it: (it.at, it.session, str(it.line.get("seq", 0)).zfill(12)), reverse=True)


class Auditing:
    """The timeline and its exports."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Return the routes."""
        guarded = self._site.guarded
        return [
            Route("/audit", guarded(self._page), methods=["GET"]),
            Route("/audit.jsonl", guarded(self._jsonl), methods=["GET"]),
            Route("/audit.csv", guarded(self._csv), methods=["GET"]),
        ]

    async def _page(self, request: Request) -> Response:
        wanted = _filter(request)
        found = lines_of(self._site.house, wanted)
        bounds = {"sessions": _SESSIONS, "lines": _LINES}
        return self._site.page(
            request, "audit.html", lines=found[:_SHOWN], count=len(found), wanted=wanted, kinds=tuple(KINDS), bounds=bounds
        )

    async def _jsonl(self, request: Request) -> Response:
        found = lines_of(self._site.house, _filter(request))
        body = "".join(f"{json.dumps({'session': it.session, 'name': it.name, **it.line})}\n" for it in reversed(found))
        return _file(body, "application/x-ndjson", "audit.jsonl")

    async def _csv(self, request: Request) -> Response:
        out = io.StringIO()
        table = csv.writer(out)
        table.writerow(_CSV)
        table.writerows(_cells(it) for it in reversed(lines_of(self._site.house, _filter(request))))
        return _file(out.getvalue(), "text/csv", "audit.csv")


def _filter(request: Request) -> Filter:
    told = request.query_params
    days, session = told.get("days", ""), told.get("session", "")[:40]
    return Filter(
        session=session if session.isascii() and session.isalnum() else "",
        kind=told.get("kind", "") if told.get("kind", "") in KINDS else "",
        text=told.get("q", "")[:_LONGEST].strip(),
        days=min(max(int(days), 1), 3_650) if days.isascii() and days.isdecimal() and len(days) < 6 else _DAYS,
    )


def _fits(told: Told, wanted: Filter) -> bool:
    if wanted.kind and told.kind not in KINDS[wanted.kind]:
        return False
    return not wanted.text or wanted.text.casefold() in json.dumps([told.name, dict(told.line)], ensure_ascii=False).casefold()


def _cells(told: Told) -> Iterator[str]:
    line, used = told.line, {"seq", "at", "type", "tool", "call", "approval", "because", "by", "hash"}
    rest = {name: value for name, value in line.items() if name not in used}
    first: Sequence[JsonValue] = (line.get("at"), told.session, told.name, line.get("seq"), line.get("type"))
    rules = line.get("because")
    because = " ".join(map(str, rules)) if isinstance(rules, list) else ""
    second: Sequence[JsonValue] = (
        line.get("tool"),
        line.get("call"),
        line.get("approval"),
        because,
        line.get("by"),
        json.dumps(rest),
        line.get("hash"),
    )
    for value in (*first, *second):
        cell = "" if value is None else str(value)
        yield f"'{cell}" if cell.startswith(_FORMULA) else cell


def _yes_or_no(name: str, value: bool) -> str:
    return name if value else f"not {name}"


def _short(value: JsonValue) -> str:
    match value:
        case str():
            return value
        case {"role": str(role), "value": str(what)}:
            return f"{role} {what}"
        case list():
            return "; ".join(map(_short, value))
        case _:
            return json.dumps(value, ensure_ascii=False)


def _file(body: str, kind: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="curtainwall-{name}"'}
    return Response(body.encode("utf-8", "backslashreplace"), media_type=kind, headers=headers)
