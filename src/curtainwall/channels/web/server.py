"""The web application: every page, every form, and the event stream of open pages, behind the guard."""

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
    """The event stream of open pages."""

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
            # Nothing is awaited here, so nothing can happen between catching up and subscribing.
            if hub is not None:
                hub.join(client, cursor)
            hubs.lists.join(client, topic)

        def part(client: StreamClient) -> None:
            hubs.lists.part(client)
            if hub is not None:
                hub.part(client)

        def is_welcome() -> bool:
            return self._site.sign_ins.find(visitor.token) is not None and self._site.access.may_enter(visitor.name)

        return StreamingResponse(hubs.stream(join, part, is_welcome), media_type="text/event-stream", headers=_HEADERS)

    async def _session_hub(self, request: Request) -> SessionHub | None:
        session = request.query_params.get("session")
        if session is None:
            return None
        if not (session.isascii() and session.isalnum() and self._site.ports.line.feed.head(session_stream(SessionId(session)))):
            raise NotFound("there is no such session")
        return await self._site.hubs.session(SessionId(session))


def _cursor(request: Request) -> int:
    """Return the log entry after which a page continues: what its browser saw last, or what the page was rendered with."""
    for value in (request.headers.get("last-event-id", ""), request.query_params.get("after", "")):
        if value.isascii() and value.isdecimal() and len(value) < len(str(_LARGEST)):
            return int(value)
    return 0


_STATIC = Path(__file__).with_name("static")
_NOT_FOUND = 404


def web_app(ports: WebPorts, hubs: Hubs, access: WebAccess, sign_ins: SignIns, tokens: Tokens) -> ASGIApp:
    """Return the whole application behind its guard."""
    site = Site(ports, hubs, access, sign_ins)
    routes: list[BaseRoute] = [Mount("/static", StaticFiles(directory=_STATIC)), *pages(site, tokens)]

    async def not_found(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        words = "there is no such page" if error.status_code == _NOT_FOUND else f"this cannot be done here ({error.status_code})"
        answer = site.refused(request, NotFound(words) if error.status_code == _NOT_FOUND else CommandRefused(words))
        answer.status_code = error.status_code
        answer.headers.update(error.headers or {})
        return answer

    return WebGuard(Starlette(routes=routes, exception_handlers={HTTPException: not_found}), access, sign_ins)


def pages(site: Site, tokens: Tokens) -> list[Route]:
    """Return every page and every form."""
    sign_in, actions, sessions = SignInPages(site, tokens, FailedSignIns()), ActionRoutes(site), SessionPages(site)
    parts = (sign_in, actions, sessions, AuditPages(site), RulePages(site), PlanPages(site), FigurePages(site), EventStream(site))
    return [route for part in parts for route in part.routes()]
