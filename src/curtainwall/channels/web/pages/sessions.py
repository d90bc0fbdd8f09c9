"""The pages of sessions: the inbox, the list, one session, a new one, and why a call was judged as it was."""

import asyncio
import sys
from collections.abc import Sequence
from typing import cast, get_args
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from curtainwall.channels.asks.board import Card
from curtainwall.channels.slash import why_lines
from curtainwall.channels.web.live.hubs import MOST_CARDS, more_of
from curtainwall.channels.web.live.session_hub import MOST_ITEMS, RAIL, window_at
from curtainwall.channels.web.pages.site import Site, form_of, is_piece
from curtainwall.model import (
    MCP,
    OUTSIDE,
    ApprovalId,
    ApprovalQuery,
    ContextUse,
    Mode,
    SessionId,
    SessionQuery,
    SessionRow,
    SessionStatus,
    SessionView,
    Workspace,
    session_stream,
)

_SHOWN_ITEMS = MOST_ITEMS
_MOST_ITEMS = 5_000
_SHOWN_ROWS = 100
_MOST_ROWS = 5_000
_SETTLED = 8
_MOST_PARKED = 20
_LOOKED_AT = 300
_LONGEST_SEARCH = 200
_MOST_DIGITS = 8
# Some parts of a page need the whole log. If the log has more entries than this, wait for them at most this many seconds.
_LONG = 10_000
_PATIENCE = 0.25


class SessionPages:
    """The inbox and the pages of sessions."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Return the routes."""
        guarded = self._site.guarded
        return [
            Route("/", guarded(self._inbox), methods=["GET"]),
            # Notifications lead to it under this address.
            Route("/inbox", guarded(self._inbox), methods=["GET"]),
            Route("/asks/{session}/{approval}", guarded(self._ask), methods=["GET"]),
            Route("/sessions", guarded(self._sessions), methods=["GET"]),
            Route("/sessions/new", guarded(self._new, operators=True), methods=["GET"]),
            Route("/sessions/{session}", guarded(self._session), methods=["GET"]),
            Route("/sessions/{session}/why", guarded(self._why), methods=["GET"]),
            Route("/grants", guarded(self._grants), methods=["GET"]),
        ]

    async def _inbox(self, request: Request) -> Response:
        ports = self._site.ports
        recent = [row for row in ports.index.approvals(ApprovalQuery(open_only=False, limit=_LOOKED_AT)) if row.status != "open"]
        recent.sort(key=lambda row: row.settled or 0, reverse=True)
        after, whole = request.query_params.get("after", ""), self._site.hubs.lists.cards()
        cards = self._cards_after(after) if after else whole
        waiting = ports.index.sessions(SessionQuery(status="waiting", without_agent=OUTSIDE, limit=_LOOKED_AT))
        parked = [row for row in waiting if not row.pending][:_MOST_PARKED]
        return await self._site.long_page(
            request,
            "inbox.html",
            cards=cards[:MOST_CARDS],
            more=more_of(cards, len(whole) if after else None),
            recent=recent[:_SETTLED],
            parked=parked,
            live="on=later" if after else "on=asks",
        )

    def _cards_after(self, after: str) -> Sequence[Card]:
        """Return the open asks after the last one of another page."""
        session, _, approval = after[: 2 * _LONGEST_SEARCH].partition("/")
        return self._site.ports.board.cards_after(approval, SessionId(session))

    async def _ask(self, request: Request) -> Response:
        approval = ApprovalId(str(request.path_params["approval"])[:_LONGEST_SEARCH])
        card = self._site.ports.board.find(approval, self._site.session_in(request))
        return await self._site.long_page(request, "ask.html", card=card, whole=True)

    async def _sessions(self, request: Request) -> Response:
        params = request.query_params
        status = params.get("status", "")
        text = params.get("q", "").strip()[:_LONGEST_SEARCH]
        with_callers = "callers" in params or params.get("channel") == MCP
        shown = _count(params.get("rows", ""), _SHOWN_ROWS, _MOST_ROWS)
        query = SessionQuery(
            status=cast("SessionStatus", status) if status in get_args(SessionStatus) else None,
            channel=params.get("channel") or None,
            text=text or None,
            without_agent=None if with_callers else OUTSIDE,
            by_activity=True,
            limit=shown + 1,
        )
        rows = self._site.ports.index.sessions(query)
        wider = {"q": text, "status": query.status or "", "channel": query.channel or "", "rows": min(shown * 4, _MOST_ROWS)}
        wider |= {"callers": "yes"} if with_callers else {}
        # Live rows would ignore the search.
        live = "on=rows" if query == SessionQuery(without_agent=OUTSIDE, by_activity=True, limit=shown + 1) else "on="
        return await self._site.long_page(
            request,
            "sessions.html",
            live=live,
            rows=rows[:shown],
            more=urlencode(wider) if len(rows) > shown else "",
            is_all=shown >= _MOST_ROWS,
            text=text,
            chosen=query.status or "",
            with_callers=with_callers,
            statuses=get_args(SessionStatus),
        )

    async def _new(self, request: Request) -> Response:
        return new_page(self._site, request)

    async def _session(self, request: Request) -> Response:
        session, params = self._site.session_in(request), request.query_params
        view, is_brief = await self._view(session)
        if (before := _count(params.get("before", ""), 0, sys.maxsize)) > 0:
            return await self._earlier(request, view, before, is_brief=is_brief)
        hub = await self._site.hubs.session(session)
        conversation = hub.conversation
        shown = _count(params.get("items", ""), _SHOWN_ITEMS, _MOST_ITEMS)
        if conversation.left_out and shown > len(conversation.items):
            conversation = await hub.window()
        items = list(conversation.items.values())
        hidden = max(len(items) - shown, 0) + conversation.left_out
        is_more = hidden > 0 and shown < _MOST_ITEMS
        return await self._site.long_page(
            request,
            "session.html",
            view=view,
            items=items[-shown:] if shown else [],
            before=hidden,
            more=f"items={min(shown * 4, _MOST_ITEMS)}" if is_more else f"before={conversation.begin + 1}" if conversation.begin else "",
            is_earlier=False,
            is_brief=is_brief,
            load=self._site.ports.records.load,
            live=f"on=&session={session}&after={conversation.seq}",
            rail=RAIL,
            modes=tuple(Mode),
            models=self._site.ports.starter.models(),
            works=view.status == "working",
        )

    async def _view(self, session: SessionId) -> tuple[SessionView, bool]:
        """Return the current state of a session; if its log is long and not read yet, the state from the index, and True."""
        ports = self._site.ports
        reading = asyncio.create_task(asyncio.to_thread(ports.line.desk.view, session), name=f"web: look at {session}")
        if ports.line.feed.head(session_stream(session)) > _LONG:
            await asyncio.wait({reading}, timeout=_PATIENCE)
            if not reading.done() and (row := next(iter(ports.index.sessions(SessionQuery(prefix=session, limit=1))), None)):
                # It continues, and the next visitor finds the log read.
                reading.add_done_callback(lambda done: done.cancelled() or done.exception())
                return _view_of_row(row), True
        return await reading, False

    async def _earlier(self, request: Request, view: SessionView, before: int, *, is_brief: bool) -> Response:
        """Show the items before a log entry in their current state; nothing on this page is live."""
        conversation, recorded = await asyncio.to_thread(window_at, self._site.ports.line.feed, view.session, before)
        count = 0
        for record in recorded:
            conversation.take(record)
            if record.seq < before:
                count = len(conversation.items)
        return await self._site.long_page(
            request,
            "session.html",
            view=view,
            items=list(conversation.items.values())[:count],
            before=0,
            more=f"before={conversation.begin + 1}" if conversation.begin else "",
            is_earlier=True,
            is_brief=is_brief,
            load=self._site.ports.records.load,
            live="on=",
            rail=RAIL,
            modes=tuple(Mode),
            models=self._site.ports.starter.models(),
            works=False,
        )

    async def _why(self, request: Request) -> Response:
        session, about = self._site.session_in(request), request.query_params.get("about", "")[:_LONGEST_SEARCH]
        text = "\n".join(why_lines(self._site.ports.line.explainer.why(session, about)))
        if is_piece(request):
            return self._site.piece("why.html", told=text)
        return self._site.page(request, "explained.html", told=text, session=session)

    async def _grants(self, request: Request) -> Response:
        everything = "all" in request.query_params
        return self._site.page(request, "grants.html", rows=self._site.ports.index.grants(all_of_them=everything), everything=everything)


def _view_of_row(row: SessionRow) -> SessionView:
    """Return the view of a session that its index row gives; what needs the whole log is left empty."""
    return SessionView(
        session=row.session,
        name=row.name,
        agent=row.agent,
        model=row.model,
        mode=Mode(row.mode),
        status=row.status,
        workspace=Workspace(path=row.workspace, own=row.own_workspace),
        created=row.created,
        turns=row.turns,
        parent=row.parent,
        labels=(),
        disabled=(),
        queue=(),
        pending=(),
        grants=(),
        budget=(),
        exhausted=(),
        context=ContextUse(used=0, size=0, measured=False, threshold=None),
    )


def new_page(site: Site, request: Request, fault: str = "", status: int = 200) -> Response:
    """Return the form for a new session, with what was typed if it was refused."""
    typed = form_of(request)
    starter = site.ports.starter
    shown = {"agents": starter.agents(), "models": starter.models(), "modes": tuple(Mode), "usual_mode": starter.mode()}
    return site.page(request, "new.html", status=status, **shown, typed=typed, fault=fault)


def _count(value: str, default: int, most: int) -> int:
    """Return the number in an address, within bounds; the default if it is not a number."""
    return min(int(value), most) if value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS else default
