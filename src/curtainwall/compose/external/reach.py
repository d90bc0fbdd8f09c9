"""What a foreign agent wants from the network past its tools, at the one gate: connections to hosts, and what its provider would reach."""

from curtainwall.egress import Handling, Reach, ReachKind, Ruling
from curtainwall.model import EGRESS_SERVER, Answer, CallRequest, Gate, HostFacts, Presence, TurnAt
from curtainwall.runtime.gate.still_permitted import Watch, nobody_watches


class AtTheGate:
    """Asks for one turn. A refusal stands until the turn is over; a yes is asked for every time, because labels may have come since."""

    def __init__(self, gate: Gate, at: TurnAt, watch: Watch = nobody_watches) -> None:
        self._gate = gate
        self._watch = watch
        self._at = at
        self._refused: dict[tuple[str, str], str] = {}
        self._is_over = False

    async def judge(self, reach: Reach) -> Handling:
        """Say what becomes of something that a provider would do beyond answering."""
        key = "url" if reach.kind is ReachKind.URL else "what"
        answer = await self._asked(f"provider_{reach.kind.value}", key, reach.what, provider=reach.provider)
        return "remove" if isinstance(answer, str) else "allow"

    async def decide(self, facts: HostFacts) -> Ruling:
        """Say whether a connection may be made whose content nobody sees."""
        noted = self._watch(self._at.session)
        answer = await self._asked("connect", "url", f"https://{facts.host}:{facts.port}")
        if isinstance(answer, str):
            return Ruling(allowed=False, reason=answer, is_logged=True)
        holds = noted.since(answer.call)
        return Ruling(allowed=True, holds=lambda: not self._is_over and holds())

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
