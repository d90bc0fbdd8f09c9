"""Webhooks as services: the endpoint, and the callbacks with outcomes, which pass the gate like everything that leaves the machine."""

import asyncio
import json
from collections.abc import Iterable
from contextlib import suppress
from typing import assert_never

from pydantic import JsonValue

from curtainwall.channels.series import series_of
from curtainwall.channels.webhook import CHANNEL, DeliveryStatus, WebhookEndpoint
from curtainwall.compose.gate import GatedSessions
from curtainwall.model import (
    SYSTEM,
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
    CloseSession,
    Conflict,
    CurtainwallError,
    SessionId,
    SessionQuery,
    SessionRow,
    TryLater,
    TurnStatus,
    session_of,
    session_stream,
)
from curtainwall.serve.deliveries import WebhookDeliveries, hooks_in
from curtainwall.serve.listener import HttpService, ListenAddress
from curtainwall.serve.service import Serving
from curtainwall.serve.supervisor import Service
from curtainwall.session import TASK_DONE, lift

TOOL = "fetch.get"
_MANY = 1_000_000
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 8.0
_ENDED = ("done", "failed", "interrupted")


class Callbacks:
    """Sends each outcome once: what was sent or denied, or may have been sent before a crash, is not sent again."""

    name = "webhook callbacks"

    def __init__(self, wired: GatedSessions, deliveries: WebhookDeliveries) -> None:
        self._wired = wired
        self._deliveries = deliveries
        self._settled: set[SessionId] = set()
        self._sending: dict[SessionId, asyncio.Task[None]] = {}
        self._changed: set[SessionId] = set()
        """Sessions that changed while their callback was being sent, to be checked again."""

    def health(self) -> str:
        """Return "": a failed callback is an outcome of its session, not a fault of the service."""
        return ""

    async def run(self) -> None:
        """Send outcomes until cancelled."""
        try:
            async for names in self._wired.registry.feed.changes():
                if names:
                    for session in filter(None, map(session_of, names)):
                        self._check(session)
                else:
                    for row in self._wired.store.index.sessions(SessionQuery(channel=CHANNEL, limit=_MANY)):
                        self._consider(row)
        finally:
            for task in self._sending.values():
                task.cancel()
            await asyncio.gather(*self._sending.values(), return_exceptions=True)

    def _check(self, session: SessionId) -> None:
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
        hook, url = self._callback_of(session)
        if url is None or self._was_sent(session, url):
            self._settled.add(session)
        else:
            self._sending[session] = asyncio.create_task(self._send(session, hook, url), name=f"callback of {session}")

    async def _send(self, session: SessionId, hook: str, url: str) -> None:
        pause = _FIRST_PAUSE
        try:
            while True:
                if await self._try_send(session, hook, url):
                    break
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            del self._sending[session]
        if session in self._changed:
            self._changed.discard(session)
            self._check(session)

    async def _try_send(self, session: SessionId, hook: str, url: str) -> bool:
        """Send the outcome, or ask for approval; return False if it must be tried again although nothing will change.

        Nobody waits for the approval: an answer changes the session, which is then checked again, by whichever process serves.
        """
        gate = self._wired.gate
        try:
            # Hold the session first: learning that another process has it costs nothing, and the log may be long.
            async with self._wired.registry.hold(session):
                outcome = self._deliveries.whole_outcome(hook, session)
                if outcome.status not in _ENDED:
                    return True
                if self._was_sent(session, url):
                    self._settled.add(session)
                    await self._end(session, outcome)
                    return True
                # A callback that was approved while no process could send it goes first; otherwise request one.
                answers = await gate.resume_answered(session) or (await gate.request(session, _request(session, url, outcome), wait=False),)
        except (TryLater, Broken, Conflict):
            # Another process holds the session a moment longer, or nothing can be written; nothing signals when that ends.
            return False
        except CurtainwallError:
            # It was closed or deleted meanwhile.
            return True
        if not any(answer.waiting for answer in answers):
            self._settled.add(session)
            await self._end(session, outcome)
        return True

    async def _end(self, session: SessionId, outcome: DeliveryStatus) -> None:
        """End a session whose delivery is done and whose callback is settled; one without a callback ends with its turn."""
        if outcome.status == TurnStatus.DONE:
            # If something is open in it after all, it stays open.
            with suppress(CurtainwallError):
                await self._wired.registry.send(session, CloseSession(by=SYSTEM, reason=TASK_DONE, at_rest=True), "ending")

    def _callback_of(self, session: SessionId) -> tuple[str, str | None]:
        """Return the hook that a session was delivered to, and its callback address."""
        hooks = self._wired.setup.config.webhooks.hooks
        for place in self._wired.store.index.routes_to(session):
            series = series_of(place)
            if series is not None and series[0] == CHANNEL and series[1] in hooks:
                return series[1], hooks[series[1]].callback
        return "", None

    def _was_sent(self, session: SessionId, url: str) -> bool:
        """Tell whether the callback was sent, may have been, or never will be; not if it still asks or was approved but not run."""
        calls: set[CallId] = set()
        for entry in self._wired.store.log.read(session_stream(session)):
            event = lift(entry)
            if not isinstance(event, CallEvent):
                continue
            match event:
                case CallRequested():
                    if event.turn is None and event.subject.tool == TOOL and event.subject.raw.get("url") == url:
                        calls.add(event.call)
                case CallPermitted() | CallFinished() | CallDenied() | CallLost():
                    if event.call in calls:
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
    """Return the services for webhooks, if any are configured."""
    wired = serving.wired
    if wired.setup.config.webhooks.hooks:
        deliveries = WebhookDeliveries(wired, serving.work.turns.attend, serving.model)
        endpoint = WebhookEndpoint(
            hooks_in(wired), deliveries, wired.registry.clock, lambda words: serving.book.say(words, service="webhooks")
        )
        address = ListenAddress(wired.setup.config.webhooks.address, "/hooks/NAME", "webhooks.listen", serving.book.say)
        yield HttpService("webhooks", endpoint.app, address)
        yield Callbacks(wired, deliveries)
