"""Describes a confined process: its paths, environment, bounds, the bridge to one of our servers, and how it finished.

The bridge exists before the confined program begins. Nobody inside can replace it, stop it, or see more of it than the port.
"""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Final

from curtainwall.host.sandbox import bridge_entry
from curtainwall.model import CurtainwallError, record

PROXY_PORT: Final = 3128
_BRIDGE_SECONDS: Final = 30.0


@record
class Bridge:
    """Our server on a confined process's loopback: `serve` gets the listening socket before the process begins, and must close it."""

    serve: Callable[[socket.socket], Awaitable[object]]
    port: int = PROXY_PORT

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that make the bridge the proxy for everything except the process's own loopback."""
        url = f"http://127.0.0.1:{self.port}"
        proxies = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), url)
        # The last one is for Node, which otherwise ignores proxies.
        return {**proxies, "NO_PROXY": "127.0.0.1,::1", "no_proxy": "127.0.0.1,::1", "NODE_USE_ENV_PROXY": "1"}


async def listen_inside(process: int, port: int) -> socket.socket:
    """Return a socket that listens on the loopback of this process's network namespace; raise OSError."""
    namespace = os.open(f"/proc/{process}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours:
        try:
            descriptors = (namespace, theirs.fileno())
            words = (sys.executable, "-I", "-S", bridge_entry.__file__, *map(str, descriptors), str(port))
            helper = await asyncio.create_subprocess_exec(*words, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, env={}, pass_fds=descriptors)
        finally:
            os.close(namespace)
            theirs.close()
        try:
            async with asyncio.timeout(_BRIDGE_SECONDS):
                _, stderr = await helper.communicate()
        except BaseException:
            helper.kill()
            await asyncio.shield(helper.wait())
            raise
        if helper.returncode != 0:
            raise OSError(stderr.decode(errors="replace").strip().rpartition("\n")[2] or "the bridge could not be made")
        _, received, *_ = socket.recv_fds(ours, 1, 1)
    listener = socket.socket(fileno=received[0])
    listener.setblocking(False)
    return listener


MIB: Final = 1024 * 1024
HOME: Final = "/home/agent"
"""The home directory inside: in memory, empty at first, and gone with the process."""


class ConfinementFailed(CurtainwallError):
    """The confinement could not be set up; nothing ran."""


class Network(StrEnum):
    """Which network exists inside.

    `HOST` is for our own programs that talk to a judged host, never for code that an agent or a repository supplied.
    """

    NONE = "none"
    HOST = "host"


class Sockets(StrEnum):
    """Which Unix sockets a confined process can connect to; a mount, read-only or not, does not protect the sockets in it.

    `OWN` are those in the confinement's own memory and those given to it by name. `ANY` is for a confinement that holds only files of ours.
    With `NONE` there are only socket pairs.
    """

    NONE = "none"
    OWN = "own"
    ANY = "any"


@record
class Bounds:
    """How much a confined process and all its children may use; `seconds` is None for a server that runs until it is stopped."""

    seconds: float | None = 120.0
    processes: int = 256
    memory: int = 4096 * MIB
    file_size: int = 1024 * MIB
    scratch: int = 512 * MIB
    spare: int = 256 * MIB
    """Bytes that must stay free on the disks it writes to; it is killed if it takes more."""
    output: int = 1 * MIB
    """Bytes kept of stdout and of stderr; further output is read and dropped, up to 256 times as much and at least 64 MiB."""


@record
class Confinement:
    """One confinement. Only what is named here, and the system in `/usr`, exists inside.

    All paths are real paths. `writable` and `fixed` are the same inside and outside; `fixed` are read-only paths in a writable one, and
    `hidden` ones look empty. `readable` are pairs of outside and inside path, and may be sockets. Without a network, a `bridge` is the only
    way out. With `as_owner`, a process that we would start as root runs as the owner of the first path that it is given.
    """

    cwd: str
    writable: tuple[str, ...] = ()
    readable: tuple[tuple[str, str], ...] = ()
    fixed: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    network: Network = Network.NONE
    bounds: Bounds = Bounds()
    bridge: Bridge | None = None
    sockets: Sockets = Sockets.OWN
    as_owner: bool = False

    @property
    def given(self) -> tuple[str, ...]:
        """Return the outside paths that it is given."""
        return (*self.writable, *(outside for outside, _ in self.readable))


@record
class Finished:
    """How a confined process ended; if we killed it, `stopped` says why."""

    code: int
    out: bytes
    err: bytes
    cut: bool = False
    timed_out: bool = False
    stopped: str | None = None


class Piped:
    """The three streams of a process that was started with all of them as pipes."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """Return its standard input."""
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Return its standard output."""
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def stderr(self) -> asyncio.StreamReader:
        """Return its standard error."""
        assert self._process.stderr is not None
        return self._process.stderr
