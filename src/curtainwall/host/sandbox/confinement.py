"""What a confined process is given: paths, environment, bounds and a bridge to one of our servers; and what it leaves behind.

Nobody inside can take the bridge's place, stop it, or see more of it than the port. It is there before the confined program begins.
"""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from curtainwall.host.sandbox import bridge_entry
from curtainwall.model import CurtainwallError

PROXY_PORT: Final = 3128
_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Bridge:
    """What a confined process finds on its loopback: `serve` gets the listening socket before the process begins, and has to close it."""

    serve: Callable[[socket.socket], Awaitable[object]]
    port: int = PROXY_PORT

    @property
    def environment(self) -> dict[str, str]:
        """Return what tells programs that the bridge is the proxy for every way out; their own loopback stays their own."""
        url = f"http://127.0.0.1:{self.port}"
        proxies = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), url)
        # The last one is for Node, which otherwise goes straight ahead.
        return {**proxies, "NO_PROXY": "127.0.0.1,::1", "no_proxy": "127.0.0.1,::1", "NODE_USE_ENV_PROXY": "1"}


async def listen_inside(process: int, port: int) -> socket.socket:
    """Return a socket that listens on the loopback of this process's network; raise OSError."""
    namespace = os.open(f"/proc/{process}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours:
        try:
            given = (namespace, theirs.fileno())
            words = (sys.executable, "-I", "-S", bridge_entry.__file__, *map(str, given), str(port))
            helper = await asyncio.create_subprocess_exec(*words, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, env={}, pass_fds=given)
        finally:
            os.close(namespace)
            theirs.close()
        try:
            async with asyncio.timeout(_SECONDS):
                _, complaint = await helper.communicate()
        except BaseException:
            helper.kill()
            await asyncio.shield(helper.wait())
            raise
        if helper.returncode != 0:
            raise OSError(complaint.decode(errors="replace").strip().rpartition("\n")[2] or "the bridge could not be made")
        _, handed, *_ = socket.recv_fds(ours, 1, 1)
    listener = socket.socket(fileno=handed[0])
    listener.setblocking(False)
    return listener


MIB: Final = 1024 * 1024
HOME: Final = "/home/agent"
"""The home directory inside: empty, in memory, gone with the process."""


class ConfinementFailed(CurtainwallError):
    """The confinement could not be set up; nothing ran."""


class Network(StrEnum):
    """What of the network is there inside.

    `HOST` is for programs of ours that talk to a place that was judged, never for what an agent or a repository brought along.
    """

    NONE = "none"
    HOST = "host"


class Sockets(StrEnum):
    """Which Unix sockets can be connected to; a mount, read-only or not, keeps nobody from those in it.

    `OWN` are those in the confinement's own memory and those given to it by name. `ANY` is for a confinement that holds nothing but what is
    ours. With `NONE` there are only pairs.
    """

    NONE = "none"
    OWN = "own"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a confined process and all its children may use; None is for a server that lives until it is told to end."""

    seconds: float | None = 120.0
    processes: int = 256
    memory: int = 4096 * MIB
    file_size: int = 1024 * MIB
    scratch: int = 512 * MIB
    spare: int = 256 * MIB
    """Bytes that stay free on the disks it writes to; it is ended where it takes more."""
    output: int = 1 * MIB
    """Bytes kept of each of stdout and stderr; what is printed beyond is read and dropped, up to 256 times as much and at least 64 MiB."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """One confinement. Everything that is not named here, or part of the system in `/usr`, is not there inside.

    All paths are real paths. `writable` and `fixed` are the same inside and outside; `fixed` are read-only spots in something writable,
    `hidden` ones look empty. `readable` are pairs of outside and inside, and may be sockets. A `bridge` is the one way out of a network
    that is none. With `as_owner`, a process that we start as root is the owner of the first path that it is given.
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
        """Return the paths outside that it is given."""
        return (*self.writable, *(outside for outside, _ in self.readable))


@dataclass(frozen=True, slots=True)
class Finished:
    """How a confined process ended; `stopped` says in words why we ended it, where we did."""

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
        """Return where its input goes."""
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Return what it prints."""
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def stderr(self) -> asyncio.StreamReader:
        """Return what it complains about."""
        assert self._process.stderr is not None
        return self._process.stderr
