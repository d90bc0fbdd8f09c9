"""The guard before every route: checks Host, Origin, the cookie and the form's token, and sets the headers of every answer."""

import hmac
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from curtainwall.channels.web.forms import Misread, TooBig, read_body, read_form
from curtainwall.channels.web.render.filters import draw
from curtainwall.channels.web.sign_ins import SignIns
from curtainwall.model import record

CSRF_FIELD = "csrf"
_SAFE = ("GET", "HEAD")
_PUBLIC = ("/sign-in", "/static/")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_LONGEST_NEXT = 500

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With no referrer at all, a browser would send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
# A link from another site comes without our strict cookie; repeated from a page of ours, it comes with it.
_BOUNCE = (
    "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content='0'><title>Curtainwall</title><p>One moment …</p>"
)


@record
class Visitor:
    """Who is asking: a person's name, whether they are an operator, and the token that their forms carry."""

    name: str
    is_operator: bool
    csrf: str
    token: str


@record
class WebAccess:
    """The host names we answer to, the people who may enter, and whether connections are encrypted."""

    hosts: frozenset[str]
    operators: frozenset[str]
    users: frozenset[str] = frozenset()
    is_secure: bool = False

    @property
    def cookie(self) -> str:
        """The cookie's name; browsers bind `__Host-` cookies to this host and accept them over TLS only."""
        return "__Host-curtainwall" if self.is_secure else "curtainwall"

    def knows(self, host: str) -> bool:
        """Tell whether a Host header names us, on any port, as a tunnel may end on another one."""
        return _name(host) in self.hosts | _LOOPBACK

    def may_enter(self, user: str) -> bool:
        """Tell whether a person is still on one of the lists."""
        return user in self.operators or user in self.users


class WebGuard:
    """Checks every request. INVARIANT: a request that changes something passed Host, Origin, cookie and token, in this order."""

    def __init__(self, app: ASGIApp, access: WebAccess, sign_ins: SignIns) -> None:
        self._app = app
        self._access = access
        self._sign_ins = sign_ins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            return
        refusal = await self._refusal(scope, receive)
        await (refusal or self._app)(scope, receive, _with_headers(send, self._access.is_secure, scope["path"]))

    async def _refusal(self, scope: Scope, receive: Receive) -> ASGIApp | None:
        """Return the refusal for a request, or None if it may pass; the parsed form is stored in the scope."""
        headers, path, method = Headers(scope=scope), str(scope["path"]), str(scope["method"])
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._access.knows(hosts[0]):
            return _refused(headers, 421, "this is not the host that you asked for; name it in `web.hosts` if it is")
        changes = method not in _SAFE
        if changes and not _is_same_origin(headers, hosts[0], self._access.is_secure):
            return _refused(headers, 403, "this form does not come from a page of ours")
        visitor = self._visitor(headers)
        scope["visitor"] = visitor
        is_public = path == _PUBLIC[0] or path.startswith(_PUBLIC[1])
        if visitor is None and not is_public:
            return _unknown_visitor(scope, headers, changes=changes)
        return await self._form_refusal(scope, receive, visitor) if changes else None

    async def _form_refusal(self, scope: Scope, receive: Receive, visitor: Visitor | None) -> ASGIApp | None:
        headers = Headers(scope=scope)
        try:
            form = read_form(headers.get("content-type", ""), await read_body(receive))
        except TooBig:
            return _refused(headers, 413, "this is more than a form may hold")
        except Misread as error:
            return _refused(headers, 400, str(error))
        token = form.get(CSRF_FIELD, "").encode("utf-8", "surrogatepass")
        if visitor is not None and not hmac.compare_digest(token, visitor.csrf.encode()):
            return _refused(headers, 403, "this form is of another sign-in; load the page again")
        scope["form"] = form
        return None

    def _visitor(self, headers: Headers) -> Visitor | None:
        token = cookies_of(headers).get(self._access.cookie, "")
        sign_in = self._sign_ins.find(token)
        if sign_in is None or not self._access.may_enter(sign_in.user):
            return None
        return Visitor(sign_in.user, sign_in.user in self._access.operators, sign_in.csrf, token)


def cookies_of(headers: Headers) -> Mapping[str, str]:
    """Return the cookies that a browser sent; none if the header is malformed."""
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(headers.get("cookie", "")).items()}
    except CookieError:
        return {}


def _name(host: str) -> str:
    host = host.strip().lower()
    return host.partition("]")[0] + "]" if host.startswith("[") else host.rpartition(":")[0] or host


def _is_same_origin(headers: Headers, host: str, is_secure: bool) -> bool:
    origins = headers.getlist("origin")
    if len(origins) != 1 or headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    try:
        origin = urlsplit(origins[0])
    except ValueError:
        return False
    return (origin.scheme, origin.netloc.lower()) == ("https" if is_secure else "http", host.strip().lower())


def _unknown_visitor(scope: Scope, headers: Headers, *, changes: bool) -> ASGIApp:
    if changes or headers.get("sec-fetch-dest", "document") not in ("document", ""):
        return _refused(headers, 401, "you are signed out: `curtainwall web link` prints a link; what you typed stays in this window")
    if headers.get("sec-fetch-site") == "cross-site":
        return Response(_BOUNCE, 200, media_type="text/html")
    where = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
    query = f"?next={quote(where, safe='')}" if where != "/" and len(where) <= _LONGEST_NEXT else ""
    return RedirectResponse(f"/sign-in{query}", 303)


def _refused(headers: Headers, status: int, words: str) -> ASGIApp:
    """Return a refusal: a line of text, or a piece of HTML for a page of ours that shows it."""
    if headers.get("hx-request") == "true":
        return HTMLResponse(draw("words.html", words=words, tone="bad"), status)
    return PlainTextResponse(f"{words}\n", status)


def _with_headers(send: Send, is_secure: bool, path: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-cache" if path.startswith("/static/") else "no-store")
            if is_secure:
                headers.setdefault("Strict-Transport-Security", "max-age=31536000")
        await send(message)

    return sending
