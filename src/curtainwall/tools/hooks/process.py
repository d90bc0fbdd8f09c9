"""One hook run: a command as a process group within limits, or an HTTP hook as one POST."""

import asyncio
import os
import re
import signal
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from curtainwall.facts import Masker, is_beneath
from curtainwall.host import Connection, system_trust
from curtainwall.model import Place
from curtainwall.tools.fetch.exchange import HttpRequest, exchange
from curtainwall.tools.hooks.settings import CommandHook, HttpHook
from curtainwall.tools.runners import CannotDo

MOST_OUTPUT: Final = 1024 * 1024
# How long what a hook left behind may hold its output open before we take what is there.
_GRACE: Final = 0.5
SEARCHED: Final = frozenset(
    "PATH LD_LIBRARY_PATH LD_PRELOAD LD_AUDIT BASH_ENV ENV PYTHONPATH PYTHONHOME PYTHONSTARTUP NODE_PATH PERL5LIB RUBYLIB".split()
)
"""Variables by which shells, the loader and interpreters find what they run or load."""


@dataclass(frozen=True, slots=True)
class HookRun:
    """How a hook ended: with an exit code and what it printed, or with a failure in words."""

    code: int = 0
    out: bytes = b""
    err: bytes = b""
    failure: str = ""


def environment_without_secrets(environ: Mapping[str, str], masker: Masker, withheld: frozenset[str]) -> dict[str, str]:
    """Return the user's own environment without our secrets: neither the variables named nor any that holds a known value."""
    return {name: value for name, value in environ.items() if name not in withheld and not masker.holds_known(value)}


def hook_environment(environ: Mapping[str, str], masker: Masker, place: Place, withheld: frozenset[str]) -> dict[str, str]:
    """Return what a hook finds in its environment: the user's own without our secrets and places of the agent's, and where it is."""
    passed = environment_without_workspace(environment_without_secrets(environ, masker, withheld), place.workspace.path)
    return {**passed, "CLAUDE_PROJECT_DIR": place.workspace.path, "CURTAINWALL_SESSION": place.session}


def environment_without_workspace(environ: Mapping[str, str], workspace: str) -> dict[str, str]:
    """Return an environment that has nothing looked for in the workspace, where an agent could put it.

    A place that does not begin at the root is one in the workspace wherever a hook goes there.
    """
    passed = dict(environ)
    for name in SEARCHED & passed.keys():
        told = passed.pop(name)
        kept = [
            place
            for place in re.split("[: ]" if name == "LD_PRELOAD" else ":", told)
            if os.path.isabs(place) and not _lies_in(place, workspace)
        ]
        if kept:
            passed[name] = ":".join(kept)
    return passed


def _lies_in(place: str, workspace: str) -> bool:
    return any(is_beneath(path, workspace) for path in (os.path.normpath(place), os.path.realpath(place)))


async def run_program(program: CommandHook, told: bytes, environ: Mapping[str, str], directory: str, seconds: float) -> HookRun:
    """Run a hook to its end with the event on its standard input; nothing that it started in its group outlives it."""
    failure = ""
    try:
        async with _started(program, told, environ, directory) as (child, out, err, moved):
            try:
                async with asyncio.timeout(seconds):
                    await _until_over(child, out, err, moved)
            except TimeoutError:
                failure = f"it did not end within {seconds:g} seconds"
            if out.is_full or err.is_full:
                failure = f"it printed more than {MOST_OUTPUT} bytes"
    except (OSError, ValueError) as fault:
        return HookRun(failure=f"it could not be started: {(getattr(fault, 'strerror', None) or str(fault)).lower()}")
    code = child.returncode or 0
    if not failure and code < 0:
        failure = f"it was ended by signal {-code}"
    return HookRun(code, bytes(out.kept), bytes(err.kept), failure)


async def _until_over(child: asyncio.subprocess.Process, out: "_Printed", err: "_Printed", moved: asyncio.Event) -> None:
    """Wait until the hook's own process has ended, and for the last of its output; too much output is an end as well."""
    ending = asyncio.ensure_future(child.wait())
    ending.add_done_callback(lambda _: moved.set())
    try:
        while not (ending.done() or out.is_full or err.is_full):
            moved.clear()
            await moved.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                while not (out.has_ended and err.has_ended) and not (out.is_full or err.is_full):
                    moved.clear()
                    await moved.wait()
    finally:
        ending.cancel()


class _Printed(asyncio.Protocol):
    """What comes out of one pipe, up to a limit; each change is told by the event."""

    def __init__(self, moved: asyncio.Event) -> None:
        self.kept = bytearray()
        self.is_full = False
        self.has_ended = False
        self._moved = moved

    def data_received(self, data: bytes) -> None:
        room = MOST_OUTPUT - len(self.kept)
        self.kept += data[:room]
        if len(data) > room:
            self.is_full = True
            self._moved.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        self.has_ended = True
        self._moved.set()


@asynccontextmanager
async def _started(
    program: CommandHook, told: bytes, environ: Mapping[str, str], directory: str
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, _Printed, _Printed, asyncio.Event]]:
    """Start a hook as the leader of a group, and end that group afterwards, however the block is left."""
    moved, loop = asyncio.Event(), asyncio.get_running_loop()
    printed = (_Printed(moved), _Printed(moved))
    # The pipes are ours: with those of the process object, a child that keeps one open would hold up the wait for its parent.
    (out, out_in), (err, err_in) = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
    # The event waits in memory. A hook may read it whenever it likes, or never.
    event = os.memfd_create("event", os.MFD_CLOEXEC)
    transports: list[asyncio.ReadTransport] = []
    child: asyncio.subprocess.Process | None = None
    try:
        for descriptor, protocol in zip((out, err), printed, strict=True):
            pipe = os.fdopen(descriptor, "rb", buffering=0)
            transports.append((await loop.connect_read_pipe(lambda protocol=protocol: protocol, pipe))[0])
        _fill(event, told)
        try:
            child = await asyncio.create_subprocess_exec(
                *_words(program, environ), stdin=event, stdout=out_in, stderr=err_in, env=environ, cwd=directory, start_new_session=True
            )
        finally:
            for descriptor in (event, out_in, err_in):
                os.close(descriptor)
        yield child, *printed, moved
    finally:
        for transport in transports:
            transport.close()
        if child is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            await asyncio.shield(child.wait())


def _fill(descriptor: int, content: bytes) -> None:
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
        file.flush()
        file.seek(0)


def _words(program: CommandHook, environ: Mapping[str, str]) -> tuple[str, ...]:
    if program.arguments is None:
        return (program.shell, "-c", program.line)
    # Without a shell nobody would put the directory in; a program that is no path is looked for where the user's shell would.
    place = environ.get("CLAUDE_PROJECT_DIR", "${CLAUDE_PROJECT_DIR}")
    return tuple(word.replace("${CLAUDE_PROJECT_DIR}", place) for word in (program.line, *program.arguments))


_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\}|(?P<plain>[A-Za-z_][A-Za-z0-9_]*))")
_OURS: Final = frozenset("host content-length content-type transfer-encoding connection".split())
_GOOD: Final = range(200, 300)


async def post_event(endpoint: HttpHook, told: bytes, environ: Mapping[str, str], seconds: float) -> HookRun:
    """Post the event; any answer but 2xx is a failure, and no redirect is followed."""
    facts = endpoint.url.facts
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(facts.host, facts.port, ssl=system_trust() if facts.secure else None)
            connection = Connection(reader, writer, facts.host)
            try:
                reply = await exchange(connection, _request(endpoint, told, environ), MOST_OUTPUT)
            finally:
                await connection.close()
    except TimeoutError:
        return HookRun(failure=f"it did not answer within {seconds:g} seconds")
    except CannotDo as fault:
        return HookRun(failure=str(fault))
    except ssl.SSLCertVerificationError as fault:
        return HookRun(failure=f"`{facts.host}` showed a certificate that is not valid for it: {fault.verify_message}")
    except OSError as fault:
        return HookRun(failure=f"it cannot be reached: {(fault.strerror or type(fault).__name__).lower()}")
    if reply.status not in _GOOD:
        return HookRun(failure=f"it answered with status {reply.status}")
    if reply.cut:
        return HookRun(failure=f"it answered with more than {MOST_OUTPUT} bytes")
    return HookRun(out=reply.body)


def _request(endpoint: HttpHook, told: bytes, environ: Mapping[str, str]) -> HttpRequest:
    def value_of(found: re.Match[str]) -> str:
        name = found["braced"] or found["plain"]
        return environ.get(name, "") if name in endpoint.variables else ""

    own = tuple((name, _VARIABLE.sub(value_of, value)) for name, value in endpoint.headers if name.lower() not in _OURS)
    origin = endpoint.url.origin
    head = (("Host", origin.partition("://")[2]), ("Content-Type", "application/json"), ("Connection", "close"))
    return HttpRequest("POST", endpoint.url.text[len(origin) :] or "/", (*head, *own), told)
