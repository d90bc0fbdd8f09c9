"""Opens connections to a judged host: resolves its name once, requires that every address is in the judged scope, and uses one of them.

It ignores proxies, cookies and the environment, and never resolves a name twice for the same connection.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field
from functools import cache
from typing import Final, Protocol, TypeVar

from curtainwall.host.network.wires import Wire
from curtainwall.model import CurtainwallError, HostFacts, Scope, record

CONNECT_SECONDS: Final = 10.0

_STAGGER: Final = 0.3
_MOST_ADDRESSES: Final = 32
_RESOLVING_AT_ONCE: Final = 8
# Where distributions keep certificates, for a Python whose OpenSSL looks elsewhere.
_BUNDLES: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")

Opened = TypeVar("Opened")

ScopeOf = Callable[[str, int], Scope]
"""Returns which part of the network an address and port belong to."""


class Unreachable(CurtainwallError):
    """The host cannot be reached, or not as it was judged; the message says why."""


class Resolver(Protocol):
    """Turns a name into addresses."""

    async def __call__(self, name: str, port: int) -> Sequence[str]:
        """Return the addresses of a name, the preferred first; raise OSError."""
        ...


class SystemResolver:
    """The machine's resolver in a separate thread pool, so that slow name servers delay only other look-ups."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_RESOLVING_AT_ONCE, thread_name_prefix="resolver")

    async def __call__(self, name: str, port: int) -> Sequence[str]:
        """Return the addresses of a name, the preferred first; raise OSError."""
        loop = asyncio.get_running_loop()
        addresses = await loop.run_in_executor(self._threads, _look_up, name, port)
        return tuple(dict.fromkeys(addresses))


def _look_up(name: str, port: int) -> list[str]:
    answers = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [str(address[0]) for *_, address in answers]


@record
class Connection:
    """An open connection and the address that it is pinned to."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    address: str

    async def close(self) -> None:
        """Abort at once, without waiting for what the other side may still send."""
        self.writer.transport.abort()
        with suppress(OSError, ssl.SSLError):
            await self.writer.wait_closed()


@record
class Dialler:
    """Opens connections to hosts that were judged."""

    scope_of: ScopeOf
    resolve: Resolver = field(default_factory=SystemResolver)
    trust: ssl.SSLContext | None = None
    seconds: float = CONNECT_SECONDS

    async def connect(self, facts: HostFacts) -> Connection:
        """Connect as `wire` does, and return streams; raise `Unreachable`."""
        return await self._open(facts, self._streams)

    async def wire(self, facts: HostFacts) -> Wire:
        """Connect to one checked address, with TLS for the judged name if the URL is secure; raise `Unreachable`."""
        return await self._open(facts, self._wire)

    async def _open(self, facts: HostFacts, open_on: Callable[[socket.socket, str, HostFacts], Awaitable[Opened]]) -> Opened:
        addresses = await self._resolve_checked(facts)
        try:
            async with asyncio.timeout(self.seconds):
                sock, address = await _first_to_answer(addresses, facts.port)
                return await open_on(sock, address, facts)
        except ssl.SSLCertVerificationError as fault:
            raise Unreachable(f"`{facts.host}` showed a certificate that is not valid for it: {fault.verify_message}") from None
        except ssl.SSLError as fault:
            raise Unreachable(f"no TLS connection to `{facts.host}` could be made ({fault.reason})") from None
        except TimeoutError:
            raise Unreachable(f"`{facts.host}` did not answer on port {facts.port} within {self.seconds:g} seconds") from None
        except OSError as fault:
            raise Unreachable(f"`{facts.host}` cannot be reached on port {facts.port}: {_reason(fault)}") from None

    async def _resolve_checked(self, facts: HostFacts) -> tuple[str, ...]:
        """Resolve a judged host once. INVARIANT: one address in another scope refuses all of them."""
        if _is_address(facts.host):
            addresses: Sequence[str] = (facts.host,)
        else:
            # The final dot stops the machine from trying its search domains for a name that was judged as written.
            name = f"{facts.host}." if facts.scope is Scope.PUBLIC else facts.host
            try:
                async with asyncio.timeout(self.seconds):
                    addresses = await self.resolve(name, facts.port)
            except TimeoutError:
                raise Unreachable(f"the name `{facts.host}` could not be resolved within {self.seconds:g} seconds") from None
            except (OSError, UnicodeError):
                raise Unreachable(f"the name `{facts.host}` could not be resolved") from None
        if not addresses:
            raise Unreachable(f"the name `{facts.host}` has no address")
        for address in addresses:
            scope = self.scope_of(address, facts.port)
            if scope is not facts.scope or scope is Scope.FORBIDDEN:
                raise Unreachable(
                    f"`{facts.host}` was judged as a {facts.scope} host but leads to a {scope} address, so nothing was sent; "
                    "to reach this machine or its network, ask for the address itself"
                )
        return _alternating(addresses)[:_MOST_ADDRESSES]

    async def _streams(self, sock: socket.socket, address: str, facts: HostFacts) -> Connection:
        context = self._context(facts)
        try:
            reader, writer = await asyncio.open_connection(sock=sock, ssl=context, server_hostname=facts.host if context else None)
        except BaseException:
            sock.close()
            raise
        return Connection(reader, writer, address)

    async def _wire(self, sock: socket.socket, _address: str, facts: HostFacts) -> Wire:
        context = self._context(facts)
        try:
            _, wire = await asyncio.get_running_loop().create_connection(Wire, sock=sock)
        except BaseException:
            sock.close()
            raise
        if context is not None:
            try:
                await wire.secure(context, self.seconds, server=facts.host)
            except BaseException:
                wire.abort()
                raise
        return wire

    def _context(self, facts: HostFacts) -> ssl.SSLContext | None:
        return (self.trust or system_trust()) if facts.secure else None


@cache
def system_trust() -> ssl.SSLContext:
    """Return a context with the machine's certificates that checks names and requires TLS 1.2 or newer."""
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"]:
        for bundle in filter(os.path.isfile, _BUNDLES):
            context.load_verify_locations(bundle)
            break
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


async def _first_to_answer(addresses: Sequence[str], port: int) -> tuple[socket.socket, str]:
    """Return a connection to the first address that answers; try the next one when one fails or is slow."""
    untried, running = list(addresses), set[asyncio.Task[tuple[socket.socket, str]]]()
    fault: OSError = OSError("there is no address")
    try:
        while untried or running:
            if untried:
                running.add(asyncio.create_task(_connect(untried.pop(0), port)))
            done, _ = await asyncio.wait(running, timeout=_STAGGER if untried else None, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                running.discard(task)
                failure = task.exception()
                if failure is None:
                    return task.result()
                fault = failure if isinstance(failure, OSError) else fault
        raise fault
    finally:
        for task in running:
            task.cancel()
        for result in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(result, tuple):
                result[0].close()


async def _connect(address: str, port: int) -> tuple[socket.socket, str]:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock, address


def _alternating(addresses: Sequence[str]) -> tuple[str, ...]:
    """Alternate IPv4 and IPv6 addresses, beginning with the family that the resolver prefers."""
    first = [address for address in addresses if (":" in address) == (":" in addresses[0])]
    other = [address for address in addresses if address not in first]
    longest = range(max(len(first), len(other)))
    return tuple(family[at] for at in longest for family in (first, other) if at < len(family))


def _is_address(host: str) -> bool:
    # A canonical name never ends in a number.
    return ":" in host or host.rpartition(".")[2].isdigit()


def _reason(fault: OSError) -> str:
    return (fault.strerror or type(fault).__name__).lower()
