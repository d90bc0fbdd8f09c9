"""One tool host for everything that can be called: our own tools in process, and those of servers behind the same catalogue."""

from pydantic import JsonValue

from curtainwall.model import CallPermitted, Place, Prepared, SessionId, ToolResult, ToolSpec
from curtainwall.tools.catalogue import Catalogue
from curtainwall.tools.host import NativeTools
from curtainwall.tools.servers import Servers


class Hub:
    """Native tools and servers behind the `ToolHost` port."""

    def __init__(self, native: NativeTools, servers: Servers) -> None:
        self._native = native
        self._servers = servers
        self._foreign: dict[str, tuple[Catalogue, NativeTools]] = {}

    @property
    def native(self) -> NativeTools:
        """Return our own tools."""
        return self._native

    def find(self, tool: str) -> ToolSpec | None:
        """Return the entry for `server.tool`, if it can be called now."""
        server = tool.partition(".")[0]
        if server not in self._servers:
            return self._native.find(tool)
        return next((spec for spec in self._servers.shelf.listing() if spec.full_name == tool), None)

    def listing(self) -> tuple[ToolSpec, ...]:
        """Return every tool that an agent can call now."""
        return (*self._native.listing(), *self._servers.shelf.listing())

    def prepare(self, tool: str, arguments: JsonValue, place: Place) -> Prepared:
        """Check the arguments, find out what they mean, and mask; raise `BadCall`."""
        server, _, name = tool.partition(".")
        if server not in self._servers:
            return self._native.prepare(tool, arguments, place, step=self.prepare)
        self._servers.shelf.see_that_it_may(server, name)
        return self._of(server).prepare(tool, arguments, place)

    def masked(self, value: JsonValue) -> JsonValue:
        """Return the value with every secret masked, for the log."""
        return self._native.masked(value)

    async def run(self, prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        """Run the call with its canonical arguments only, and mask what comes back."""
        server = prepared.subject.tool.partition(".")[0]
        hands = self._of(server) if server in self._servers else self._native
        return await hands.run(prepared, permit, place)

    async def leave(self, session: SessionId) -> None:
        """Let go of what a session kept running."""
        await self._servers.leave(session)

    async def aclose(self) -> None:
        """Stop everything that runs."""
        await self._servers.close()

    def _of(self, server: str) -> NativeTools:
        """Return a server's tools in the setting of our own; made anew where a human has reviewed them since."""
        catalogue = self._servers.shelf.catalogue(server)
        kept = self._foreign.get(server)
        if kept is None or kept[0] is not catalogue:
            kept = self._foreign[server] = (catalogue, self._native.beside(catalogue, self._servers.runners(server)))
        return kept[1]
