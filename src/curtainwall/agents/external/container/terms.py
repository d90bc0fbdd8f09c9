"""The words of this room: limits, folders, whoever opens the ways out, and what can be wrong before an agent starts."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from curtainwall.model import NotFound, SessionId, TryLater, TurnAt, TurnFailed

_GIB = 1024**3


class EngineMissing(TryLater):
    """Docker does not answer; the message says how to start it."""


class ImageMissing(NotFound):
    """There is no such image; the message says how to build it."""


class ContainerGone(TurnFailed):
    """The container ended in the middle of a turn; the next turn starts a new one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much containers may use. Times in seconds, sizes in bytes."""

    containers: int = 5
    """How many run at once, of all processes of a house; paused ones do not count."""
    processes: int = 256
    memory: int = 4 * _GIB
    cpus: float = 2.0
    temporary: int = _GIB
    """What fits into /tmp, which is memory."""
    turn: float = 2 * 3600.0
    """How long a turn may work; time at which a human is waited for does not count."""
    pause_after: float = 60.0
    """When a container that has nothing to do, or whose agent waits for a human, is paused."""
    remove_after: float = 15 * 60.0
    """When a container that has nothing to do is removed."""
    grace: float = 3.0
    """How long an interrupted agent has to end by itself."""
    free_disk: int = 256 * 1024**2
    """How much room there must be on a disk before anything starts."""
    disk: int = 10 * _GIB
    """What the workspace and the agent's home may hold together; in a project, what a turn may add to it."""

    @property
    def memory_told(self) -> str:
        """Return the memory of a container in words, with where it is set."""
        return f"{self.memory // 1024**2} MB; `memory` in [containers]"


@dataclass(frozen=True, slots=True)
class Program:
    """A program of this machine that is lent to the container, read-only, because the image does not have it."""

    here: Path
    inside: str


@dataclass(frozen=True, slots=True)
class Folders:
    """The directories of one session that are mounted. Nothing else of ours ever is."""

    workspace: Path
    orientation: Path
    run: Path
    state: Path
    is_own: bool = True
    """The workspace is the session's own, rather than a project of the user's."""
    is_readonly: bool = False
    """The workspace can be read but not changed."""
    pinned: tuple[str, ...] = ()
    """Directories in the workspace that stay where they are."""
    fixed: tuple[str, ...] = ()
    """Paths in the workspace that cannot be changed, although the rest can."""
    hidden: tuple[str, ...] = ()
    """Sockets and named pipes in the workspace that look empty: no mount keeps an agent from the services behind them."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The container that a session needs."""

    session: SessionId
    agent: str
    image: str
    folders: Folders
    user: int
    group: int
    programs: Sequence[Program] = ()


async def _nothing() -> None:
    """Wait for nothing."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What an agent gets for its ways out: stand-in keys by provider, and the certificates (PEM) that it has to trust."""

    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    certificates: str = ""
    hosts: str = ""
    """What it is told of the hosts that its tools may fetch from freely."""
    settled: Callable[[], Awaitable[None]] = _nothing
    """Returns when everything that the agent's requests used so far is written down."""


class Outside(Protocol):
    """Whoever opens a session's two sockets: its tools, and the way to the models."""

    def open(self, at: TurnAt, run: Path, user: int, providers: Sequence[str]) -> AbstractAsyncContextManager[Reach]:
        """Serve `mcp.sock` and `egress.sock` in the directory, for that user and that turn alone, while the context is open."""
        ...
