"""The common part of all pages: the visitor, rendering, refusals, and where to go after a form."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import cast

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from curtainwall.channels.web.guard import Visitor, WebAccess, cookies_of
from curtainwall.channels.web.live.hubs import Hubs
from curtainwall.channels.web.ports import WebPorts
from curtainwall.channels.web.render.filters import draw
from curtainwall.channels.web.sign_ins import SignIns
from curtainwall.model import (
    AlreadyAnswered,
    Closed,
    CurtainwallError,
    NotAllowed,
    NotFound,
    SessionId,
    TryLater,
    Undecided,
    Who,
    record,
    session_stream,
)

CHANNEL = "web"
THEMES = ("system", "light", "dark")
KEYS = ("on", "off")
_MOST_WORDS = 500
_STATUS: Mapping[type[CurtainwallError], int] = {
    NotFound: 404,
    NotAllowed: 403,
    AlreadyAnswered: 409,
    Closed: 409,
    TryLater: 503,
    Undecided: 503,
}
_BAD_REQUEST = 400

Endpoint = Callable[[Request], Awaitable[Response]]


@record
class Site:
    """The common part of all pages."""

    ports: WebPorts
    hubs: Hubs
    access: WebAccess
    sign_ins: SignIns
    _words: OrderedDict[str, str] = field(default_factory=OrderedDict[str, str])

    def page(self, request: Request, template: str, *, status: int = 200, **values: object) -> Response:
        """Return a whole page."""
        return HTMLResponse(draw(template, **(self._common(request) | values)), status)

    async def long_page(self, request: Request, template: str, **values: object) -> Response:
        """Return a whole page that takes long to render, without blocking others."""
        common = self._common(request)
        return HTMLResponse(await run_in_threadpool(draw, template, **(common | values)))

    def _common(self, request: Request) -> dict[str, object]:
        """Return the values that every page needs."""
        visitor = visitor_of(request)
        return {
            "visitor": visitor,
            "csrf": visitor.csrf if visitor else "",
            "theme": theme_of(request),
            "keys": keys_of(request),
            "path": request.url.path,
            "asks": len(self.hubs.lists.cards()) if visitor else 0,
            "words": self._words.pop(visitor.token, "") if visitor else "",
            "live": "",
        }

    def piece(self, template: str, *, status: int = 200, **values: object) -> Response:
        """Return a piece of a page."""
        return HTMLResponse(draw(template, **values), status)

    def done(self, request: Request, words: str, go_to: str = "") -> Response:
        """Answer a form that succeeded, with a notice, and return to the person's page or go to another."""
        if is_piece(request) and not go_to:
            return self.piece("words.html", words=words, tone="good")
        visitor = visitor_of(request)
        if visitor is not None and words:
            self._words[visitor.token] = words
            while len(self._words) > _MOST_WORDS:
                self._words.popitem(last=False)
        back = go_to or local(form_of(request).get("back", "/"))
        return Response(status_code=204, headers={"HX-Redirect": back}) if is_piece(request) else RedirectResponse(back, 303)

    def refused(self, request: Request, error: CurtainwallError) -> Response:
        """Answer with why something was refused."""
        status = status_of(error)
        if is_piece(request):
            return self.piece("words.html", status=status, words=str(error), tone="bad")
        title = "Not found" if isinstance(error, NotFound) else "Not done"
        return self.page(request, "refused.html", status=status, fault=str(error), title=title)

    def guarded(self, endpoint: Endpoint, *, operators: bool = False) -> Endpoint:
        """Return an endpoint whose refusals become pages; with `operators`, only operators may use it."""

        async def run(request: Request) -> Response:
            visitor = visitor_of(request)
            try:
                if operators and (visitor is None or not visitor.is_operator):
                    name = visitor.name if visitor else "a stranger"
                    raise NotAllowed(f"`{name}` is not an operator of `{CHANNEL}` and may only talk")
                return await endpoint(request)
            except CurtainwallError as error:
                return self.refused(request, error)

        return run

    def session_in(self, request: Request) -> SessionId:
        """Return the session that the address names; raise `NotFound` if it does not exist."""
        session = str(request.path_params["session"])
        if not (session.isascii() and session.isalnum() and self.ports.line.feed.head(session_stream(SessionId(session)))):
            raise NotFound("there is no such session")
        return SessionId(session)


def status_of(error: CurtainwallError) -> int:
    """Return the HTTP status of a refusal."""
    return next((code for kind, code in _STATUS.items() if isinstance(error, kind)), _BAD_REQUEST)


def visitor_of(request: Request) -> Visitor | None:
    """Return the visitor that the guard identified."""
    return cast("Visitor | None", request.scope.get("visitor"))


def who(request: Request) -> Who:
    """Return the visitor as the log names them."""
    visitor = visitor_of(request)
    assert visitor is not None
    return Who(name=visitor.name, channel=CHANNEL)


def form_of(request: Request) -> Mapping[str, str]:
    """Return the form that the guard parsed."""
    return cast("Mapping[str, str]", request.scope.get("form", {}))


def is_piece(request: Request) -> bool:
    """Tell whether a piece of a page is requested instead of a whole one."""
    return request.headers.get("hx-request") == "true"


def theme_of(request: Request) -> str:
    """Return the colours that the person chose."""
    return _chosen(request, "theme", THEMES)


def keys_of(request: Request) -> str:
    """Return whether the person wants single keys to act in the inbox."""
    return _chosen(request, "keys", KEYS)


def _chosen(request: Request, name: str, choices: tuple[str, ...]) -> str:
    value = cookies_of(request.headers).get(name, "")
    return value if value in choices else choices[0]


def local(path: str) -> str:
    """Return the path if it is one of ours, or the first page for anything that could lead elsewhere."""
    is_ours = path.startswith("/") and not path.startswith("//") and path.isascii() and path.isprintable() and "\\" not in path
    return path if is_ours else "/"
