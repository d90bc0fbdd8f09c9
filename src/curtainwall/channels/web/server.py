"""The web itself: every page, every form, and the event stream of open pages, behind the guard."""

from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from curtainwall.channels.web.guard import WebAccess, WebGuard
from curtainwall.channels.web.live.clients import StreamClient
from curtainwall.channels.web.live.hubs import Hubs
from curtainwall.channels.web.live.session_hub import SessionHub
from curtainwall.channels.web.pages.actions import ActionRoutes
from curtainwall.channels.web.pages.audit import AuditPages
from curtainwall.channels.web.pages.figures import FigurePages
from curtainwall.channels.web.pages.plans import PlanPages
from curtainwall.channels.web.pages.rules import RulePages
from curtainwall.channels.web.pages.sessions import SessionPages
from curtainwall.channels.web.pages.sign_in import FailedSignIns, SignInPages, Tokens
from curtainwall.channels.web.pages.site import Site, visitor_of
from curtainwall.channels.web.ports import WebPorts
from curtainwall.channels.web.sign_ins import SignIns
from curtainwall.model import CommandRefused, NotFound, SessionId, session_stream

_LARGEST = 2**62
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class EventStream:
    """Pages that listen."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/events", self._site.guarded(self._events), methods=["GET"])]

    async def _events(self, request: Request) -> Response:
        hub = await self._session_hub(request)
        visitor = visitor_of(request)
        assert visitor is not None
        hubs, cursor, topic = self._site.hubs, _cursor(request), request.query_params.get("on", "")
        hubs.require_room()

        def join(client: StreamClient) -> None:
            # Nothing is waited for in here, so nothing can happen between looking back and listening.
            if hub is not None:
                hub.join(client, cursor)
            hubs.whole.join(client, topic)

        def part(client: StreamClient) -> None:
            hubs.whole.part(client)
            if hub is not None:
                hub.part(client)

        def is_welcome() -> bool:
            return self._site.sign_ins.find(visitor.token) is not None and self._site.doors.may_enter(visitor.name)

        return StreamingResponse(hubs.stream(join, part, is_welcome), media_type="text/event-stream", headers=_HEADERS)

    async def _session_hub(self, request: Request) -> SessionHub | None:
        told = request.query_params.get("session")
        if told is None:
            return None
        if not (told.isascii() and told.isalnum() and self._site.house.line.feed.head(session_stream(SessionId(told)))):
            raise NotFound("there is no such session")
        return await self._site.hubs.session(SessionId(told))


def _cursor(request: Request) -> int:
    """Return the entry behind which a page goes on: what its browser saw last, else what the page was drawn with."""
    for told in (request.headers.get("last-event-id", ""), request.query_params.get("after", "")):
        if told.isascii() and told.isdecimal() and len(told) < len(str(_LARGEST)):
            return int(told)
    return 0


_STATIC = Path(__file__).with_name("static")
_NOT_FOUND = 404


def web_app(house: WebPorts, hubs: Hubs, doors: WebAccess, sign_ins: SignIns, tokens: Tokens) -> ASGIApp:
    """Return the whole web behind its door."""
    site = Site(house, hubs, doors, sign_ins)
    routes: list[BaseRoute] = [Mount("/static", StaticFiles(directory=_STATIC)), *pages(site, tokens)]

    async def elsewhere(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        words = "there is no such page" if error.status_code == _NOT_FOUND else f"this cannot be done here ({error.status_code})"
        answer = site.refused(request, NotFound(words) if error.status_code == _NOT_FOUND else CommandRefused(words))
        answer.status_code = error.status_code
        answer.headers.update(error.headers or {})
        return answer

    return WebGuard(Starlette(routes=routes, exception_handlers={HTTPException: elsewhere}), doors, sign_ins)


def pages(site: Site, tokens: Tokens) -> list[Route]:
    """Return every page and every form."""
    sign_in, actions, sessions = SignInPages(site, tokens, FailedSignIns()), ActionRoutes(site), SessionPages(site)
    parts = (sign_in, actions, sessions, AuditPages(site), RulePages(site), PlanPages(site), FigurePages(site), EventStream(site))
    return [route for part in parts for route in part.routes()]
