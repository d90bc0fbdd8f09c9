"""Webhooks as services: the endpoint, and the outcomes of deliveries, sent through the gate like anything else that leaves the machine."""

import asyncio
import json
from collections.abc import Iterable
from typing import assert_never

from pydantic import JsonValue

from curtainwall.channels.series import series_of
from curtainwall.channels.webhook import CHANNEL, DeliveryStatus, WebhookEndpoint
from curtainwall.compose.gate import GatedSessions
from curtainwall.model import (
    Broken,
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallId,
    CallLost,
    CallPermitted,
    CallRequest,
    CallRequested,
    Conflict,
    CurtainwallError,
    SessionId,
    SessionQuery,
    SessionRow,
    TryLater,
    session_of,
    session_stream,
)
from curtainwall.serve.deliveries import WebhookDeliveries, hooks_in
from curtainwall.serve.listener import HttpService, ListenAddress
from curtainwall.serve.service import Serving
from curtainwall.serve.supervisor import Service
from curtainwall.session import lift

TOOL = "fetch.get"
_MANY = 1_000_000
_LOOK_AGAIN = 0.25
_LONGEST_PAUSE = 8.0
_ENDED = ("done", "failed", "interrupted")


class Callbacks:
    """Sends each outcome once: what was sent, denied, or may have been sent before a crash, is not sent again."""

    name = "webhook callbacks"

    def __init__(self, wired: GatedSessions, deliveries: WebhookDeliveries) -> None:
        self._wired = wired
        self._deliveries = deliveries
        self._settled: set[SessionId] = set()
        self._sending: dict[SessionId, asyncio.Task[None]] = {}
        self._changed: set[SessionId] = set()
        """Those that changed while they were being sent, to be looked at again."""

    def health(self) -> str:
        """Callbacks that fail are outcomes of their sessions, and no fault of the service."""
        return ""

    async def run(self) -> None:
        """Send outcomes until cancelled."""
        try:
            async for names in self._wired.house.feed.changes():
                if names:
                    for session in filter(None, map(session_of, names)):
                        self._look_at(session)
                else:
                    for row in self._wired.store.index.sessions(SessionQuery(channel=CHANNEL, limit=_MANY)):
                        self._consider(row)
        finally:
            for task in self._sending.values():
                task.cancel()
            await asyncio.gather(*self._sending.values(), return_exceptions=True)

    def _look_at(self, session: SessionId) -> None:
        if session not in self._settled:
            for row in self._wired.store.index.sessions(SessionQuery(prefix=session, channel=CHANNEL, limit=1)):
                self._consider(row)

    def _consider(self, row: SessionRow) -> None:
        session = row.session
        if session in self._sending:
            self._changed.add(session)
            return
        if session in self._settled or row.status != "ready" or not row.turns:
            return
        hook, url = self._wanted(session)
        if url is None or self._was_sent(session, url):
            self._settled.add(session)
        else:
            self._sending[session] = asyncio.create_task(self._send(session, hook, url), name=f"callback of {session}")

    async def _send(self, session: SessionId, hook: str, url: str) -> None:
        pause = _LOOK_AGAIN
        try:
            while True:
                if await self._is_tried(session, hook, url):
                    break
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            del self._sending[session]
        if session in self._changed:
            self._changed.discard(session)
            self._look_at(session)

    async def _is_tried(self, session: SessionId, hook: str, url: str) -> bool:
        """Send the outcome, or have it asked about; False where that has to be tried again although nothing will have changed.

        Nobody waits for an answer: it changes the session, which is looked at again then, by whoever serves by that time.
        """
        gate = self._wired.gate
        try:
            # First, since it costs nothing to hear that somebody else has it, and the log may be long.
            async with self._wired.house.hold(session):
                outcome = self._deliveries.whole_outcome(hook, session)
                if outcome.status not in _ENDED or self._was_sent(session, url):
                    return True
                # One that was answered while nobody was there to send it goes first; otherwise it is asked for.
                answers = await gate.take_up(session) or (await gate.request(session, _request(session, url, outcome), wait=False),)
        except (TryLater, Broken, Conflict):
            # Whoever answered has the session a moment longer, or nothing can be written; nothing tells us when that is over.
            return False
        except CurtainwallError:
            # It was closed or deleted meanwhile.
            return True
        if not any(answer.waiting for answer in answers):
            self._settled.add(session)
        return True

    def _wanted(self, session: SessionId) -> tuple[str, str | None]:
        """Return the hook that a session was delivered to, and where its outcome goes."""
        hooks = self._wired.setup.config.webhooks.hooks
        for place in self._wired.store.index.routes_to(session):
            series = series_of(place)
            if series is not None and series[0] == CHANNEL and series[1] in hooks:
                return series[1], hooks[series[1]].callback
        return "", None

    def _was_sent(self, session: SessionId, url: str) -> bool:
        """Tell whether the callback was sent, may have been, or never will be; one that asks, or was answered and not run, was not."""
        made: set[CallId] = set()
        for entry in self._wired.store.log.read(session_stream(session)):
            event = lift(entry)
            if not isinstance(event, CallEvent):
                continue
            match event:
                case CallRequested():
                    if event.turn is None and event.subject.tool == TOOL and event.subject.raw.get("url") == url:
                        made.add(event.call)
                case CallPermitted() | CallFinished() | CallDenied() | CallLost():
                    if event.call in made:
                        return True
                case CallDropped():
                    pass
                case _:
                    assert_never(event)
        return False


def _request(session: SessionId, url: str, outcome: DeliveryStatus) -> CallRequest:
    body = json.dumps({"session": session, "status": outcome.status, "text": outcome.text})
    headers: dict[str, JsonValue] = {"Content-Type": "application/json"}
    return CallRequest(tool=TOOL, arguments={"url": url, "method": "POST", "headers": headers, "body": body})


SECTIONS = frozenset({"webhooks"})


def services(serving: Serving) -> Iterable[Service]:
    """Return the services for webhooks, where the configuration has any."""
    wired = serving.wired
    if wired.setup.config.webhooks.hooks:
        deliveries = WebhookDeliveries(wired, serving.work.turns.attend, serving.model)
        endpoint = WebhookEndpoint(
            hooks_in(wired), deliveries, wired.house.clock, lambda words: serving.book.say(words, service="webhooks")
        )
        spot = ListenAddress(wired.setup.config.webhooks.address, "/hooks/NAME", "webhooks.listen", serving.book.say)
        yield HttpService("webhooks", endpoint.app, spot)
        yield Callbacks(wired, deliveries)
