"""What a foreign agent wants from the network past its tools, at the one gate: connections to hosts, and what its provider would reach."""

from curtainwall.app.standing import Watch, nobody_watches
from curtainwall.egress import Handling, Reach, ReachKind, Ruling
from curtainwall.model import EGRESS_SERVER, Answer, CallRequest, Gate, HostFacts, TurnAt


class AtTheGate:
    """Asks for one turn. A refusal stands until the turn is over; a yes is asked for every time, because labels may have come since."""

    def __init__(self, gate: Gate, at: TurnAt, watch: Watch = nobody_watches) -> None:
        self._gate = gate
        self._watch = watch
        self._at = at
        self._refused: dict[tuple[str, str], str] = {}

    async def judge(self, reach: Reach) -> Handling:
        """Say what becomes of something that a provider would do beyond answering."""
        key = "url" if reach.kind is ReachKind.URL else "what"
        refusal = await self._refusal(f"provider_{reach.kind.value}", key, reach.what, provider=reach.provider)
        return "allow" if refusal is None else "remove"

    async def decide(self, facts: HostFacts) -> Ruling:
        """Say whether a connection may be made whose content nobody sees."""
        refusal = await self._refusal("connect", "url", f"https://{facts.host}:{facts.port}")
        if refusal is not None:
            return Ruling(allowed=False, reason=refusal)
        return Ruling(allowed=True, holds=await self._watch(self._at.session))

    async def _refusal(self, tool: str, key: str, value: str, **more: str) -> str | None:
        """Return why it is refused, or None where it may be."""
        known = self._refused.get((tool, value))
        if known is not None:
            return known
        request = CallRequest(tool=f"{EGRESS_SERVER}.{tool}", arguments={**more, key: value}, turn=self._at.turn, by_house=True)
        answer = await self._gate.request(self._at.session, request)
        if answer.result is not None and answer.result.ok:
            return None
        return self._refused.setdefault((tool, value), _why(answer))


def _why(answer: Answer) -> str:
    return answer.verdict.reason or f"it is refused ({', '.join(answer.verdict.because)})"
