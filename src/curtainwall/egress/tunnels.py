"""Blind tunnels to hosts that are no providers: where it was decided so, to a checked address, bytes both ways and nothing else."""

import asyncio
import re
from collections.abc import Callable
from typing import Final

from curtainwall.egress.refusal import Refused
from curtainwall.egress.terms import always
from curtainwall.facts import Unclear, canonical_url
from curtainwall.host import Connection, Wire
from curtainwall.model import HostFacts

_PIECE: Final = 64 * 1024
_TARGET = re.compile(r"([A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*):([0-9]{1,5})")


def target_of(text: str) -> tuple[str, int]:
    """Return the host and port that a CONNECT names; raise `Refused` for whatever is not a plain name."""
    match = _TARGET.fullmatch(text)
    if match is None or len(match[1]) > 253:
        raise Refused(
            400, "name a host and a port, as in `api.example.com:443`; the host without a dot at its end", fatal=True, kind="host"
        )
    host, port = match[1].lower(), int(match[2])
    if "xn--" in host:
        raise Refused(403, "international names are not reached from here", fatal=True, kind="host")
    if host.rpartition(".")[2].isdigit() or host.rpartition(".")[2].startswith("0x"):
        raise Refused(403, "addresses are not reached from here; name a host", fatal=True, kind="host")
    if not 0 < port < 65536:
        raise Refused(400, "there is no such port", fatal=True, kind="host")
    return host, port


def facts_of(host: str, port: int, own_ports: frozenset[int]) -> HostFacts:
    """Return what is to be decided about: a connection whose content nobody sees."""
    try:
        facts = canonical_url(f"https://{host}:{port}", own_ports).facts
    except Unclear as fault:
        raise Refused(403, str(fault), fatal=True, kind="host") from None
    return facts.model_copy(update={"secure": False})


async def tunnel(wire: Wire, connection: Connection, idle: float, holds: Callable[[], bool] = always) -> None:
    """Pass bytes both ways until both have ended, one is gone, nothing came for a while, or nothing may pass any more."""
    loop = asyncio.get_running_loop()

    def heard() -> None:
        # Where the time was up a moment before, both are about to be ended.
        if not bound.expired():
            bound.reschedule(loop.time() + idle)
        if not holds():
            raise ConnectionAbortedError("it has to be asked for anew")

    async def out() -> None:
        while data := await wire.read():
            heard()
            connection.writer.write(data)
            await connection.writer.drain()
        connection.writer.write_eof()

    async def back() -> None:
        while data := await connection.reader.read(_PIECE):
            heard()
            wire.write(data)
            await wire.drain(idle)
        if not wire.is_lost:
            wire.transport.write_eof()

    try:
        async with asyncio.timeout(idle) as bound, asyncio.TaskGroup() as both:
            both.create_task(out())
            both.create_task(back())
    except* (OSError, TimeoutError):
        wire.abort()
    finally:
        connection.writer.transport.abort()
