"""The specification of a container: limits, folders, mounts, sockets, and the engine's configuration. Nothing else is mounted."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from pathlib import Path
from typing import Final, Protocol

from pydantic import JsonValue

from curtainwall.agents.external.container.owners import AGENT, HOUSE, OWNER, SESSION, ContainerOwner
from curtainwall.model import NotFound, SessionId, TryLater, TurnAt, TurnFailed, record

_GIB = 1024**3

BUILD: Final = "build it with `curtainwall agents build`"


class EngineMissing(TryLater):
    """Docker does not answer; the message says how to start it."""


class ImageMissing(NotFound):
    """The image is missing; the message says how to build it."""


class ImageUnclear(NotFound):
    """A project was to name its image and does not; the message says what to do."""


class ContainerGone(TurnFailed):
    """The container ended in the middle of a turn; the next turn starts a new one."""


@record
class ContainerLimits:
    """How much containers may use. Times in seconds, sizes in bytes."""

    containers: int = 5
    """How many may run at once, over all processes that share a home; paused ones do not count."""
    processes: int = 256
    memory: int = 4 * _GIB
    cpus: float = 2.0
    temporary: int = _GIB
    """The size of /tmp, which is in memory."""
    turn: float = 2 * 3600.0
    """How long a turn may work; time spent waiting for a human does not count."""
    pause_after: float = 60.0
    """How long a container may be idle, or its agent wait for a human, before it is paused."""
    remove_after: float = 15 * 60.0
    """How long a container may be idle before it is removed."""
    grace: float = 3.0
    """How long an interrupted agent may take to exit."""
    free_disk: int = 256 * 1024**2
    """How much disk space must be free before anything starts."""
    disk: int = 10 * _GIB
    """The maximum size of the workspace and the agent's home together; in a project, of what a turn may add."""

    @property
    def memory_text(self) -> str:
        """Return the memory limit as text, with the setting that controls it."""
        return f"{self.memory // 1024**2} MB; `memory` in [containers]"


@record
class LentProgram:
    """A program of this machine, mounted read-only because the image does not have it."""

    here: Path
    inside: str


@record
class ExtraMount:
    """A directory or file of this machine that the user lets an agent see."""

    here: Path
    inside: str
    is_readonly: bool = True
    is_ours: bool = False
    """A cache in our home, which is created for the agent and belongs to it."""
    hidden: tuple[str, ...] = ()
    """Sockets and named pipes below it to hide."""


@record
class ContainerFolders:
    """The directories of one session that are mounted. Nothing else of ours ever is mounted."""

    workspace: Path
    orientation: Path
    run: Path
    state: Path
    is_own: bool = True
    """The workspace belongs to the session and is not a project of the user."""
    is_readonly: bool = False
    """The workspace can be read but not changed."""
    pinned: tuple[str, ...] = ()
    """Directories in the workspace that cannot be moved."""
    fixed: tuple[str, ...] = ()
    """Paths in the workspace that cannot be changed, although the rest can."""
    hidden: tuple[str, ...] = ()
    """Sockets and named pipes in the workspace to hide: a read-only mount would not keep an agent from the services behind them."""
    shared: tuple[Path, ...] = ()
    """The other places that the agent can fill, caches and mounts; their growth counts too."""
    project: Path | None = None
    """The project that the workspace is a view of; None if it is no view."""


@record
class ImageChoice:
    """The image of an agent in a session."""

    name: str
    base: str = ""
    """The image that the session was given to build on, which its log remembers; empty if it has the configured one."""
    remedy: str = BUILD
    """What to do if there is no such image."""


@record
class ForwardedPort:
    """A port of this machine's loopback that leads to a port in a container."""

    here: int
    inside: int


@record
class ContainerRequest:
    """The container that a session needs."""

    session: SessionId
    agent: str
    image: str
    folders: ContainerFolders
    user: int
    group: int
    programs: Sequence[LentProgram] = ()
    mounts: Sequence[ExtraMount] = ()
    ports: Sequence[ForwardedPort] = ()
    variables: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Environment variables that the user adds."""
    is_kept: bool = False
    """Whether its programs keep running after the turn."""
    remedy: str = field(default=BUILD, compare=False)
    """What to do if there is no such image."""


@record
class ContainerExtras:
    """A user's additions to an agent's containers."""

    mounts: tuple[ExtraMount, ...] = ()
    ports: tuple[ForwardedPort, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    keeps_running: bool = False
    """Whether programs that the agent leaves running in a project keep running after the turn."""


async def _nothing() -> None:
    """Return at once."""


@record
class ContainerNetwork:
    """An agent's network access: stand-in keys by provider, and the certificates (PEM) that it must trust."""

    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    certificates: str = ""
    tools: str = ""
    """Text for the agent that lists the session's tools."""
    hosts: str = ""
    """Text for the agent about the hosts that its tools may fetch from freely."""
    instructions: str = ""
    """The configured instructions for sessions such as this one."""
    settled: Callable[[], Awaitable[None]] = _nothing
    """Returns once the usage of all the agent's requests so far is recorded."""


class ContainerSockets(Protocol):
    """Opens a session's two sockets: one to its tools, one to the models."""

    def open(self, at: TurnAt, run: Path, user: int, providers: Sequence[str]) -> AbstractAsyncContextManager[ContainerNetwork]:
        """Serve `mcp.sock` and `egress.sock` in the directory, for that user and that turn alone, while the context is open."""
        ...


WORKSPACE: Final = "/workspace"
ORIENTATION: Final = "/etc/curtainwall"
RUN: Final = "/run/curtainwall"
HOME: Final = "/home/agent"
TEMPORARY: Final = "/tmp"  # noqa: S108 - a tmpfs of the container's own
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a tmpfs of the container's own

QUEUES: Final = "/dev/mqueue"

ROOT_FILES: Final = "/etc/curtainwall-root"
"""The place of files that an agent accepts only from root; a tmpfs, so that no file on the host has to belong to root."""

CERTIFICATE: Final = f"{ORIENTATION}/ca.pem"
"""The certificates that the agent trusts."""

MESSAGE: Final = f"{ORIENTATION}/message"
"""The message for the agent, which becomes its stdin."""

TOOLS_SOCKET: Final = "mcp.sock"
"""In the run directory: the session's tools."""

EGRESS_SOCKET: Final = "egress.sock"
"""In the run directory: the proxy to the models."""

BRIDGE: Final = ("socat", "STDIO", f"UNIX-CONNECT:{RUN}/{TOOLS_SOCKET}")
"""Connects stdin and stdout to the session's tools, for agents that can only start a tool server."""

LIFELINE_SOCKET: Final = "alive.sock"
"""In the run directory: served as long as the container may live."""

_PORT: Final = 18080
PROXY: Final = f"http://127.0.0.1:{_PORT}"

_WAY: Final = ("socat", f"TCP-LISTEN:{_PORT},bind=127.0.0.1,fork,reuseaddr", f"UNIX-CONNECT:{RUN}/{EGRESS_SOCKET}")
_HOLD: Final = f'{{ "$@"; kill $$; }} & exec socat -u UNIX-CONNECT:{RUN}/{LIFELINE_SOCKET} -'

MAIN: Final = ("/bin/sh", "-c", _HOLD, "sh", *_WAY)
"""The container's main process, which holds the lifeline and exits once nobody serves that; the container ends with it.

A second process bridges from a port to the models, because no agent can use a proxy on a Unix socket.
"""


_SHARED = 64 * 1024**2


def container_config(request: ContainerRequest, limits: ContainerLimits, owner: ContainerOwner, house: str = "") -> dict[str, JsonValue]:
    """Return the configuration of a session's container."""
    folders = request.folders
    mounts: list[JsonValue] = [
        _mount(str(folders.workspace), WORKSPACE, is_readonly=folders.is_readonly),
        *(_mount(path, _inside(path, folders), is_readonly=False) for path in folders.pinned),
        *(_mount(path, _inside(path, folders), is_readonly=True) for path in folders.fixed),
        *(_mount(os.devnull, _inside(path, folders), is_readonly=True) for path in folders.hidden),
        _mount(str(folders.orientation), ORIENTATION, is_readonly=True),
        # A read-only mount still lets the agent connect to a socket, but not replace it.
        _mount(str(folders.run), RUN, is_readonly=True),
        _mount(str(folders.state), HOME, is_readonly=False),
        *(_mount(str(program.here), program.inside, is_readonly=True) for program in request.programs),
        *(_mount(str(extra.here), extra.inside, is_readonly=extra.is_readonly) for extra in request.mounts),
        *(
            _mount(os.devnull, f"{extra.inside}{path[len(str(extra.here)) :]}", is_readonly=True)
            for extra in request.mounts
            for path in extra.hidden
        ),
    ]
    return {
        "Image": request.image,
        "Entrypoint": [],
        "Cmd": list[JsonValue](MAIN),
        "User": f"{request.user}:{request.group}",
        "WorkingDir": WORKSPACE,
        "Hostname": "agent",
        "Env": [f"HOME={HOME}"],
        "Labels": {OWNER: owner.label, HOUSE: house, SESSION: request.session, AGENT: request.agent},
        "HostConfig": {
            "NetworkMode": "none",
            "Privileged": False,
            "CapDrop": ["ALL"],
            # Seccomp is not set: the engine's default filter is its strictest.
            "SecurityOpt": ["no-new-privileges:true"],
            "ReadonlyRootfs": True,
            "Mounts": mounts,
            "Tmpfs": {
                TEMPORARY: f"rw,exec,nosuid,nodev,mode=1777,size={limits.temporary}",
                SHARED_MEMORY: f"rw,noexec,nosuid,nodev,mode=1777,size={_SHARED}",
                ROOT_FILES: "rw,noexec,nosuid,nodev,mode=755,size=256k",
                # Otherwise the engine mounts message queues there, which are files that anyone can create.
                QUEUES: "ro,noexec,nosuid,nodev,mode=555,size=4k",
            },
            "PidsLimit": limits.processes,
            "Memory": limits.memory,
            "MemorySwap": limits.memory,
            "NanoCpus": int(limits.cpus * 1_000_000_000),
            "Init": True,
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "none"},
        },
    }


def _inside(path: str, folders: ContainerFolders) -> str:
    return WORKSPACE + path[len(str(folders.workspace)) :]


def _mount(here: str, inside: str, *, is_readonly: bool) -> dict[str, JsonValue]:
    return {"Type": "bind", "Source": here, "Target": inside, "ReadOnly": is_readonly, "BindOptions": {"Propagation": "rprivate"}}
