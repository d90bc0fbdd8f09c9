"""Run the `fetch` tool: one exchange per permit, with each redirect as a separate call at the gate."""

import asyncio
import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast

import ada_url
from pydantic import JsonValue

from curtainwall.facts import Masker, Unclear, canonical_url, quoted, scope_of_address
from curtainwall.host import Credentials, Dialler, ScopeOf, Unavailable, Unreachable
from curtainwall.model import (
    AskGate,
    CallId,
    CallPermitted,
    CallRequest,
    CurtainwallError,
    HostFacts,
    Place,
    Prepared,
    Presence,
    Role,
    Scope,
    SessionId,
    ToolResult,
    record,
)
from curtainwall.tools.fetch.exchange import (
    ENCODINGS,
    USER_AGENT,
    Headers,
    HttpReply,
    HttpRequest,
    exchange,
    has_parameter,
    header_of,
    headers_after,
    request_headers,
    require_one_credential,
    shown_headers,
)
from curtainwall.tools.fetch.text import Media, decode_text, render_text
from curtainwall.tools.runners import CannotDo, Runner

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
# As in URLs from agents: some programs drop these characters, others treat them as a slash.
_TREACHEROUS = re.compile(r"[\x00-\x1f\x7f\\]")


def redirect_call(arguments: Mapping[str, JsonValue], reply: HttpReply) -> dict[str, JsonValue] | None:
    """Return the arguments of the call that a reply redirects to, or None if it does not; raise `CannotDo` for an invalid redirect.

    As in browsers, the method may become GET without the body. A credential never goes to another origin.
    """
    location = header_of(reply.headers, "location").strip() if reply.status in _REDIRECTS else ""
    if not location:
        return None
    here = canonical_url(arguments["url"])
    try:
        if _TREACHEROUS.search(location):
            raise Unclear("it holds a backslash or a control character")
        there = canonical_url(_without_fragment(ada_url.join_url(here.text, location)))
    except (Unclear, ValueError) as error:
        reason = error.message if isinstance(error, Unclear) else "it is not valid"
        raise CannotDo(f"`{here.text}` redirects to {quoted(location)}, which is not followed: {reason}") from None
    method = arguments.get("method", "GET")
    keeps_body = not ((reply.status == 303 and method != "HEAD") or (reply.status in {301, 302} and method == "POST"))
    same_origin = there.origin == here.origin
    redirected: dict[str, JsonValue] = {"url": there.text}
    if keeps_body:
        redirected |= {name: arguments[name] for name in ("method", "body") if name in arguments}
    written = cast("Mapping[str, str]", arguments.get("headers") or {})
    if headers := headers_after(written, same_origin=same_origin, keeps_body=keeps_body):
        redirected["headers"] = {**headers}
    copied = ("format", "credential") if same_origin else ("format",)
    return redirected | {name: arguments[name] for name in copied if name in arguments}


def _without_fragment(url: str) -> str:
    return url.partition("#")[0]


TOOL: Final = "fetch.get"
_ACCEPT: Final = "text/html, application/json;q=0.9, text/*;q=0.9, */*;q=0.5"


@record
class FetchLimits:
    """The size limit of a reply, the time limit with all redirects, and how long to wait for a human before a redirect."""

    size: int = 5_000_000
    seconds: float = 60.0
    hops: int = 5
    patience: float = 20.0


@record
class _Call:
    """A permitted call: its canonical arguments, and the host as it was judged."""

    arguments: Mapping[str, JsonValue]
    origin: str
    facts: HostFacts

    @classmethod
    def of(cls, prepared: Prepared) -> "_Call":
        (target,) = (resource for resource in prepared.subject.resources if resource.role in {Role.FETCH_URL, Role.SEND_URL})
        assert isinstance(target.facts, HostFacts)
        return cls(prepared.arguments, target.value, target.facts)

    @property
    def url(self) -> str:
        return cast("str", self.arguments["url"])

    def word(self, name: str) -> str | None:
        return cast("str | None", self.arguments.get(name))


@dataclass(slots=True)
class _Trip:
    """A redirect on its way through the gate: its remaining seconds, and its reply, which only the original call sees."""

    left: float
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    call: _Call | None = None
    reply: HttpReply | None = None


class Fetch:
    """Fetches what was permitted, and asks the gate again for each redirect."""

    def __init__(
        self, dialler: Dialler, masker: Masker, credentials: Credentials | None, ask: AskGate | None, limits: FetchLimits | None = None
    ) -> None:
        self._dialler = dialler
        self._masker = masker
        self._credentials = credentials or Credentials()
        self._ask = ask
        self._limits = limits or FetchLimits()
        self._trips: dict[CallId, _Trip] = {}

    async def run(self, prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        """Make the permitted exchange; a redirect hands its reply to the original call."""
        call = _Call.of(prepared)
        trip = self._trips.get(permit.call)
        if trip is None:
            return ToolResult(ok=True, value=await self._follow(call, permit, place))
        trip.call = call
        trip.begun.set()
        trip.reply, trip.left = await self._once(call, trip.left)
        headers: dict[str, JsonValue] = {**shown_headers(trip.reply.headers)}
        return ToolResult(ok=True, value={"status": trip.reply.status, "url": call.url, "headers": headers, "bytes": len(trip.reply.body)})

    async def _follow(self, call: _Call, permit: CallPermitted, place: Place) -> JsonValue:
        reply, remaining = await self._once(call, self._limits.seconds)
        passed: list[JsonValue] = []
        while (there := redirect_call(call.arguments, reply)) is not None:
            passed.append(call.url)
            if len(passed) > self._limits.hops:
                raise CannotDo(f"more than {self._limits.hops} redirects, the last one to `{there['url']}`; they may never end")
            if self._masker.holds_known(cast("str", there["url"])):
                raise CannotDo(f"`{call.url}` redirects to an address that holds a credential, which is not followed")
            trip = _Trip(remaining)
            request = CallRequest(tool=TOOL, arguments=there, call=CallId(f"{permit.call}.{len(passed)}"))
            await self._hop(trip, request, place.session, f"`{call.url}` redirects ({reply.status}) to `{there['url']}`")
            assert trip.call is not None
            assert trip.reply is not None
            call, reply, remaining = trip.call, trip.reply, trip.left
        return await asyncio.to_thread(_render, call, reply, passed, self._limits.size)

    async def _hop(self, trip: _Trip, request: CallRequest, session: SessionId, where: str) -> None:
        """Send a redirect through the gate as a separate call; raise `CannotDo` unless it is permitted and answered."""
        if self._ask is None:
            raise CannotDo(f"{where}; ask for that url")
        assert request.call is not None
        self._trips[request.call] = trip
        presence = Presence()
        asking = asyncio.ensure_future(self._ask(session, request, presence))
        begun = asyncio.ensure_future(trip.begun.wait())
        try:
            await asyncio.wait({asking, begun}, timeout=self._limits.patience, return_when=asyncio.FIRST_COMPLETED)
            if not (asking.done() or trip.begun.is_set()):
                # A human was asked. The ask stays open and the agent can come back for it, so we stop waiting.
                presence.leave()
                asking.cancel()
                await asyncio.wait({asking})
            answer = None if asking.cancelled() else await asking
        except CurtainwallError as error:
            raise CannotDo(f"{where}, which could not be asked for: {error}") from None
        finally:
            begun.cancel()
            if not asking.done():
                asking.cancel()
                await asyncio.wait({asking})
            self._trips.pop(request.call)
        if answer is None or answer.waiting:
            raise CannotDo(f"{where}; a human is asked about that: call `{TOOL}` with that url to wait for the answer")
        if answer.result is None:
            raise CannotDo(f"{where}, which was refused: {answer.verdict.reason} ({', '.join(answer.verdict.because)})")
        if trip.reply is None:
            raise CannotDo(f"{where}: {answer.result.value}")

    async def _once(self, call: _Call, seconds: float) -> tuple[HttpReply, float]:
        """Make one exchange and return its reply and the remaining seconds."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            async with asyncio.timeout(seconds):
                request = await self._request(call)
                connection = await self._dialler.connect(call.facts)
                try:
                    reply = await exchange(connection, request, self._limits.size)
                finally:
                    await connection.close()
        except TimeoutError:
            raise CannotDo(f"`{call.origin}` did not give a whole answer within {self._limits.seconds:g} seconds") from None
        except (Unavailable, Unreachable) as error:
            raise CannotDo(str(error)) from None
        return reply, seconds - (loop.time() - start)

    async def _request(self, call: _Call) -> HttpRequest:
        written = request_headers(cast("Mapping[str, str]", call.arguments.get("headers") or {}))
        method, body, name = call.word("method") or "GET", call.word("body"), call.word("credential")
        host = call.origin.partition("://")[2]
        ours: Headers = (
            ("Host", host),
            ("User-Agent", USER_AGENT),
            ("Accept", _ACCEPT),
            ("Accept-Encoding", ENCODINGS),
            ("Connection", "close"),
        )
        if body is not None:
            ours += (("Content-Type", "application/json" if body.lstrip()[:1] in {"{", "["} else "text/plain; charset=utf-8"),)
        target = call.url.removeprefix(call.origin) or "/"
        if name is not None:
            credential = self._credentials.find(name)
            credential.require_destination(TOOL, call.facts)
            value = (await self._credentials.resolve(name)).reveal()
            sent = credential.sending.headers(value)
            require_one_credential(written, sent, name)
            written += sent
            if query := credential.sending.query(value):
                if has_parameter(target, query.partition("=")[0]):
                    raise CannotDo(f"the url sets the parameter that carries the credential `{name}`; leave it out, it is sent for you")
                target += f"{'&' if '?' in target else '?'}{query}"
        replaced = {key.lower() for key, _ in written}
        headers = (*(header for header in ours if header[0].lower() not in replaced), *written)
        content = body.encode("utf-8", "surrogatepass") if body is not None else b"" if method in {"POST", "PUT", "PATCH"} else None
        return HttpRequest(method, target, headers, content)


def _render(call: _Call, reply: HttpReply, passed: list[JsonValue], limit: int) -> JsonValue:
    """Return the result for the agent: status, final URL, headers, and the content in the requested format."""
    content_type = header_of(reply.headers, "content-type")
    media, notes = Media.of(content_type), list[JsonValue]()
    value: dict[str, JsonValue] = {"status": reply.status, "url": call.url, "content_type": media.kind}
    value["headers"] = {**shown_headers(reply.headers)}
    text = decode_text(reply.body, media)
    if text is None:
        if call.word("format") == "raw":
            value["base64"] = base64.b64encode(reply.body).decode()
        elif reply.body:
            notes.append(f"{len(reply.body)} bytes that are no text; `format` `raw` returns them in Base64")
        value["content"] = ""
    else:
        value["content"] = (text if call.word("format") == "raw" else render_text(text, media, call.url))[:limit]
    if reply.cut:
        notes.append(f"the answer was longer; it is cut after {limit} bytes")
    return {**value, **({"redirects": passed} if passed else {}), **({"notes": notes} if notes else {})}


def scopes(own_ports: frozenset[int] = frozenset()) -> ScopeOf:
    """Return the function that finds the network scope of an address; an invalid address is forbidden."""

    def scope_of(address: str, port: int) -> Scope:
        try:
            return scope_of_address(address, port, own_ports)
        except Unclear:
            return Scope.FORBIDDEN

    return scope_of


def fetch_runners(
    masker: Masker,
    credentials: Credentials | None = None,
    ask: AskGate | None = None,
    own_ports: frozenset[int] = frozenset(),
) -> Mapping[str, Runner]:
    """Return the runner of `fetch.get`; without a gate, redirects are reported and not followed."""
    return {TOOL: Fetch(Dialler(scopes(own_ports)), masker, credentials, ask).run}
