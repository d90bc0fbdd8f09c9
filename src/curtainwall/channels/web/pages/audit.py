"""The audit: verdicts, approvals and outcomes of all sessions, filtered, page by page, and as files to keep."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, groupby
from urllib.parse import urlencode

from pydantic import JsonValue
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from curtainwall.channels.web.pages.site import Site
from curtainwall.channels.web.pages.timeline import (
    KINDS,
    LATEST,
    AuditLine,
    Cursor,
    TimelineQuery,
    newest_first,
    read_cursor,
    timeline_page,
)
from curtainwall.model import record

_DAYS = 7
_DAY = 86_400_000
_LONGEST = 200
_CSV = ("at", "session", "name", "seq", "type", "tool", "call", "approval", "because", "by", "detail", "hash")
# Spreadsheets treat a cell that begins like this as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
# What people look for comes first, and ids come last.
_ORDER = {"tool": 0, "resources": 1, "covers": 1, "granted": 2, "ok": 2, "reason": 3, "because": 4, "call": 9, "approval": 8, "grant": 8}
EVENT_WORDS = {
    "CallRequested": "wanted",
    "CallPermitted": "permitted",
    "CallDenied": "denied",
    "CallFinished": "finished",
    "CallLost": "outcome unknown",
    "CallDropped": "dropped",
    "ApprovalAsked": "asked",
    "ApprovalJoined": "joined an ask",
    "ApprovalAnswered": "answered",
    "ApprovalExpired": "expired",
    "ApprovalWithdrawn": "withdrawn",
    "GrantGiven": "grant given",
    "GrantUsed": "grant used",
    "GrantRevoked": "grant revoked",
    "RuleDisabled": "rule disabled",
    "RuleEnabled": "rule enabled",
    "ModeChanged": "mode changed",
    "LabelsAdded": "labels added",
    "RequestsRefused": "refused by the proxy",
    "ToolUsesReported": "reported by the agent",
}
"""The words for each audited event."""
_HIDDEN = ("seq", "at", "type", "prev", "hash", "digest", "permit", "shown")


@record
class AuditFilter:
    """The values of the filter form."""

    session: str = ""
    kind: str = ""
    text: str = ""
    days: int = _DAYS

    @property
    def query(self) -> str:
        """The filter as part of an address."""
        return urlencode({"session": self.session, "kind": self.kind, "q": self.text, "days": self.days})

    def wanted(self, now: int) -> TimelineQuery:
        """Return the query for the lines that match."""
        return TimelineQuery(now - self.days * _DAY, self.session, self.kind, self.text)


@record
class AuditItem:
    """A line as the page shows it; `tool` is the tool of its call, if the page knows it."""

    entry: AuditLine
    tool: str = ""

    @property
    def day(self) -> str:
        """The day, for its heading."""
        return _local(self.entry.at).strftime("%A, %d %B %Y")

    @property
    def date(self) -> str:
        """The day, as scripts read it."""
        return _local(self.entry.at).strftime("%Y-%m-%d")

    @property
    def clock(self) -> str:
        """The time of that day."""
        return _local(self.entry.at).strftime("%H:%M:%S")

    @property
    def tone(self) -> str:
        """How good or bad the news is, as a class of the style sheet."""
        kind, line = self.entry.kind, self.entry.line
        if kind == "ApprovalAnswered":
            return "good" if line.get("granted") is True else "bad"
        if kind == "CallFinished":
            return "" if line.get("ok") is True else "bad"
        return {
            "CallDenied": "bad",
            "ApprovalExpired": "bad",
            "CallLost": "bad",
            "RequestsRefused": "bad",
            "ApprovalAsked": "open",
            "GrantGiven": "good",
        }.get(kind, "")

    @property
    def words(self) -> str:
        """What happened."""
        return EVENT_WORDS.get(self.entry.kind, self.entry.kind)

    @property
    def about(self) -> Sequence[tuple[str, str]]:
        """The remaining fields, each with its name; a boolean is shown by its name alone."""
        fields = {name: value for name, value in self.entry.line.items() if name not in _HIDDEN and value not in ("", [], None)}
        if self.tool:
            fields = {"tool": self.tool, **fields}
        return [_fact(name.replace("_", " "), value) for name, value in sorted(fields.items(), key=lambda field: _ORDER.get(field[0], 5))]


class AuditPages:
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
        filter_, before = _filter(request), read_cursor(request.query_params.get("before", ""))
        # Reads files, perhaps many, which must not block others.
        piece = await run_in_threadpool(timeline_page, self._site.ports, filter_.wanted(self._now()), before)
        return self._site.page(
            request,
            "audit.html",
            days=_by_day(_shown(piece.lines)),
            wanted=filter_,
            kinds=tuple(KINDS),
            older=_address(filter_, piece.older),
            newest=_address(filter_, LATEST) if before != LATEST else "",
        )

    async def _jsonl(self, request: Request) -> Response:
        lines = (f"{json.dumps({'session': line.session, 'name': line.name, **line.line})}\n" for line in self._everything(request))
        return _file(lines, "application/x-ndjson", "audit.jsonl")

    async def _csv(self, request: Request) -> Response:
        rows = (_row(tuple(_cells(line))) for line in self._everything(request))
        return _file(chain((_row(_CSV),), rows), "text/csv", "audit.csv")

    def _everything(self, request: Request) -> Iterator[AuditLine]:
        query = _filter(request).wanted(self._now())
        return (line for line in newest_first(self._site.ports, query) if query.fits(line))

    def _now(self) -> int:
        return self._site.ports.line.clock.now()


def _filter(request: Request) -> AuditFilter:
    params = request.query_params
    days, session = params.get("days", ""), params.get("session", "")[:40]
    return AuditFilter(
        session=session if session.isascii() and session.isalnum() else "",
        kind=params.get("kind", "") if params.get("kind", "") in KINDS else "",
        text=params.get("q", "")[:_LONGEST].strip(),
        days=min(max(int(days), 1), 3_650) if days.isascii() and days.isdecimal() and len(days) < 6 else _DAYS,
    )


def _shown(lines: Sequence[AuditLine]) -> Iterator[AuditItem]:
    """Yield the lines; those that name a call only by its id also get the call's tool."""
    tools = {(line.session, line.line["call"]): str(line.line["tool"]) for line in lines if "call" in line.line and "tool" in line.line}
    return (AuditItem(line, tools.get((line.session, line.line.get("call")), "")) for line in lines)


def _by_day(lines: Iterator[AuditItem]) -> Sequence[tuple[str, Sequence[AuditItem]]]:
    return [(day, tuple(items)) for day, items in groupby(lines, lambda item: item.day)]


def _address(filter_: AuditFilter, before: Cursor | None) -> str:
    if before is None:
        return ""
    return f"/audit?{filter_.query}" if before == LATEST else f"/audit?{filter_.query}&{urlencode({'before': str(before)})}"


def _local(at: str) -> datetime:
    try:
        return datetime.fromisoformat(at).astimezone()
    except (ValueError, OverflowError):
        return datetime.fromtimestamp(0, UTC)


def _cells(entry: AuditLine) -> Iterator[str]:
    line, used = entry.line, {"seq", "at", "type", "tool", "call", "approval", "because", "by", "hash"}
    rest = {name: value for name, value in line.items() if name not in used}
    first: Sequence[JsonValue] = (line.get("at"), entry.session, entry.name, line.get("seq"), line.get("type"))
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


def _row(cells: Sequence[str]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(cells)
    return out.getvalue()


def _fact(name: str, value: JsonValue) -> tuple[str, str]:
    match name, value:
        case _, bool():
            return "", name if value else f"not {name}"
        case "tool", str():
            return "", value
        case "resources", list():
            # The tool's name already says that a tool is used.
            return "", "; ".join(
                _short(resource) for resource in value if not (isinstance(resource, dict) and resource.get("role") == "use-tool")
            )
        case "covers", _:
            return "", _short(value)
        case _:
            return name, _short(value)


def _short(value: JsonValue) -> str:
    match value:
        case str():
            return value
        case {"role": str(role), "value": str(what)}:
            return f"{role} {what}"
        case list():
            return "; ".join(map(_short, value))
        case {"size": int(size), "digest": str()}:
            return f"{size:,} bytes"
        case {"label": str(label)}:
            return label
        case {"method": str(method), "host": str(host), "path": str(path), "reason": str(reason), "key": str(key), "count": int(count)}:
            where = f"{method} {host}{path}{f' with key {key}' if key else ''}".strip()
            return f"{where}{f', {count:,} times' if count > 1 else ''}: {reason}"
        case {"tool": str(tool), "arguments": str(arguments)}:
            return f"{tool} {arguments}".strip()
        case _:
            return json.dumps(value, ensure_ascii=False)


def _file(lines: Iterator[str], kind: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="curtainwall-{name}"'}
    return StreamingResponse((line.encode("utf-8", "backslashreplace") for line in lines), media_type=kind, headers=headers)
