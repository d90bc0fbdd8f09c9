"""Starting a server: confined with what it was declared to need, bridged to the network, or trusted beside us; never outliving us."""

import asyncio
import os
import shutil
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
from curtainwall.model import CurtainwallError, Mode, Place, SessionId
from curtainwall.tools.servers.spec import WORKSPACE, ServerSpec


class OpenNetwork(Protocol):
    """A way to the network that is open."""

    async def close(self) -> None:
        """Hang up on everyone; calling it twice is harmless."""
        ...


class ServerNetwork(Protocol):
    """Whoever opens ways to the network for servers."""

    async def open(self, spec: ServerSpec, session: SessionId, listener: socket.socket) -> OpenNetwork:
        """Serve the sandbox's end of the bridge until the way is closed, which closes the listener as well."""
        ...


class BridgedProcess:
    """A confined server and its way to the network, which end together."""

    def __init__(self, process: ConfinedProcess, way: OpenNetwork) -> None:
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


async def start_bridged(
    argv: Sequence[str], confinement: Confinement, spec: ServerSpec, session: SessionId, ways: ServerNetwork
) -> BridgedProcess:
    """Start a confined server with a bridge; raise `ConfinementFailed`."""
    opened: list[OpenNetwork] = []

    async def serve(listener: socket.socket) -> None:
        opened.append(await ways.open(spec, session, listener))

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
# What any program needs to find its way; none of it is secret.
_ORDINARY: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")
_SETTLE: Final = 5.0
_CHUNK: Final = 65_536


class CannotStart(CurtainwallError):
    """The server could not be started; the message says what to change."""


class Pipes(Protocol):
    """What goes into a running program and comes out of it."""

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
    """A running program with pipes, as the confinement gives it and as we make it for a trusted server."""

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


@dataclass(frozen=True, slots=True)
class LaunchMachine:
    """What starting depends on besides the server: what `~` means, what no server may see, our environment, ways to the network, and
    the parts of this machine that sessions have.
    """

    home: str
    never: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    ways: ServerNetwork | None = None
    shares: Shares | None = None


async def launch(spec: ServerSpec, place: Place | None, machine: LaunchMachine) -> ServerProcess:
    """Start a server for a session, or for all of them; raise `CannotStart`."""
    found = find_bubblewrap()
    if isinstance(found, BubblewrapMissing):
        # A trusted one needs it too: nothing else ends all its children with us, however we end.
        raise CannotStart(f"no server can run on this machine: {found.reason}; {found.remedy}")
    argv = (_program(spec, machine), *(_filled(one, place) for one in spec.args))
    if spec.trusted:
        return await _start_trusted(found.path, argv, spec, machine)
    confinement = await asyncio.to_thread(confinement_of, spec, place, machine)
    if not any(is_beneath(argv[0], seen) for seen in (*_SYSTEM, *confinement.writable, *(inside for _, inside in confinement.readable))):
        raise CannotStart(f"`{argv[0]}` is not in the sandbox of `{spec.name}`; add its directory to `servers.{spec.name}.read`")
    # A server that sessions share has a part of its own, so that none of them pays for it.
    share = None if machine.shares is None else machine.shares.of(f"server {spec.name}" if place is None else place.session)
    try:
        with charged_to(share):
            if not spec.network or machine.ways is None or place is None:
                # Without a session nobody could be asked, so the server finds no network at all.
                return await start_confined(argv, confinement)
            return await start_bridged(argv, confinement, spec, place.session, machine.ways)
    except ConfinementFailed as fault:
        raise CannotStart(f"`{spec.name}` cannot be started: {fault}") from fault


def confinement_of(spec: ServerSpec, place: Place | None, machine: LaunchMachine) -> Confinement:
    """Return what a server's sandbox holds; in plan mode all of it is read-only, and what runs later by itself always is."""
    read, write = _paths(spec.read, place, machine), _paths(spec.write, place, machine)
    workspace = None if place is None else os.path.realpath(place.workspace.path)
    for path in (*read, *read.values(), *write, *write.values()):
        for never in machine.never:
            # A session's own workspace lies in our home, and is the one thing there that may be given.
            is_its_own = workspace is not None and is_beneath(workspace, never) and is_beneath(path, workspace)
            if is_beneath(path, never) and not is_its_own:
                raise CannotStart(f"`{spec.name}` cannot be given {quoted(path)}: it lies in the protected path {quoted(never)}")
    if place is not None and place.mode is Mode.PLAN:
        read, write = {**read, **write}, {}
    real = tuple(dict.fromkeys(write.values()))
    readable = dict.fromkeys((outside, inside) for path, outside in read.items() for inside in (outside, path) if outside not in real)
    hidden = tuple(never for never in machine.never if any(is_beneath(never, path) and never != path for path in (*real, *read.values())))
    hidden += _fifos(spec, (*((path, path) for path in real), *readable), hidden)
    own = workspace is not None and place is not None and place.workspace.own
    fixed = [
        path for root in real if not (own and workspace is not None and is_beneath(root, workspace)) for path in _runs_later(spec, root)
    ]
    return Confinement(
        cwd=HOME, writable=real, readable=tuple(readable), fixed=tuple(fixed), hidden=hidden, environment=spec.environment, bounds=BOUNDS
    )


def _fifos(spec: ServerSpec, given: Iterable[tuple[str, str]], hidden: Sequence[str]) -> tuple[str, ...]:
    """Return the named pipes in directories that a server is given, as they are called inside; one that it was given by name is its own."""
    found = dict[str, None]()
    for outside, inside in given:
        try:
            fifos = find_fifos(outside)
        except TooManyFifos:
            raise CannotStart(f"`{spec.name}` cannot be given {quoted(outside)}: it holds more than {MOST_FIFOS} named pipes") from None
        found |= dict.fromkeys(inside + path[len(outside) :] for path in fifos if not any(is_beneath(path, one) for one in hidden))
    return tuple(found)


def _runs_later(spec: ServerSpec, root: str) -> Sequence[str]:
    try:
        return find_later(root).fixed(git_works=True)
    except TooMany:
        raise CannotStart(f"`{spec.name}` cannot write to {quoted(root)}: it has too many files to keep those that run later") from None


def _paths(declared: Iterable[str], place: Place | None, machine: LaunchMachine) -> dict[str, str]:
    """Return declared paths, each as it is written with what it really is."""
    found: dict[str, str] = {}
    for told in declared:
        path = _filled(told, place)
        path = os.path.normpath(f"{machine.home}{path[1:]}" if path.startswith("~/") else path)
        if not os.path.exists(path):
            raise CannotStart(f"{quoted(path)}, which the server was declared to need, is not there")
        found[path] = os.path.realpath(path)
    return found


def _filled(text: str, place: Place | None) -> str:
    if WORKSPACE not in text:
        return text
    if place is None:
        raise CannotStart(f"`{WORKSPACE}` means nothing without a session")
    return text.replace(WORKSPACE, place.workspace.path)


def _program(spec: ServerSpec, machine: LaunchMachine) -> str:
    told = f"{machine.home}{spec.command[1:]}" if spec.command.startswith("~/") else spec.command
    ours = machine.environ.get("PATH", os.defpath)
    # Of two programs of one name, the sandbox has the system's.
    found = (None if spec.trusted or "/" in told else shutil.which(told, path=_INSIDE)) or shutil.which(told, path=ours)
    if found is None:
        why = "is not there or cannot be run" if "/" in told else "is not on the path"
        raise CannotStart(f"the program {quoted(told)} of `{spec.name}` {why}; install it, or correct `servers.{spec.name}.command`")
    return os.path.abspath(found)


class TrustedProcess(Piped):
    """A program beside us, with our network and files. It has a process namespace of its own, so that nothing it started outlives it."""

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
            # The pipes end when the last of its children has let go of them, and only then is its own end seen.
            with suppress(TimeoutError, RuntimeError):
                async with asyncio.timeout(_SETTLE):
                    while await reader.read(_CHUNK):
                        pass
        await self._process.wait()


async def _start_trusted(bubblewrap: str, argv: Sequence[str], spec: ServerSpec, machine: LaunchMachine) -> TrustedProcess:
    words = ["--dev-bind", "/", "/", "--proc", "/proc", "--unshare-pid", "--die-with-parent", "--chdir", "/", "--"]
    ordinary = {name: machine.environ[name] for name in _ORDINARY if name in machine.environ}
    try:
        process = await asyncio.create_subprocess_exec(
            bubblewrap, *words, *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, env={**ordinary, **spec.environment}, start_new_session=True
        )
    except (OSError, ValueError) as fault:
        raise CannotStart(f"`{spec.name}` cannot be started: {fault}") from fault
    return TrustedProcess(process)
