"""What a confined process is given: paths, environment, bounds; and what it leaves behind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from curtainwall.host.sandbox.bridge import Bridge
from curtainwall.model import CurtainwallError

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
