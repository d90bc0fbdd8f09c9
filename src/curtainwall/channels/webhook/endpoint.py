"""The endpoints: a delivery is checked and becomes one session, and its sender can ask for the outcome."""

import asyncio
import hmac
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, Literal, Protocol

from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as Path

from curtainwall.channels.webhook.proofs import DeliveryRefused, Proof
from curtainwall.facts.deliveries import MissingField, data_of, prompt_of, read_payload
from curtainwall.model import Clock, CurtainwallError, NotFound, SessionId, TryLater, Undecided, record

CHANNEL: Final = "webhook"
_SOON: Final = {"retry-after": "5"}
_MINUTE: Final = 60.0

Report = Callable[[str], None]
"""Writes a line to the service's log."""


@record
class Webhook:
    """One endpoint: who may deliver to it, the prompt for the agent, and its limits."""

    name: str
    proof: Proof
    prompt: str
    most_bytes: int = 262_144
    patience: float = 10.0
    per_minute: int = 60
    is_text: bool = False
    """Whether the body is plain text instead of JSON."""


@record
class Delivery:
    """A delivery as it becomes a session: the user's prompt, and the data beside it."""

    hook: str
    key: str
    prompt: str
    data: str


@record
class DeliveryStatus:
    """How far a delivery has come, and the agent's final text."""

    status: Literal["working", "waiting", "done", "failed", "interrupted"]
    text: str


class Deliveries(Protocol):
    """The parts of the runtime that the endpoints use."""

    async def take(self, delivery: Delivery) -> SessionId:
        """Start a session with a delivery; the same delivery twice is one session. Raise `NotFound` if that session was deleted."""
        ...

    def outcome(self, hook: str, session: SessionId) -> DeliveryStatus:
        """Return how far a session of this hook has come; raise `NotFound`."""
        ...

    def ticket(self, hook: str, session: SessionId) -> str:
        """Return a secret that only the sender can know; it authorises asking for the outcome."""
        ...


@dataclass(slots=True)
class WebhookEndpoint:
    """All webhooks behind one application."""

    hooks: Mapping[str, Webhook]
    deliveries: Deliveries
    clock: Clock
    report: Report
    _recent: dict[str, deque[float]] = field(default_factory=dict[str, "deque[float]"])
    _refused: dict[tuple[str, int], float] = field(default_factory=dict[tuple[str, int], float])

    def app(self) -> Starlette:
        """Return the web application."""
        return Starlette(
            routes=[
                Path("/hooks/{hook}", self._deliver, methods=["POST"]),
                Path("/hooks/{hook}/{session}/{ticket}", self._poll, methods=["GET"]),
            ],
            exception_handlers={HTTPException: _no_such_endpoint},
        )

    async def _deliver(self, request: Request) -> Response:
        try:
            hook = self._hook(request)
            body = await _body(request, hook)
            key = hook.proof.checked(request.headers, body, self.clock.now())
            self._count(hook)
            session = await self.deliveries.take(self._delivery(hook, key, body))
        except DeliveryRefused as refusal:
            self._report_refusal(request.path_params["hook"], refusal)
            return _json_response(refusal.status, {"error": str(refusal)})
        except NotFound as error:
            return _json_response(410, {"error": str(error)})
        except Undecided as waits:
            self.report(f"webhook `{request.path_params['hook']}`: a delivery has to be made again: {waits}")
            return _json_response(503, {"error": "the session of this delivery is in use and does not answer; deliver it again"}, _SOON)
        except TryLater as error:
            return _json_response(503, {"error": str(error)}, _SOON)
        except CurtainwallError as error:
            return _json_response(500, {"error": str(error)})
        ticket = self.deliveries.ticket(hook.name, session)
        return _json_response(202, {"session": session, "status": "accepted", "poll": f"/hooks/{hook.name}/{session}/{ticket}"})

    async def _poll(self, request: Request) -> Response:
        hook, session = request.path_params["hook"], SessionId(request.path_params["session"])
        try:
            if not hmac.compare_digest(request.path_params["ticket"].encode(), self.deliveries.ticket(hook, session).encode()):
                raise NotFound("there is nothing here")
            outcome = self.deliveries.outcome(hook, session)
        except NotFound:
            return _json_response(404, {"error": "there is nothing here"})
        return _json_response(200, {"session": session, "status": outcome.status, "text": outcome.text})

    def _hook(self, request: Request) -> Webhook:
        hook = self.hooks.get(request.path_params["hook"])
        if hook is None:
            raise DeliveryRefused(404, "there is no such webhook")
        return hook

    def _count(self, hook: Webhook) -> None:
        """Refuse deliveries over the rate limit; only deliveries with a valid proof count."""
        recent, now = self._recent.setdefault(hook.name, deque()), self.clock.elapsed() / 1000
        while recent and recent[0] <= now - _MINUTE:
            recent.popleft()
        if len(recent) >= hook.per_minute:
            raise DeliveryRefused(429, f"more than {hook.per_minute} deliveries in a minute")
        recent.append(now)

    def _report_refusal(self, hook: str, refusal: DeliveryRefused) -> None:
        """Log a refusal too, since a secret or field may be misspelled; each kind once a minute, because strangers can cause them."""
        kind, now = (hook, refusal.status), self.clock.elapsed() / 1000
        if hook in self.hooks and (kind not in self._refused or now - self._refused[kind] >= _MINUTE):
            self._refused[kind] = now
            self.report(f"webhook `{hook}`: a delivery was refused: {refusal}")

    def _delivery(self, hook: Webhook, key: str, body: bytes) -> Delivery:
        try:
            payload: JsonValue = read_payload(body, is_text=hook.is_text)
        except ValueError as error:
            what = "it must be text in UTF-8" if hook.is_text else 'send JSON in UTF-8, or let the webhook take text (`body = "text"`)'
            raise DeliveryRefused(400, f"the body cannot be read: {_first_line(error)}; {what}") from None
        try:
            prompt = prompt_of(hook.prompt, payload)
        except MissingField as error:
            raise DeliveryRefused(422, f'{error}; `{{{{ name or "text" }}}}` in the prompt says what stands there instead') from None
        return Delivery(hook.name, key, prompt, data_of(hook.name, payload))


async def _body(request: Request, hook: Webhook) -> bytes:
    """Read the body within the limits of size and time."""
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > hook.most_bytes:
        raise DeliveryRefused(413, f"the body is longer than {hook.most_bytes} bytes")
    if "content-encoding" in request.headers:
        raise DeliveryRefused(415, "the body must come as it is, without an encoding")
    body = b""
    try:
        async with asyncio.timeout(hook.patience):
            async for piece in request.stream():
                body += piece
                if len(body) > hook.most_bytes:
                    raise DeliveryRefused(413, f"the body is longer than {hook.most_bytes} bytes")
    except TimeoutError:
        raise DeliveryRefused(408, f"the body took longer than {hook.patience:g} s") from None
    except ClientDisconnect:
        raise DeliveryRefused(400, "the body ended too early") from None
    return body


def _no_such_endpoint(_request: Request, error: Exception) -> Response:
    """Answer a request to an unknown endpoint in the same shape as all other answers."""
    assert isinstance(error, HTTPException)
    is_known = error.status_code == HTTPStatus.METHOD_NOT_ALLOWED
    return _json_response(
        error.status_code, {"error": "deliver with POST, ask with GET" if is_known else "there is nothing here"}, error.headers
    )


def _json_response(status: int, content: dict[str, str], headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse(content, status, {"cache-control": "no-store", "connection": "close", **(headers or {})})


def _first_line(error: ValueError) -> str:
    return str(error).partition("\n")[0][:200]
