"""Deliveries in this machine's house: each becomes a session once, with its payload as data that taints it."""

import hashlib
import hmac
from collections.abc import Callable, Set

from curtainwall.channels.webhook import CHANNEL, Delivery, DeliveryStatus, Proof, Webhook
from curtainwall.compose.gate import GatedSessions
from curtainwall.config.agents import model_for
from curtainwall.config.secrets import house_key, secret_of_hook
from curtainwall.config.webhooks import HookSection
from curtainwall.model import (
    HOUSE,
    SYSTEM,
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
"""Lets this process look after a session's agent."""

UNTRUSTED, SENSITIVE = Label("untrusted-content"), Label("sensitive")

WITHHELD = "the answer was made from sensitive material and is handed out to nobody who merely asks; a `callback` is asked about first"


def hooks_in(wired: GatedSessions) -> dict[str, Webhook]:
    """Return the webhooks of the configuration with their secrets, which are masked from here on; raise `Broken` where one is missing."""
    found: dict[str, Webhook] = {}
    for name, told in wired.setup.config.webhooks.hooks.items():
        secret = secret_of_hook(wired.setup.config, name)
        wired.masker.learn(f"webhook-{name}", secret)
        proof = Proof(
            told.scheme, secret, told.proof_header, told.proof_prefix, told.time_header or "", told.key_header or "", told.tolerance
        )
        found[name] = Webhook(name, proof, told.prompt, told.size, per_minute=told.per_minute, is_text=told.body == "text")
    return found


def place_of(hook: str, key: str) -> Route:
    """Return the place that one delivery is."""
    return Route(channel=CHANNEL, reference=f"{hook}/{key}")


class WebhookDeliveries:
    """What a delivery does to this house. Every step can be done again after a crash, and counts once."""

    def __init__(self, wired: GatedSessions, attend: Attend, model: str) -> None:
        self._wired = wired
        self._attend = attend
        self._model = model
        self._key = house_key(wired.setup.home.mask_key)
        self._places_of: dict[SessionId, Route] = {}
        self._deleted: set[Route] = set()
        self._cursor = 0

    async def take(self, delivery: Delivery) -> SessionId:
        """Let a session begin with a delivery; raise `NotFound` where it had one that was deleted, so that it never runs twice."""
        if place_of(delivery.hook, delivery.key) in self._no_more():
            raise NotFound("this was delivered before, and its session was deleted since")
        told = self._wired.setup.config.webhooks.hooks[delivery.hook]
        by, house, mask = Who(name=delivery.hook, channel=CHANNEL), self._wired.house, self._wired.tools.masked
        session = await house.bind(place_of(delivery.hook, delivery.key), SessionId(house.mint()), by)
        # The house opens it on the terms of the configuration, its mode among them; whoever delivered chooses none of them.
        await open_new(self._wired.sessions, self._wanted(delivery.hook, told), SYSTEM, session)
        data = SendMessage(by=by, message=MessageId(f"{session}-0"), text=str(mask(delivery.data)), role="context")
        await house.send(session, data, "delivered")
        words = SendMessage(by=by, message=MessageId(f"{session}-1"), text=str(mask(delivery.prompt)))
        await house.send(session, words, "told")
        self._attend(session)
        return session

    def outcome(self, hook: str, session: SessionId) -> DeliveryStatus:
        """Return how far a session of this hook's has come, for whoever asks: nobody is asked before, so nothing sensitive is in it."""
        found = self.whole_outcome(hook, session)
        is_sensitive = found.text and SENSITIVE in self._wired.sessions.state(session).labels
        return DeliveryStatus(found.status, WITHHELD) if is_sensitive else found

    def whole_outcome(self, hook: str, session: SessionId) -> DeliveryStatus:
        """Return how far a session of this hook's has come, for the gate to judge; raise `NotFound`."""
        if not any(place.channel == CHANNEL and place.reference.startswith(f"{hook}/") for place in self._places(session)):
            raise NotFound(f"there is no delivery `{session}` to `{hook}`")
        turns = transcript(lift(entry) for entry in self._wired.store.log.read(session_stream(session))).turns
        last = turns[-1] if turns else None
        if last is None or last.status is None:
            return DeliveryStatus("working", "")
        text = last.text if last.status is not TurnStatus.FAILED else last.failure
        return DeliveryStatus(last.status.value, text)

    def ticket(self, hook: str, session: SessionId) -> str:
        """Return what only whoever delivered can know."""
        return hmac.new(self._key, f"webhook {hook} {session}".encode(), hashlib.sha256).hexdigest()

    def _no_more(self) -> Set[Route]:
        """Return the places of deliveries whose sessions were deleted, as the house's log tells by now."""
        for recorded in self._wired.house.feed.read(HOUSE, self._cursor):
            self._cursor = recorded.seq
            match recorded.event:
                case RouteSet(route=place, session=session) if session is not None and place.channel == CHANNEL:
                    self._places_of[session] = place
                case SessionDeleted(session=session) if session in self._places_of:
                    self._deleted.add(self._places_of.pop(session))
                case _:
                    pass
        return self._deleted

    def _places(self, session: SessionId) -> tuple[Route, ...]:
        return tuple(self._wired.store.index.routes_to(session))

    def _wanted(self, hook: str, told: HookSection) -> SessionSpec:
        setup = self._wired.setup
        return SessionSpec(
            told.model or model_for(setup.config.agents, told.agent, self._model),
            told.folder,
            f"webhook {hook}",
            told.agent,
            told.mode,
            tuple(map(parse_place, told.approval_targets)),
            told.budget.over(setup.limits),
            (LabelSource(label=UNTRUSTED, origin=f"a delivery to the webhook {hook}"),),
            hook=hook,
            channel=CHANNEL,
        )
