"""Connections whose content nobody sees, of tool servers and external agents: each is a question to the session's gate."""

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
"""Seconds that a connection waits for a human; after that it is refused, and the ask stays open."""

REMEMBERED: Final = 10.0
"""Seconds for which a yes holds for further connections to the same place, where nothing has happened since that could change it."""


def tunnels_of(ask: AskGate, session: SessionId, by: str, hosts: Iterable[str] = ("*",), watch: PermitWatch = no_permit_watch) -> Decide:
    """Return who decides about a session's tunnels: `hosts` (as in `lists.hosts`) may be asked for, and the gate judges each."""
    named, allowed = frozenset(hosts), dict[tuple[str, int], tuple[float, Holds]]()

    async def decide(facts: HostFacts) -> HostDecision:
        if not covers_host(named, facts.host, facts.port, facts.scope):
            return HostDecision(allowed=False, reason=f"`{facts.host}:{facts.port}` is not among the hosts that `{by}` may ask for")
        place, now = (facts.host, facts.port), asyncio.get_running_loop().time()
        until, holds = allowed.get(place, (0.0, _never))
        if until > now and holds():
            return HostDecision(allowed=True, holds=holds)
        noted = watch(session)
        answer = await _ask_gate(ask, session, CallRequest(tool=CONNECT_SERVER, arguments={"url": _url(facts), "by": by}, by_house=True))
        if isinstance(answer, HostDecision):
            return answer
        for old in [old for old, (until, _) in allowed.items() if until <= now]:
            del allowed[old]
        holds = noted.since(answer.call)
        allowed[place] = asyncio.get_running_loop().time() + REMEMBERED, holds
        return HostDecision(allowed=True, holds=holds)

    return decide


def _never() -> bool:
    return False


def _url(facts: HostFacts) -> str:
    return f"https://{facts.host}:{facts.port}"


async def _ask_gate(ask: AskGate, session: SessionId, wish: CallRequest) -> Answer | HostDecision:
    """Walk through the gate, and return the yes or what is told instead; a human is waited for a moment, and the ask stays open then."""
    # A connection takes nothing back: however the wait for it ends, whoever comes again finds the answer.
    asking = asyncio.ensure_future(ask(session, wish, Presence(has_left=True)))
    try:
        await asyncio.wait({asking}, timeout=ASK_SECONDS)
        if not asking.done():
            asking.cancel()
            await asyncio.wait({asking})
        answer = None if asking.cancelled() else await asking
    except CurtainwallError as fault:
        return HostDecision(allowed=False, reason=f"the connection could not be asked for: {fault}")
    except asyncio.CancelledError:
        asking.cancel()
        await asyncio.wait({asking})
        raise
    if answer is None or answer.waiting:
        return HostDecision(
            allowed=False, reason="a human is asked about this connection; try again when they have answered", is_logged=True
        )
    if answer.result is None or not answer.result.ok:
        return HostDecision(allowed=False, reason=f"{answer.verdict.reason} ({', '.join(answer.verdict.because)})", is_logged=True)
    return answer


class TurnNetworkGate:
    """Asks for one turn. A refusal stands until the turn is over; a yes is asked for every time, because labels may have come since."""

    def __init__(self, gate: Gate, at: TurnAt, watch: PermitWatch = no_permit_watch) -> None:
        self._gate = gate
        self._watch = watch
        self._at = at
        self._refused: dict[tuple[str, str], str] = {}
        self._is_over = False

    async def judge(self, reach: ProviderAction) -> Handling:
        """Say what becomes of something that a provider would do beyond answering."""
        key = "url" if reach.kind is ProviderActionKind.URL else "what"
        answer = await self._asked(f"provider_{reach.kind.value}", key, reach.what, provider=reach.provider)
        return "remove" if isinstance(answer, str) else "allow"

    async def decide(self, facts: HostFacts) -> HostDecision:
        """Say whether a connection may be made whose content nobody sees."""
        noted = self._watch(self._at.session)
        answer = await self._asked("connect", "url", f"https://{facts.host}:{facts.port}")
        if isinstance(answer, str):
            return HostDecision(allowed=False, reason=answer, is_logged=True)
        holds = noted.since(answer.call)
        return HostDecision(allowed=True, holds=lambda: not self._is_over and holds())

    def end(self) -> None:
        """Let nothing that was permitted hold any longer: the turn is over."""
        self._is_over = True

    async def _asked(self, tool: str, key: str, value: str, **more: str) -> Answer | str:
        """Return the yes, or why it is refused."""
        known = self._refused.get((tool, value))
        if known is not None:
            return known
        request = CallRequest(tool=f"{EGRESS_SERVER}.{tool}", arguments={**more, key: value}, turn=self._at.turn, by_house=True)
        # A connection takes nothing back: when it is gone, whoever comes again finds the answer.
        answer = await self._gate.request(self._at.session, request, presence=Presence(has_left=True))
        if answer.result is not None and answer.result.ok:
            return answer
        return self._refused.setdefault((tool, value), _why(answer))


def _why(answer: Answer) -> str:
    return answer.verdict.reason or f"it is refused ({', '.join(answer.verdict.because)})"
