"""What a session's proxy refused, in the session's log: masked, and in the turn in which it happened."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from curtainwall.facts import Masker, masked_excerpt
from curtainwall.model import Clock, CommandRefused, Journal, RefusedRequest, RequestsRefused, SessionId, TurnId

if TYPE_CHECKING:
    # Only a name here: what opens a session need not load the proxy.
    from curtainwall.egress import Refusal

_LONGEST: Final = 200


def _no_turn() -> TurnId | None:
    return None


@dataclass(frozen=True, slots=True)
class RefusedRequests:
    """Records for one session; `turn` says which turn is at work, where one is."""

    session: SessionId
    journal: Journal
    clock: Clock
    masker: Masker
    turn: Callable[[], TurnId | None] = _no_turn

    async def report(self, refused: "Sequence[tuple[Refusal, int]]", more: int) -> None:
        """Record what was refused; a session that is closed takes nothing more."""
        requests = tuple(self._masked(refusal, count) for refusal, count in refused)
        event = RequestsRefused(at=self.clock.now(), turn=self.turn(), requests=requests, more=more)
        with suppress(CommandRefused):
            await self.journal.record(self.session, (event,))

    def _masked(self, refusal: "Refusal", count: int) -> RefusedRequest:
        host, method, path, reason = (
            masked_excerpt(self.masker, text, _LONGEST) for text in (refusal.host, refusal.method, refusal.path, refusal.reason)
        )
        # INVARIANT: a key is never written down. Its mask is the same wherever else the same key was seen.
        mask = self.masker.mask_json({"api_key": refusal.key}) if refusal.key.strip() else None
        key = mask.get("api_key") if isinstance(mask, dict) else None
        return RefusedRequest(
            kind=refusal.kind, host=host, method=method, path=path, reason=reason, key=key if isinstance(key, str) else "", count=count
        )
