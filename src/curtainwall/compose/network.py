"""The network of tool servers: one egress for all, created when the first server needs it, and a record of refused requests."""

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from curtainwall.facts import Masker, masked_excerpt
from curtainwall.host import Dialler
from curtainwall.model import AskGate, Clock, CommandRefused, Journal, RefusedRequest, RequestsRefused, SessionId, TurnId, record
from curtainwall.runtime.gate.permits import PermitWatch, no_permit_watch
from curtainwall.tools.servers import OpenNetwork, ServerSpec

if TYPE_CHECKING:
    from curtainwall.egress import Egress, Refusal

_LONGEST: Final = 200


def _no_turn() -> TurnId | None:
    return None


@record
class RefusedRequests:
    """Records the refused requests of one session; `turn` returns the current turn, if any."""

    session: SessionId
    journal: Journal
    clock: Clock
    masker: Masker
    turn: Callable[[], TurnId | None] = _no_turn

    async def report(self, refused: "Sequence[tuple[Refusal, int]]", more: int) -> None:
        """Record refused requests, unless the session is closed."""
        requests = tuple(self._masked(refusal, count) for refusal, count in refused)
        event = RequestsRefused(at=self.clock.now(), turn=self.turn(), requests=requests, more=more)
        with suppress(CommandRefused):
            await self.journal.record(self.session, (event,))

    def _masked(self, refusal: "Refusal", count: int) -> RefusedRequest:
        host, method, path, reason = (
            masked_excerpt(self.masker, text, _LONGEST) for text in (refusal.host, refusal.method, refusal.path, refusal.reason)
        )
        # INVARIANT: a key is never recorded. Its mask is the same wherever the same key was seen.
        mask = self.masker.mask_json({"api_key": refusal.key}) if refusal.key.strip() else None
        key = mask.get("api_key") if isinstance(mask, dict) else None
        return RefusedRequest(
            kind=refusal.kind, host=host, method=method, path=path, reason=reason, key=key if isinstance(key, str) else "", count=count
        )


class ServerEgress:
    """Gives servers access to the network; its creator must close it."""

    def __init__(
        self,
        authority: Path,
        ask: AskGate,
        dialler: Dialler | None = None,
        own_ports: frozenset[int] = frozenset(),
        watch: PermitWatch = no_permit_watch,
        refused: Callable[[SessionId], RefusedRequests] | None = None,
    ) -> None:
        self._authority = authority
        self._ask = ask
        self._dialler = dialler
        self._own_ports = own_ports
        self._watch = watch
        self._refused = refused
        self._egress: Egress | None = None

    async def open(self, spec: ServerSpec, session: SessionId, listener: socket.socket) -> OpenNetwork:
        """Serve a server's end of its bridge: it may reach the configured hosts, and the session's gate judges each connection."""
        # Start-up time: most users have no server that uses the network.
        from curtainwall.compose.connections import tunnels_of
        from curtainwall.egress import Authority, Egress, ProxyConfig
        from curtainwall.tools import scopes

        if self._egress is None:
            self._egress = Egress(Authority(self._authority), self._dialler or Dialler(scopes(self._own_ports)), self._own_ports)
        decide = tunnels_of(self._ask, session, spec.name, spec.network, self._watch)
        terms = ProxyConfig((), decide=decide)
        if self._refused is not None:
            terms = replace(terms, report=self._refused(session).report)
        return await self._egress.serve(terms, listener)

    async def aclose(self) -> None:
        """Close the shared egress; each proxy is closed with its server."""
        if self._egress is not None:
            self._egress.close()
