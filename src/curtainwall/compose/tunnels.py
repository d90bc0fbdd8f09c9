"""Tunnels out of a sandbox or container: each host is a question to the session's gate, asked in the name of whoever wants it."""

import asyncio
from collections.abc import Iterable
from typing import Final

from curtainwall.egress import Decide, Ruling
from curtainwall.model import CONNECT_SERVER, Answer, AskGate, CallRequest, CurtainwallError, HostFacts, Presence, SessionId
from curtainwall.policy import covers_host
from curtainwall.runtime.gate.still_permitted import Holds, Watch, nobody_watches

PATIENCE: Final = 20.0
"""Seconds that a connection waits for a human; after that it is refused, and the ask stays open."""

REMEMBERED: Final = 10.0
"""Seconds for which a yes holds for further connections to the same place, where nothing has happened since that could change it."""


def tunnels_of(ask: AskGate, session: SessionId, by: str, hosts: Iterable[str] = ("*",), watch: Watch = nobody_watches) -> Decide:
    """Return who decides about a session's tunnels: `hosts` (as in `lists.hosts`) may be asked for, and the gate judges each."""
    named, allowed = frozenset(hosts), dict[tuple[str, int], tuple[float, Holds]]()

    async def decide(facts: HostFacts) -> Ruling:
        if not covers_host(named, facts.host, facts.port, facts.scope):
            return Ruling(allowed=False, reason=f"`{facts.host}:{facts.port}` is not among the hosts that `{by}` may ask for")
        place, now = (facts.host, facts.port), asyncio.get_running_loop().time()
        until, holds = allowed.get(place, (0.0, _never))
        if until > now and holds():
            return Ruling(allowed=True, holds=holds)
        noted = watch(session)
        answer = await _asked(ask, session, CallRequest(tool=CONNECT_SERVER, arguments={"url": _url(facts), "by": by}, by_house=True))
        if isinstance(answer, Ruling):
            return answer
        for old in [old for old, (until, _) in allowed.items() if until <= now]:
            del allowed[old]
        holds = noted.since(answer.call)
        allowed[place] = asyncio.get_running_loop().time() + REMEMBERED, holds
        return Ruling(allowed=True, holds=holds)

    return decide


def _never() -> bool:
    return False


def _url(facts: HostFacts) -> str:
    return f"https://{facts.host}:{facts.port}"


async def _asked(ask: AskGate, session: SessionId, wish: CallRequest) -> Answer | Ruling:
    """Walk through the gate, and return the yes or what is told instead; a human is waited for a moment, and the ask stays open then."""
    # A connection takes nothing back: however the wait for it ends, whoever comes again finds the answer.
    asking = asyncio.ensure_future(ask(session, wish, Presence(has_left=True)))
    try:
        await asyncio.wait({asking}, timeout=PATIENCE)
        if not asking.done():
            asking.cancel()
            await asyncio.wait({asking})
        answer = None if asking.cancelled() else await asking
    except CurtainwallError as fault:
        return Ruling(allowed=False, reason=f"the connection could not be asked for: {fault}")
    except asyncio.CancelledError:
        asking.cancel()
        await asyncio.wait({asking})
        raise
    if answer is None or answer.waiting:
        return Ruling(allowed=False, reason="a human is asked about this connection; try again when they have answered", is_logged=True)
    if answer.result is None or not answer.result.ok:
        return Ruling(allowed=False, reason=f"{answer.verdict.reason} ({', '.join(answer.verdict.because)})", is_logged=True)
    return answer
