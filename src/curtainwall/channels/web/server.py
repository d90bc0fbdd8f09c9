"""The web itself: every page and every form, behind the door."""

from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from curtainwall.channels.web.guard import Doors, Guard
from curtainwall.channels.web.house import House
from curtainwall.channels.web.live.hubs import Hubs
from curtainwall.channels.web.pages.actions import Acting
from curtainwall.channels.web.pages.audit import Auditing
from curtainwall.channels.web.pages.figures import Measuring
from curtainwall.channels.web.pages.plans import Planning
from curtainwall.channels.web.pages.rules import Ruling
from curtainwall.channels.web.pages.sessions import Looking
from curtainwall.channels.web.pages.sign_in import Entering, Tokens, Tries
from curtainwall.channels.web.pages.site import Site
from curtainwall.channels.web.pages.stream import Streaming
from curtainwall.channels.web.sign_ins import SignIns
from curtainwall.model import CommandRefused, NotFound

_STATIC = Path(__file__).with_name("static")
_NOT_FOUND = 404


def web_app(house: House, hubs: Hubs, doors: Doors, sign_ins: SignIns, tokens: Tokens) -> ASGIApp:
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

    return Guard(Starlette(routes=routes, exception_handlers={HTTPException: elsewhere}), doors, sign_ins)


def pages(site: Site, tokens: Tokens) -> list[Route]:
    """Return every page and every form."""
    entering, acting, looking = Entering(site, tokens, Tries()), Acting(site), Looking(site)
    parts = (entering, acting, looking, Auditing(site), Ruling(site), Planning(site), Measuring(site), Streaming(site))
    return [route for part in parts for route in part.routes()]
