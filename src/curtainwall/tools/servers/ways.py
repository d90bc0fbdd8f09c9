"""Servers that may use the network: their sandbox has none, only a bridge to whoever decides about each connection."""

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from curtainwall.host import Bridge, ConfinedProcess, Confinement, start_confined
from curtainwall.model import SessionId
from curtainwall.tools.servers.spec import ServerSpec


class Way(Protocol):
    """A way to the network that is open."""

    async def close(self) -> None:
        """Hang up on everyone; calling it twice is harmless."""
        ...


class Ways(Protocol):
    """Whoever opens ways to the network for servers."""

    async def open(self, spec: ServerSpec, session: SessionId, listener: socket.socket) -> Way:
        """Serve the sandbox's end of the bridge until the way is closed, which closes the listener as well."""
        ...


class BridgedProcess:
    """A confined server and its way to the network, which end together."""

    def __init__(self, process: ConfinedProcess, way: Way) -> None:
        self._process = process
        self._way = way

    @property
    def stopped(self) -> str | None:
        """Return why we ended it, where we did."""
        return self._process.stopped

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """Return where its input goes."""
        return self._process.stdin

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Return what it prints."""
        return self._process.stdout

    @property
    def stderr(self) -> asyncio.StreamReader:
        """Return what it complains about."""
        return self._process.stderr

    def kill(self, why: str | None = None) -> None:
        """End it and everything it started at once."""
        self._process.kill(why)

    async def close(self) -> None:
        """End it if it still runs, and its way to the network with it; calling it twice is harmless."""
        try:
            await self._process.close()
        finally:
            await self._way.close()


async def start_bridged(argv: Sequence[str], confinement: Confinement, spec: ServerSpec, session: SessionId, ways: Ways) -> BridgedProcess:
    """Start a confined server with a bridge; raise `ConfinementFailed`."""
    opened: list[Way] = []

    async def serve(listener: socket.socket) -> None:
        opened.append(await ways.open(spec, session, listener))

    try:
        process = await start_confined(argv, replace(confinement, bridge=Bridge(serve)))
    except BaseException:
        for way in opened:
            await way.close()
        raise
    return BridgedProcess(process, opened[0])
