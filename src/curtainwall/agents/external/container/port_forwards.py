"""Forwards ports of this machine's loopback into a container that has no network, through a program inside it."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from curtainwall.agents.external.container.engine import Engine
from curtainwall.agents.external.container.spec import ForwardedPort
from curtainwall.model import CurtainwallError

ADDRESS: Final = "127.0.0.2"
"""Where forwarded ports listen.

INVARIANT: never 127.0.0.1. A browser sends its cookies for an address to every port of it, so an agent's server there would receive the
sign-in of our web pages.
"""

_MOST_AT_ONCE: Final = 32
_PIECE: Final = 64 * 1024


class PortForwards:
    """The forwarded ports of one container, open as long as the container is ours."""

    def __init__(self, engine: Engine, container: str) -> None:
        self._engine = engine
        self._container = container
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self, ports: Sequence[ForwardedPort]) -> list[str]:
        """Listen on all ports, and return a note for each one that cannot be had."""
        notes = list[str]()
        for port in ports:
            try:
                self._servers.append(await asyncio.start_server(self._handler(port.inside), ADDRESS, port.here))
            except OSError as fault:
                notes.append(f"port {port.here} is not forwarded: {fault.strerror or fault}")
        return notes

    async def close(self) -> None:
        """Stop listening and end every connection."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        connections = tuple(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    def _handler(self, inside: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(self._connections) >= _MOST_AT_ONCE:
                writer.close()
                return
            connection = asyncio.create_task(self._serve(reader, writer, inside))
            self._connections.add(connection)
            connection.add_done_callback(self._connections.discard)

        return accept

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, inside: int) -> None:
        command = ("socat", "STDIO", f"TCP:127.0.0.1:{inside}")
        try:
            # The engine or the peer may leave at any time; then the connection ends.
            with suppress(CurtainwallError, OSError, RuntimeError):
                async with self._engine.pipe(self._container, command) as program:

                    async def send() -> None:
                        while data := await reader.read(_PIECE):
                            await program.write(data)

                    sending = asyncio.create_task(send())
                    try:
                        while (piece := await program.read()) is not None:
                            if piece[0] == "out":
                                writer.write(piece[1])
                                await writer.drain()
                    finally:
                        sending.cancel()
                        await asyncio.gather(sending, return_exceptions=True)
        finally:
            writer.close()
