"""Start a server: confined to its declared needs, bridged to the network, or trusted and unconfined. No server outlives us."""

import asyncio
import os
import shutil
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Final, Protocol

from curtainwall.facts import is_beneath, quoted
from curtainwall.host import (
    HOME,
    MOST_FIFOS,
    Bounds,
    Bridge,
    BubblewrapMissing,
    ConfinedProcess,
    Confinement,
    ConfinementFailed,
    Piped,
    Shares,
    TooMany,
    TooManyFifos,
    charged_to,
    find_bubblewrap,
    find_fifos,
    find_later,
    start_confined,
)
from curtainwall.model import CurtainwallError, Mode, Place, SessionId, record, works_on_view
from curtainwall.tools.servers.spec import WORKSPACE, ServerSpec


class OpenNetwork(Protocol):
    """An open route to the network."""

    async def close(self) -> None:
        """Close all connections; calling it twice is harmless."""
        ...


class ServerNetwork(Protocol):
    """Opens routes to the network for servers."""

    async def open(self, spec: ServerSpec, session: SessionId, listener: socket.socket) -> OpenNetwork:
        """Serve the sandbox's end of the bridge until the route is closed, which also closes the listener."""
        ...


class BridgedProcess:
    """A confined server and its route to the network, which end together."""

    def __init__(self, process: ConfinedProcess, network: OpenNetwork) -> None:
        self._process = process
        self._network = network

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
        """End it if it still runs, together with its route to the network; calling it twice is harmless."""
        try:
            await self._process.close()
        finally:
            await self._network.close()


async def start_bridged(
    argv: Sequence[str], confinement: Confinement, spec: ServerSpec, session: SessionId, network: ServerNetwork
) -> BridgedProcess:
    """Start a confined server with a bridge; raise `ConfinementFailed`."""
    opened: list[OpenNetwork] = []

    async def serve(listener: socket.socket) -> None:
        opened.append(await network.open(spec, session, listener))

    try:
        process = await start_confined(argv, replace(confinement, bridge=Bridge(serve)))
    except BaseException:
        for way in opened:
            await way.close()
        raise
    return BridgedProcess(process, opened[0])


BOUNDS: Final = Bounds(seconds=None, processes=128)
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_INSIDE: Final = "/usr/local/bin:/usr/bin:/bin"
# Variables that any program needs; none of them is secret.
_ORDINARY: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")
_SETTLE: Final = 5.0
_CHUNK: Final = 65_536


class CannotStart(CurtainwallError):
    """The server could not be started; the message says what to change."""


class Pipes(Protocol):
    """The standard streams of a running program."""

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """Return where its input goes."""
        ...

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Return what it prints."""
        ...

    @property
    def stderr(self) -> asyncio.StreamReader:
        """Return what it complains about."""
        ...


class ServerProcess(Pipes, Protocol):
    """A running program with pipes, confined or trusted."""

    @property
    def stopped(self) -> str | None:
        """Return why we ended it, where we did."""
        ...

    def kill(self, why: str | None = None) -> None:
        """End it and everything it started at once."""
        ...

    async def close(self) -> None:
        """End it if it still runs and let go of everything; calling it twice is harmless."""
        ...


@record
class LaunchMachine:
    """What starting depends on besides the server: the home directory, paths that no server may see, our environment, routes to the
    network, and the sessions' shares of this machine.
    """

    home: str
    never: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    network: ServerNetwork | None = None
    shares: Shares | None = None


async def launch(spec: ServerSpec, place: Place | None, machine: LaunchMachine) -> ServerProcess:
    """Start a server for a session, or for all of them; raise `CannotStart`."""
    bubblewrap = find_bubblewrap()
    if isinstance(bubblewrap, BubblewrapMissing):
        # A trusted server needs it too: nothing else reliably ends all its children when we end.
        raise CannotStart(f"no server can run on this machine: {bubblewrap.reason}; {bubblewrap.remedy}")
    argv = (_program(spec, machine), *(_filled(argument, place) for argument in spec.args))
    if spec.trusted:
        return await _start_trusted(bubblewrap.path, argv, spec, machine)
    confinement = await asyncio.to_thread(confinement_of, spec, place, machine)
    if not any(
        is_beneath(argv[0], visible) for visible in (*_SYSTEM, *confinement.writable, *(inside for _, inside in confinement.readable))
    ):
        raise CannotStart(f"`{argv[0]}` is not in the sandbox of `{spec.name}`; add its directory to `servers.{spec.name}.read`")
    # A shared server has its own share, so that no session pays for it.
    share = None if machine.shares is None else machine.shares.of(f"server {spec.name}" if place is None else place.session)
    try:
        with charged_to(share):
            if not spec.network or machine.network is None or place is None:
                # Without a session there is nobody to ask, so the server gets no network.
                return await start_confined(argv, confinement)
            return await start_bridged(argv, confinement, spec, place.session, machine.network)
    except ConfinementFailed as error:
        raise CannotStart(f"`{spec.name}` cannot be started: {error}") from error


def confinement_of(spec: ServerSpec, place: Place | None, machine: LaunchMachine) -> Confinement:
    """Return the sandbox of a server.

    In plan mode all of it is read-only, and in review mode the project is; files that run later automatically always are.
    """
    read, write = _paths(spec.read, place, machine), _paths(spec.write, place, machine)
    workspace = None if place is None else os.path.realpath(place.workspace.path)
    for path in (*read, *read.values(), *write, *write.values()):
        for never in machine.never:
            # A session's own workspace is in our home, and is the only thing there that a server may get.
            is_its_own = workspace is not None and is_beneath(workspace, never) and is_beneath(path, workspace)
            if is_beneath(path, never) and not is_its_own:
                raise CannotStart(f"`{spec.name}` cannot be given {quoted(path)}: it lies in the protected path {quoted(never)}")
    if place is not None and place.mode is Mode.PLAN:
        read, write = {**read, **write}, {}
    if place is not None and workspace is not None and works_on_view(place.workspace, place.mode):
        # It sees the project and not the view, and what it wrote there nobody would have reviewed.
        projects = {path: real for path, real in write.items() if is_beneath(real, workspace) or is_beneath(workspace, real)}
        read, write = {**read, **projects}, {path: real for path, real in write.items() if path not in projects}
    writable_paths = tuple(dict.fromkeys(write.values()))
    readable = dict.fromkeys(
        (outside, inside) for path, outside in read.items() for inside in (outside, path) if outside not in writable_paths
    )
    hidden = tuple(
        never for never in machine.never if any(is_beneath(never, path) and never != path for path in (*writable_paths, *read.values()))
    )
    hidden += _fifos(spec, (*((path, path) for path in writable_paths), *readable), hidden)
    is_own_workspace = workspace is not None and place is not None and place.workspace.own
    fixed = [
        path
        for root in writable_paths
        if not (is_own_workspace and workspace is not None and is_beneath(root, workspace))
        for path in _runs_later(spec, root)
    ]
    return Confinement(
        cwd=HOME,
        writable=writable_paths,
        readable=tuple(readable),
        fixed=tuple(fixed),
        hidden=hidden,
        environment=spec.environment,
        bounds=BOUNDS,
    )


def _fifos(spec: ServerSpec, given: Iterable[tuple[str, str]], hidden: Sequence[str]) -> tuple[str, ...]:
    """Return the named pipes in a server's directories by their paths inside the sandbox; a pipe that was given by name is excluded."""
    fifos_inside = dict[str, None]()
    for outside, inside in given:
        try:
            fifos = find_fifos(outside)
        except TooManyFifos:
            raise CannotStart(f"`{spec.name}` cannot be given {quoted(outside)}: it holds more than {MOST_FIFOS} named pipes") from None
        fifos_inside |= dict.fromkeys(
            inside + path[len(outside) :] for path in fifos if not any(is_beneath(path, covered) for covered in hidden)
        )
    return tuple(fifos_inside)


def _runs_later(spec: ServerSpec, root: str) -> Sequence[str]:
    try:
        return find_later(root).fixed(git_works=True)
    except TooMany:
        raise CannotStart(f"`{spec.name}` cannot write to {quoted(root)}: it has too many files to keep those that run later") from None


def _paths(declared: Iterable[str], place: Place | None, machine: LaunchMachine) -> dict[str, str]:
    """Return declared paths, each mapped to its real path."""
    resolved: dict[str, str] = {}
    for text in declared:
        path = _filled(text, place)
        path = os.path.normpath(f"{machine.home}{path[1:]}" if path.startswith("~/") else path)
        if not os.path.exists(path):
            raise CannotStart(f"{quoted(path)}, which the server was declared to need, is not there")
        resolved[path] = os.path.realpath(path)
    return resolved


def _filled(text: str, place: Place | None) -> str:
    if WORKSPACE not in text:
        return text
    if place is None:
        raise CannotStart(f"`{WORKSPACE}` means nothing without a session")
    return text.replace(WORKSPACE, place.workspace.path)


def _program(spec: ServerSpec, machine: LaunchMachine) -> str:
    command = f"{machine.home}{spec.command[1:]}" if spec.command.startswith("~/") else spec.command
    ours = machine.environ.get("PATH", os.defpath)
    # If two programs have the same name, the sandbox uses the system's.
    program = (None if spec.trusted or "/" in command else shutil.which(command, path=_INSIDE)) or shutil.which(command, path=ours)
    if program is None:
        why = "is not there or cannot be run" if "/" in command else "is not on the path"
        raise CannotStart(f"the program {quoted(command)} of `{spec.name}` {why}; install it, or correct `servers.{spec.name}.command`")
    return os.path.abspath(program)


class TrustedProcess(Piped):
    """An unconfined program with our network and files, in its own process namespace so that nothing it starts outlives it."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self.stopped: str | None = None

    def kill(self, why: str | None = None) -> None:
        """End it and everything it started at once."""
        if self.stopped is None:
            self.stopped = why
        with suppress(ProcessLookupError):
            if self._process.returncode is None:
                self._process.kill()

    async def close(self) -> None:
        """End it if it still runs and let go of everything; calling it twice is harmless."""
        self.kill()
        await asyncio.shield(self._end())

    async def _end(self) -> None:
        self.stdin.close()
        for reader in (self.stdout, self.stderr):
            # The pipes end when its last child has closed them, and only then is its own exit noticed.
            with suppress(TimeoutError, RuntimeError):
                async with asyncio.timeout(_SETTLE):
                    while await reader.read(_CHUNK):
                        pass
        await self._process.wait()


async def _start_trusted(bubblewrap: str, argv: Sequence[str], spec: ServerSpec, machine: LaunchMachine) -> TrustedProcess:
    options = ["--dev-bind", "/", "/", "--proc", "/proc", "--unshare-pid", "--die-with-parent", "--chdir", "/", "--"]
    ordinary = {name: machine.environ[name] for name in _ORDINARY if name in machine.environ}
    try:
        process = await asyncio.create_subprocess_exec(
            bubblewrap, *options, *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, env={**ordinary, **spec.environment}, start_new_session=True
        )
    except (OSError, ValueError) as error:
        raise CannotStart(f"`{spec.name}` cannot be started: {error}") from error
    return TrustedProcess(process)
