"""Run one hook: a command as a process group within limits, or an HTTP hook as one POST."""

import asyncio
import os
import re
import signal
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from curtainwall.facts import Masker, is_beneath
from curtainwall.model import Place, record
from curtainwall.tools.hooks.settings import CommandHook, HttpHook
from curtainwall.tools.runners import CannotDo

if TYPE_CHECKING:
    from curtainwall.tools.fetch.exchange import HttpRequest

MOST_OUTPUT: Final = 1024 * 1024
# How long processes that a hook left behind may hold its output open before we use what has arrived.
_GRACE: Final = 0.5
SEARCHED: Final = frozenset(
    "PATH LD_LIBRARY_PATH LD_PRELOAD LD_AUDIT BASH_ENV ENV PYTHONPATH PYTHONHOME PYTHONSTARTUP NODE_PATH PERL5LIB RUBYLIB".split()
)
"""Variables that tell shells, the loader and interpreters where to find what they run or load."""


@record
class HookRun:
    """How a hook ended: with an exit code and output, or with a description of the failure."""

    code: int = 0
    out: bytes = b""
    err: bytes = b""
    failure: str = ""


def environment_without_secrets(environ: Mapping[str, str], masker: Masker, withheld: frozenset[str]) -> dict[str, str]:
    """Return the user's environment without the withheld variables and any that hold a known secret."""
    return {name: value for name, value in environ.items() if name not in withheld and not masker.holds_known(value)}


def hook_environment(environ: Mapping[str, str], masker: Masker, place: Place, withheld: frozenset[str]) -> dict[str, str]:
    """Return a hook's environment: the user's without secrets and search paths in the workspace, plus its project and session."""
    passed = environment_without_workspace(environment_without_secrets(environ, masker, withheld), place.workspace.path)
    return {**passed, "CLAUDE_PROJECT_DIR": place.workspace.path, "CURTAINWALL_SESSION": place.session}


def environment_without_workspace(environ: Mapping[str, str], workspace: str) -> dict[str, str]:
    """Return an environment without search paths in the workspace, where an agent could plant programs.

    A relative path is dropped too: it leads into the workspace whenever a hook changes to it.
    """
    passed = dict(environ)
    for name in SEARCHED & passed.keys():
        value = passed.pop(name)
        outside = [
            path
            for path in re.split("[: ]" if name == "LD_PRELOAD" else ":", value)
            if os.path.isabs(path) and not _lies_in(path, workspace)
        ]
        if outside:
            passed[name] = ":".join(outside)
    return passed


def _lies_in(location: str, workspace: str) -> bool:
    return any(is_beneath(path, workspace) for path in (os.path.normpath(location), os.path.realpath(location)))


async def run_program(program: CommandHook, payload: bytes, environ: Mapping[str, str], directory: str, seconds: float) -> HookRun:
    """Run a hook to completion with the event on standard input; nothing in its process group outlives it."""
    failure = ""
    try:
        async with _started(program, payload, environ, directory) as (child, out, err, changed):
            try:
                async with asyncio.timeout(seconds):
                    await _wait_for_end(child, out, err, changed)
            except TimeoutError:
                failure = f"it did not end within {seconds:g} seconds"
            if out.is_full or err.is_full:
                failure = f"it printed more than {MOST_OUTPUT} bytes"
    except (OSError, ValueError) as error:
        return HookRun(failure=f"it could not be started: {(getattr(error, 'strerror', None) or str(error)).lower()}")
    code = child.returncode or 0
    if not failure and code < 0:
        failure = f"it was ended by signal {-code}"
    return HookRun(code, bytes(out.kept), bytes(err.kept), failure)


async def _wait_for_end(child: asyncio.subprocess.Process, out: "_Printed", err: "_Printed", changed: asyncio.Event) -> None:
    """Wait until the hook's process has exited and its output is complete, or the output is too large."""
    exited = asyncio.ensure_future(child.wait())
    exited.add_done_callback(lambda _: changed.set())
    try:
        while not (exited.done() or out.is_full or err.is_full):
            changed.clear()
            await changed.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                while not (out.has_ended and err.has_ended) and not (out.is_full or err.is_full):
                    changed.clear()
                    await changed.wait()
    finally:
        exited.cancel()


class _Printed(asyncio.Protocol):
    """Collect the output of one pipe up to a limit and set the event on each change."""

    def __init__(self, changed: asyncio.Event) -> None:
        self.kept = bytearray()
        self.is_full = False
        self.has_ended = False
        self._changed = changed

    def data_received(self, data: bytes) -> None:
        room = MOST_OUTPUT - len(self.kept)
        self.kept += data[:room]
        if len(data) > room:
            self.is_full = True
            self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        self.has_ended = True
        self._changed.set()


@asynccontextmanager
async def _started(
    program: CommandHook, payload: bytes, environ: Mapping[str, str], directory: str
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, _Printed, _Printed, asyncio.Event]]:
    """Start a hook as the leader of a process group, and kill the group when the block exits for any reason."""
    changed, loop = asyncio.Event(), asyncio.get_running_loop()
    outputs = (_Printed(changed), _Printed(changed))
    # We create the pipes: with those of the process object, a grandchild that keeps one open would block the wait for the hook.
    (out, out_in), (err, err_in) = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
    # The event is in memory, so a hook may read it at any time or never.
    stdin = os.memfd_create("event", os.MFD_CLOEXEC)
    transports: list[asyncio.ReadTransport] = []
    child: asyncio.subprocess.Process | None = None
    try:
        for descriptor, protocol in zip((out, err), outputs, strict=True):
            pipe = os.fdopen(descriptor, "rb", buffering=0)
            transports.append((await loop.connect_read_pipe(lambda protocol=protocol: protocol, pipe))[0])
        _fill(stdin, payload)
        try:
            child = await asyncio.create_subprocess_exec(
                *_words(program, environ), stdin=stdin, stdout=out_in, stderr=err_in, env=environ, cwd=directory, start_new_session=True
            )
        finally:
            for descriptor in (stdin, out_in, err_in):
                os.close(descriptor)
        yield child, *outputs, changed
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
    # Without a shell, we substitute the directory ourselves. A bare program name is looked up on the user's PATH.
    project = environ.get("CLAUDE_PROJECT_DIR", "${CLAUDE_PROJECT_DIR}")
    return tuple(word.replace("${CLAUDE_PROJECT_DIR}", project) for word in (program.line, *program.arguments))


_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\}|(?P<plain>[A-Za-z_][A-Za-z0-9_]*))")
_OURS: Final = frozenset("host content-length content-type transfer-encoding connection".split())
_GOOD: Final = range(200, 300)


async def post_event(endpoint: HttpHook, payload: bytes, environ: Mapping[str, str], seconds: float) -> HookRun:
    """Post the event. Any status other than 2xx is a failure, and redirects are not followed."""
    # Start-up time: most hooks are commands.
    from curtainwall.host import Connection, system_trust
    from curtainwall.tools.fetch.exchange import exchange

    facts = endpoint.url.facts
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(facts.host, facts.port, ssl=system_trust() if facts.secure else None)
            connection = Connection(reader, writer, facts.host)
            try:
                reply = await exchange(connection, _request(endpoint, payload, environ), MOST_OUTPUT)
            finally:
                await connection.close()
    except TimeoutError:
        return HookRun(failure=f"it did not answer within {seconds:g} seconds")
    except CannotDo as error:
        return HookRun(failure=str(error))
    except ssl.SSLCertVerificationError as error:
        return HookRun(failure=f"`{facts.host}` showed a certificate that is not valid for it: {error.verify_message}")
    except OSError as error:
        return HookRun(failure=f"it cannot be reached: {(error.strerror or type(error).__name__).lower()}")
    if reply.status not in _GOOD:
        return HookRun(failure=f"it answered with status {reply.status}")
    if reply.cut:
        return HookRun(failure=f"it answered with more than {MOST_OUTPUT} bytes")
    return HookRun(out=reply.body)


def _request(endpoint: HttpHook, payload: bytes, environ: Mapping[str, str]) -> "HttpRequest":
    # Start-up time: as above.
    from curtainwall.tools.fetch.exchange import HttpRequest

    def value_of(match: re.Match[str]) -> str:
        name = match["braced"] or match["plain"]
        return environ.get(name, "") if name in endpoint.variables else ""

    custom = tuple((name, _VARIABLE.sub(value_of, value)) for name, value in endpoint.headers if name.lower() not in _OURS)
    origin = endpoint.url.origin
    standard = (("Host", origin.partition("://")[2]), ("Content-Type", "application/json"), ("Connection", "close"))
    return HttpRequest("POST", endpoint.url.text[len(origin) :] or "/", (*standard, *custom), payload)
