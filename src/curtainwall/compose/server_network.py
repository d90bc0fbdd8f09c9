"""Ways to the network for tool servers: one egress for all of them, made when the first one needs it."""

import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from curtainwall.compose.refused_requests import RefusedRequests
from curtainwall.host import Dialler
from curtainwall.model import AskGate, SessionId
from curtainwall.runtime.gate.still_permitted import Watch, nobody_watches
from curtainwall.tools.servers import ServerSpec, Way

if TYPE_CHECKING:
    from curtainwall.egress import Egress


class ServerWays:
    """Opens ways for servers; whoever made this must close it."""

    def __init__(
        self,
        authority: Path,
        ask: AskGate,
        dialler: Dialler | None = None,
        own_ports: frozenset[int] = frozenset(),
        watch: Watch = nobody_watches,
        refused: Callable[[SessionId], RefusedRequests] | None = None,
    ) -> None:
        self._authority = authority
        self._ask = ask
        self._dialler = dialler
        self._own_ports = own_ports
        self._watch = watch
        self._refused = refused
        self._egress: Egress | None = None

    async def open(self, spec: ServerSpec, session: SessionId, listener: socket.socket) -> Way:
        """Serve a server's end of its bridge: the hosts that its configuration names, each judged at the session's gate."""
        # Loaded here, because most houses have no server that uses the network, and all of them want to start quickly.
        from curtainwall.compose.tunnels import tunnels_of
        from curtainwall.egress import Authority, Egress, Terms
        from curtainwall.tools import scopes

        if self._egress is None:
            self._egress = Egress(Authority(self._authority), self._dialler or Dialler(scopes(self._own_ports)), self._own_ports)
        decide = tunnels_of(self._ask, session, spec.name, spec.network, self._watch)
        terms = Terms((), decide=decide)
        if self._refused is not None:
            terms = replace(terms, report=self._refused(session).report)
        return await self._egress.serve(terms, listener)

    async def aclose(self) -> None:
        """Let go of what all ways share; each way itself is closed with its server."""
        if self._egress is not None:
            self._egress.close()
