"""Asks that a program answers itself: each open ask is shown to its function once, and what the function leaves open waits for a human."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import assert_never

from curtainwall.model import (
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalId,
    ApprovalJoined,
    ApprovalWithdrawn,
    CommandRefused,
    CurtainwallError,
    Feed,
    GrantScope,
    PendingAsk,
    StreamId,
    record,
)

_LOG = logging.getLogger(__name__)


@record
class AskAnswer:
    """A program's answer to an ask, if there is more to say than yes or no: for how long it counts, and why."""

    granted: bool
    scope: GrantScope = GrantScope.ONCE
    reason: str = ""


AskDecision = bool | AskAnswer | None
"""Yes, no, an answer with its scope or reason, or None to leave the ask to a human."""

OnAsk = Callable[[PendingAsk], AskDecision | Awaitable[AskDecision]]
"""Decides an ask, at once or later."""

Answer = Callable[[ApprovalId, AskAnswer], Awaitable[None]]


class AskWatch:
    """Shows each ask of a session to the program's function, all of them at the same time.

    INVARIANT: only `True` and a granted `AskAnswer` grant. After an exception, or any other value, the ask stays open.
    """

    def __init__(self, decide: OnAsk, pending: Callable[[], Sequence[PendingAsk]], answer: Answer) -> None:
        self._decide = decide
        self._pending = pending
        self._answer = answer
        self._decisions: dict[ApprovalId, asyncio.Task[None]] = {}
        self._answering: set[ApprovalId] = set()

    async def follow(self, feed: Feed, stream: StreamId) -> None:
        """Show the open asks and every later one, until cancelled; a decision about a settled ask is cancelled."""
        try:
            cursor = feed.head(stream)
            self._begin(None)
            async for recorded in feed.follow(stream, cursor):
                event = recorded.event
                if not isinstance(event, ApprovalEvent):
                    continue
                match event:
                    case ApprovalAsked():
                        self._begin((event.approval,))
                    case ApprovalAnswered() | ApprovalExpired() | ApprovalWithdrawn():
                        decision = self._decisions.pop(event.approval, None)
                        if decision is not None and event.approval not in self._answering:
                            decision.cancel()
                    case ApprovalJoined():
                        pass
                    case _:
                        assert_never(event)
        finally:
            decisions = tuple(self._decisions.values())
            for decision in decisions:
                decision.cancel()
            await asyncio.gather(*decisions, return_exceptions=True)

    async def decided(self) -> None:
        """Return once the function has decided, or passed on, every ask that is open now."""
        decisions = self._begin(None)
        if decisions:
            await asyncio.wait(decisions)

    def _begin(self, approvals: Collection[ApprovalId] | None) -> tuple["asyncio.Task[None]", ...]:
        """Begin to decide these open asks, or all, each once."""
        begun: list[asyncio.Task[None]] = []
        for ask in self._pending():
            if approvals is None or ask.approval in approvals:
                if ask.approval not in self._decisions:
                    self._decisions[ask.approval] = asyncio.create_task(self._decide_one(ask), name=f"on_ask {ask.approval}")
                begun.append(self._decisions[ask.approval])
        return tuple(begun)

    async def _decide_one(self, ask: PendingAsk) -> None:
        try:
            decision = self._decide(ask)
            if inspect.isawaitable(decision):
                decision = await decision
        except Exception:  # noqa: BLE001 - a fault of the program's function must not answer for a human
            _LOG.exception("`on_ask` failed, and approval `%s` stays open", ask.approval)
            return
        if isinstance(decision, bool):
            decision = AskAnswer(granted=decision)
        if decision is None:
            return
        if not isinstance(decision, AskAnswer) or not isinstance(decision.granted, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - from a program
            _LOG.error("`on_ask` returned %s, and approval `%s` stays open", type(decision).__name__, ask.approval)
            return
        self._answering.add(ask.approval)
        try:
            # Somebody else may have been first, or the call is gone.
            with suppress(CommandRefused):
                await self._answer(ask.approval, decision)
        except CurtainwallError:
            _LOG.exception("the answer of `on_ask` to approval `%s` could not be sent", ask.approval)
        finally:
            self._answering.discard(ask.approval)
