"""Signing in and out, and the browser's preferences: colours and keys."""

import hmac
import time
from collections import deque
from collections.abc import Callable, Mapping

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from curtainwall.channels.web.pages.site import KEYS, THEMES, Endpoint, Site, form_of, local, visitor_of

_TRIES, _WINDOW_SECONDS = 10, 60.0
_LONGEST_CODE = 500

Tokens = Callable[[], Mapping[str, str]]
"""Returns the permanent tokens by user, read anew each time."""


class FailedSignIns:
    """Counts failed sign-ins of everyone together, so that guessing from many places gains nothing."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._failed: deque[float] = deque()

    def wait(self) -> int:
        """Return how many seconds to wait before the next try; 0 if a try is allowed."""
        since = self._now() - _WINDOW_SECONDS
        while self._failed and self._failed[0] <= since:
            self._failed.popleft()
        return 0 if len(self._failed) < _TRIES else int(self._failed[0] - since) + 1

    def fail(self) -> None:
        """Count a failure."""
        self._failed.append(self._now())


class SignInPages:
    """The sign-in page and its forms."""

    def __init__(self, site: Site, tokens: Tokens, tries: FailedSignIns) -> None:
        self._site = site
        self._tokens = tokens
        self._tries = tries

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/sign-in", self._page, methods=["GET"]),
            Route("/sign-in", self._enter, methods=["POST"]),
            Route("/sign-out", self._leave, methods=["POST"]),
            Route("/theme", self._choice("theme", THEMES), methods=["POST"]),
            Route("/keys", self._choice("keys", KEYS), methods=["POST"]),
        ]

    async def _page(self, request: Request) -> Response:
        if visitor_of(request) is not None and "code" not in request.query_params:
            return RedirectResponse(local(request.query_params.get("next", "/")), 303)
        return self._shown(request)

    def _shown(self, request: Request, fault: str = "", status: int = 200) -> Response:
        code = request.query_params.get("code", "")[:_LONGEST_CODE]
        target = form_of(request).get("next") or request.query_params.get("next", "/")
        return self._site.page(request, "sign-in.html", status=status, code=code, next=local(target), fault=fault, visitor=None)

    async def _enter(self, request: Request) -> Response:
        wait = self._tries.wait()
        # INVARIANT: a link's code cannot be guessed, so its holder always gets in, however many others guess to lock them out.
        user = self._user_of(form_of(request).get("code", "").strip(), by_token=not wait)
        if wait and user is None:
            page = self._shown(request, f"too many sign-ins failed; try again in {wait} seconds", 429)
            page.headers["Retry-After"] = str(wait)
            return page
        if user is None or not self._site.access.may_enter(user):
            self._tries.fail()
            return self._shown(request, "this code is wrong, used, or too old; `curtainwall web link` makes another", 401)
        answer = RedirectResponse(local(form_of(request).get("next", "/")), 303)
        self._set(answer, self._site.access.cookie, self._site.sign_ins.sign_in(user), http_only=True)
        return answer

    def _user_of(self, code: str, *, by_token: bool) -> str | None:
        if not code or len(code) > _LONGEST_CODE:
            return None
        match: str | None = None
        for user, token in self._tokens().items() if by_token else ():
            if hmac.compare_digest(token.encode(), code.encode("utf-8", "surrogatepass")):
                match = user
        return match or self._site.sign_ins.spend(code)

    async def _leave(self, request: Request) -> Response:
        visitor = visitor_of(request)
        assert visitor is not None
        self._site.sign_ins.sign_out(visitor.token, everywhere="everywhere" in form_of(request))
        answer = RedirectResponse("/sign-in", 303)
        answer.delete_cookie(self._site.access.cookie, path="/", secure=self._site.access.is_secure, httponly=True, samesite="strict")
        return answer

    def _choice(self, name: str, choices: tuple[str, ...]) -> Endpoint:
        """Return the endpoint that stores a choice in a cookie of this browser."""

        async def choose(request: Request) -> Response:
            form = form_of(request)
            value = form.get(name, "")
            answer = RedirectResponse(local(form.get("back", "/")), 303)
            self._set(answer, name, value if value in choices else choices[0], http_only=False)
            return answer

        return choose

    def _set(self, answer: Response, name: str, value: str, *, http_only: bool) -> None:
        secure = self._site.access.is_secure
        answer.set_cookie(name, value, max_age=365 * 86_400, path="/", secure=secure, httponly=http_only, samesite="strict")
