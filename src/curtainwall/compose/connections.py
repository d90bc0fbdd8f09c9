"""Tunnels of tool servers and external agents, whose content nobody sees: the session's gate decides about each."""

import asyncio
from collections.abc import Iterable
from typing import Final

from curtainwall.egress import Decide, Handling, HostDecision, ProviderAction, ProviderActionKind
from curtainwall.model import (
    CONNECT_SERVER,
    EGRESS_SERVER,
    Answer,
    AskGate,
    CallRequest,
    CurtainwallError,
    Gate,
    HostFacts,
    Presence,
    SessionId,
    TurnAt,
)
from curtainwall.policy import covers_host
from curtainwall.runtime.gate.permits import Holds, PermitWatch, no_permit_watch

ASK_SECONDS: Final = 20.0
"""Seconds that a connection waits for a human; then it is refused, and the ask stays open."""

REMEMBERED: Final = 10.0
"""Seconds for which a yes covers more connections to the same place, unless something happens that could change it."""


def tunnels_of(ask: AskGate, session: SessionId, by: str, hosts: Iterable[str] = ("*",), watch: PermitWatch = no_permit_watch) -> Decide:
    """Return what decides about a session's tunnels: only `hosts` (as in `lists.hosts`) may be asked for, and the gate judges each."""
    host_entries, allowed = frozenset(hosts), dict[tuple[str, int], tuple[float, Holds]]()

    async def decide(facts: HostFacts) -> HostDecision:
        if not covers_host(host_entries, facts.host, facts.port, facts.scope):
            return HostDecision(allowed=False, reason=f"`{facts.host}:{facts.port}` is not among the hosts that `{by}` may ask for")
        place, now = (facts.host, facts.port), asyncio.get_running_loop().time()
        until, holds = allowed.get(place, (0.0, _never))
        if until > now and holds():
            return HostDecision(allowed=True, holds=holds)
        watched = watch(session)
        answer = await _ask_gate(ask, session, CallRequest(tool=CONNECT_SERVER, arguments={"url": _url(facts), "by": by}, by_house=True))
        if isinstance(answer, HostDecision):
            return answer
        for old in [old for old, (until, _) in allowed.items() if until <= now]:
            del allowed[old]
        holds = watched.since(answer.call)
        allowed[place] = asyncio.get_running_loop().time() + REMEMBERED, holds
        return HostDecision(allowed=True, holds=holds)

    return decide


def _never() -> bool:
    return False


def _url(facts: HostFacts) -> str:
    return f"https://{facts.host}:{facts.port}"


async def _ask_gate(ask: AskGate, session: SessionId, request: CallRequest) -> Answer | HostDecision:
    """Ask the gate, and return its yes or a refusal. Wait only briefly for a human; the ask then stays open."""
    # The ask is never withdrawn: however this wait ends, the next attempt finds the answer.
    task = asyncio.ensure_future(ask(session, request, Presence(has_left=True)))
    try:
        await asyncio.wait({task}, timeout=ASK_SECONDS)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        answer = None if task.cancelled() else await task
    except CurtainwallError as fault:
        return HostDecision(allowed=False, reason=f"the connection could not be asked for: {fault}")
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        raise
    if answer is None or answer.waiting:
        return HostDecision(
            allowed=False, reason="a human is asked about this connection; try again when they have answered", is_logged=True
        )
    if answer.result is None or not answer.result.ok:
        return HostDecision(allowed=False, reason=f"{answer.verdict.reason} ({', '.join(answer.verdict.because)})", is_logged=True)
    return answer


class TurnNetworkGate:
    """Asks the gate for one turn. A refusal lasts until the turn ends; a yes is never reused, because labels may have been added."""

    def __init__(self, gate: Gate, at: TurnAt, watch: PermitWatch = no_permit_watch) -> None:
        self._gate = gate
        self._watch = watch
        self._at = at
        self._refused: dict[tuple[str, str], str] = {}
        self._is_over = False

    async def judge(self, action: ProviderAction) -> Handling:
        """Decide about something that a provider would do besides answering."""
        key = "url" if action.kind is ProviderActionKind.URL else "what"
        answer = await self._asked(f"provider_{action.kind.value}", key, action.what, provider=action.provider)
        return "remove" if isinstance(answer, str) else "allow"

    async def decide(self, facts: HostFacts) -> HostDecision:
        """Decide whether a tunnel may be opened."""
        watched = self._watch(self._at.session)
        answer = await self._asked("connect", "url", f"https://{facts.host}:{facts.port}")
        if isinstance(answer, str):
            return HostDecision(allowed=False, reason=answer, is_logged=True)
        holds = watched.since(answer.call)
        return HostDecision(allowed=True, holds=lambda: not self._is_over and holds())

    def end(self) -> None:
        """End the turn: nothing that was permitted holds any longer."""
        self._is_over = True

    async def _asked(self, tool: str, key: str, value: str, **more: str) -> Answer | str:
        """Return the answer if it is a yes, or else the reason."""
        refusal = self._refused.get((tool, value))
        if refusal is not None:
            return refusal
        request = CallRequest(tool=f"{EGRESS_SERVER}.{tool}", arguments={**more, key: value}, turn=self._at.turn, by_house=True)
        # The ask is never withdrawn: when this connection is gone, the next attempt finds the answer.
        answer = await self._gate.request(self._at.session, request, presence=Presence(has_left=True))
        if answer.result is not None and answer.result.ok:
            return answer
        return self._refused.setdefault((tool, value), _why(answer))


def _why(answer: Answer) -> str:
    return answer.verdict.reason or f"it is refused ({', '.join(answer.verdict.because)})"
