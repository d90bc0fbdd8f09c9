"""Webhook deliveries: each becomes a session once, with its payload as data that taints it."""

import hashlib
import hmac
from collections.abc import Callable, Set
from typing import assert_never

from curtainwall.channels.webhook import CHANNEL, Delivery, DeliveryStatus, Proof, Webhook
from curtainwall.compose.gate import GatedSessions
from curtainwall.config.agents import model_for
from curtainwall.config.secrets import house_key, secret_of_hook
from curtainwall.config.webhooks import HookSection
from curtainwall.model import (
    HOUSE,
    SYSTEM,
    HouseEvent,
    Label,
    LabelSource,
    MessageId,
    NotFound,
    Route,
    RouteSet,
    SendMessage,
    SessionDeleted,
    SessionId,
    TurnStatus,
    Who,
    session_stream,
)
from curtainwall.model.people import parse_place
from curtainwall.operations.open import SessionSpec, open_new
from curtainwall.session import lift, transcript

Attend = Callable[[SessionId], None]
"""Makes this process run a session's agent."""

UNTRUSTED, SENSITIVE = Label("untrusted-content"), Label("sensitive")

WITHHELD = "the answer was made from sensitive material and is handed out to nobody who merely asks; a `callback` is asked about first"
_NOT_TAKEN = "it was not given to the agent"


def hooks_in(wired: GatedSessions) -> dict[str, Webhook]:
    """Return the webhooks that are enabled with their secrets, which are masked from now on; raise `Broken` if one is missing."""
    hooks: dict[str, Webhook] = {}
    for name, section in wired.setup.config.webhooks.hooks.items():
        if not section.enabled:
            continue
        secret = secret_of_hook(wired.setup.config, name)
        wired.masker.learn(f"webhook-{name}", secret)
        proof = Proof(
            section.scheme,
            secret,
            section.proof_header,
            section.proof_prefix,
            section.time_header or "",
            section.key_header or "",
            section.tolerance,
        )
        hooks[name] = Webhook(name, proof, section.prompt, section.size, per_minute=section.per_minute, is_text=section.body == "text")
    return hooks


def place_of(hook: str, key: str) -> Route:
    """Return the place of one delivery."""
    return Route(channel=CHANNEL, reference=f"{hook}/{key}")


class WebhookDeliveries:
    """Turns deliveries into sessions. Every step can be repeated after a crash, and counts once."""

    def __init__(self, wired: GatedSessions, attend: Attend, model: str) -> None:
        self._wired = wired
        self._attend = attend
        self._model = model
        self._key = house_key(wired.setup.home.mask_key)
        self._places_of: dict[SessionId, Route] = {}
        self._deleted: set[Route] = set()
        self._cursor = 0

    async def take(self, delivery: Delivery) -> SessionId:
        """Start a session with a delivery; raise `NotFound` if its session was deleted, so that it never runs twice."""
        if place_of(delivery.hook, delivery.key) in self._deleted_places():
            raise NotFound("this was delivered before, and its session was deleted since")
        section = self._wired.setup.config.webhooks.hooks[delivery.hook]
        by, registry, mask = Who(name=delivery.hook, channel=CHANNEL), self._wired.registry, self._wired.tools.masked
        session = await registry.bind(place_of(delivery.hook, delivery.key), SessionId(registry.mint()), by)
        # The system opens it with the configured settings, including its mode; the sender chooses none of them.
        await open_new(self._wired.sessions, self._spec_for(delivery.hook, section), SYSTEM, session)
        data = SendMessage(by=by, message=MessageId(f"{session}-0"), text=str(mask(delivery.data)), role="context")
        prompt = SendMessage(by=by, message=MessageId(f"{session}-1"), text=str(mask(delivery.prompt)), once=section.callback is None)
        if await self._wired.incoming.admit(session, f"{prompt.text}\n\n{data.text}", "told"):
            await registry.send(session, data, "delivered")
            await registry.send(session, prompt, "told")
        self._attend(session)
        return session

    def outcome(self, hook: str, session: SessionId) -> DeliveryStatus:
        """Return how far a session of this hook has come, for its sender: it is sent without approval, so it contains nothing sensitive."""
        status = self.whole_outcome(hook, session)
        is_sensitive = status.text and SENSITIVE in self._wired.sessions.state(session).labels
        return DeliveryStatus(status.status, WITHHELD) if is_sensitive else status

    def whole_outcome(self, hook: str, session: SessionId) -> DeliveryStatus:
        """Return how far a session of this hook has come, for the gate to judge; raise `NotFound`."""
        if not any(place.channel == CHANNEL and place.reference.startswith(f"{hook}/") for place in self._places(session)):
            raise NotFound(f"there is no delivery `{session}` to `{hook}`")
        turns = transcript(lift(entry) for entry in self._wired.store.log.read(session_stream(session))).turns
        last = turns[-1] if turns else None
        if last is None and self._wired.sessions.state(session).closed is not None:
            return DeliveryStatus("failed", _NOT_TAKEN)
        if last is None or last.status is None:
            return DeliveryStatus("working", "")
        text = last.text if last.status is not TurnStatus.FAILED else last.failure
        return DeliveryStatus(last.status.value, text)

    def ticket(self, hook: str, session: SessionId) -> str:
        """Return a secret that only the sender can know."""
        return hmac.new(self._key, f"webhook {hook} {session}".encode(), hashlib.sha256).hexdigest()

    def _deleted_places(self) -> Set[Route]:
        """Return the places of deliveries whose sessions were deleted, according to the house log."""
        for recorded in self._wired.registry.feed.read(HOUSE, self._cursor):
            self._cursor = recorded.seq
            event = recorded.event
            if not isinstance(event, HouseEvent):
                continue
            match event:
                case RouteSet(route=place, session=session):
                    if session is not None and place.channel == CHANNEL:
                        self._places_of[session] = place
                case SessionDeleted(session=session):
                    if session in self._places_of:
                        self._deleted.add(self._places_of.pop(session))
                case _:
                    assert_never(event)
        return self._deleted

    def _places(self, session: SessionId) -> tuple[Route, ...]:
        return tuple(self._wired.store.index.routes_to(session))

    def _spec_for(self, hook: str, section: HookSection) -> SessionSpec:
        setup = self._wired.setup
        return SessionSpec(
            section.model or model_for(setup.config.agents, section.agent, self._model),
            section.folder,
            f"webhook {hook}",
            section.agent,
            section.mode,
            tuple(map(parse_place, section.approval_targets)),
            section.budget.over(setup.limits),
            (LabelSource(label=UNTRUSTED, origin=f"a delivery to the webhook {hook}"),),
            hook=hook,
            channel=CHANNEL,
            instructions=setup.config.sessions.instructions if section.folder is None else "",
        )
