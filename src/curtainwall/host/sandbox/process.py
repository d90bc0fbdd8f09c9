"""Starts confined processes for shell, git, tool servers and agents: without network, home or files of ours, and none outlives us."""

import asyncio
import json
import os
import select
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Self, cast

from curtainwall.host.files.beneath import FileOwner, open_beneath, owner_of
from curtainwall.host.sandbox.bubblewrap import BubblewrapMissing, file_of, find_bubblewrap, plan_of
from curtainwall.host.sandbox.cgroups import ProcessGroup
from curtainwall.host.sandbox.confinement import MIB, Bridge, Confinement, ConfinementFailed, Finished, Piped, listen_inside
from curtainwall.host.sandbox.limits import DiskRoom, overuse, owner_words, set_limits, usage_of
from curtainwall.host.sandbox.shares import CommandPlace, SandboxUsage, Share, charged
from curtainwall.host.sandbox.sockets import broker_words, with_sockets_held
from curtainwall.model import view_use

_CHUNK: Final = 65_536
_DRAIN_FACTOR: Final = 256
_CHECK_SECONDS: Final = 0.2
_SETTLE_SECONDS: Final = 5.0
_SETUP_SECONDS: Final = 30.0

# Bubblewrap ties a process to our life only after it has started it. So the first program inside reports that it is ready and continues
# when we answer; if we are gone by then, nothing ever runs.
# The descriptors that led into a view are closed before anything of the agent's runs.
GATE: Final = (
    'for v in $4; do exec {v}<&-; done; echo >&"$1"; read -r go <&"$2" || exit 125; r=$1 g=$2 s=$3; shift 4; exec {r}>&- {g}<&- {s}<&- "$@"'
)


class ConfinedProcess(Piped):
    """A running confined process. The caller must close it; when our own process ends in any way, the kernel kills it."""

    def __init__(
        self, process: Process, outer: int, status: asyncio.StreamReader, child: int, confinement: Confinement, charge: "Charge"
    ) -> None:
        super().__init__(process)
        self._charge = charge
        self.usage = SandboxUsage()
        self._status = status
        self._child = child
        # INVARIANT: we refer to processes by descriptor, so that a kill never hits another process with a reused number.
        self._first = os.pidfd_open(child)
        self._group: ProcessGroup | None = None
        self._outer = outer
        self._bounds = confinement.bounds
        self._is_ours = not confinement.as_owner
        self._room = DiskRoom(confinement.writable, confinement.bounds.spare)
        self._watching = asyncio.create_task(self._watch())
        self._ended = asyncio.create_task(self._end())
        self._closing: asyncio.Task[None] | None = None
        self.stopped: str | None = None

    @property
    def pid(self) -> int:
        """Return the process id, as seen from outside, of the first process inside."""
        return self._child

    async def wait(self) -> int:
        """Wait until it and everything it started are gone, and return its exit code; 128 plus the number if a signal ended it."""
        code = await asyncio.shield(self._ended)
        if code is None:
            raise ConfinementFailed("the confinement could not be set up")
        return code

    def bound(self) -> None:
        """Set its limits, before it does anything."""
        self._group = set_limits(self._child, self._bounds, self._charge.share, is_ours=self._is_ours)

    def weigh(self) -> None:
        """Measure what it uses exactly, so that memory which its processes share counts once."""
        self.usage = usage_of(self._child, self._bounds.processes, is_exact=True)

    def kill(self, why: str | None = None) -> None:
        """Kill it and everything it started at once."""
        if self.stopped is None:
            self.stopped = why
        for process in (self._first, self._outer):
            _kill(process)

    async def close(self) -> None:
        """Kill it if it still runs and release everything; calling it twice is harmless."""
        self.kill()
        if self._closing is None:
            self._closing = asyncio.create_task(self._release())
        # Clean-up completes even if the caller is cancelled.
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        """Return the process itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    async def _end(self) -> int | None:
        """Wait for its end, clean up, and return its exit code; None if it never began."""
        try:
            code_of_bubblewrap = await self._process.wait()
            await self._until_gone()
            code = _exit_code(await self._status.read())
            return code if code is not None else 128 - code_of_bubblewrap if code_of_bubblewrap < 0 else None
        finally:
            self._watching.cancel()
            self.kill()
            for process in (self._first, self._outer):
                os.close(process)
            self._first = self._outer = -1
            if self._group is not None:
                if self.stopped is None and self._group.was_short_of_memory():
                    self.stopped = self._charge.memory_fault()
                self._group.remove()
            self._charge.end(self)

    async def _release(self) -> None:
        # INVARIANT: we drain output that nobody reads any more: asyncio reports the end only after the last byte is read.
        streams = [reader for reader in (self._process.stdout, self._process.stderr) if reader is not None]
        drains = [asyncio.create_task(_drain(reader)) for reader in streams]
        await asyncio.wait([self._ended])
        if self._process.stdin is not None:
            self._process.stdin.close()
        if drains:
            await asyncio.wait(drains, timeout=_SETTLE_SECONDS)
        for task in drains:
            task.cancel()

    async def _until_gone(self) -> None:
        """Wait for the first process of the namespace, which is the last to go."""
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        if select.select([self._first], [], [], 0)[0]:
            return
        watched = os.dup(self._first)
        loop.add_reader(watched, gone.set)
        try:
            async with asyncio.timeout(_SETTLE_SECONDS):
                await gone.wait()
        except TimeoutError:
            _kill(self._first)
        finally:
            loop.remove_reader(watched)
            os.close(watched)

    async def _watch(self) -> None:
        pause = _CHECK_SECONDS
        while True:
            await asyncio.sleep(pause)
            # Check a long-lived server less often.
            pause = min(pause * 1.02, _CHECK_SECONDS * 5)
            self.usage = usage_of(self._child, self._bounds.processes)
            reason = overuse(self._child, self._bounds, self.usage) or self._room.missing()
            if reason is not None:
                self.kill(reason)
                return
            self._charge.look()


async def _drain(reader: asyncio.StreamReader) -> None:
    # If someone else is reading, they read to the end.
    with suppress(RuntimeError):
        while await reader.read(_CHUNK):
            pass


def _kill(process: int) -> None:
    # Not asyncio's kill: it may take the exit status away from the task that waits for it.
    with suppress(OSError):
        if process >= 0:
            signal.pidfd_send_signal(process, signal.SIGKILL)


async def start_confined(
    argv: Sequence[str], confinement: Confinement, *, stdin: bool = True, stdout: int | None = None
) -> ConfinedProcess:
    """Start a confined process with pipes; `stdout` is a descriptor to print to instead. Raise `ConfinementFailed`."""
    bubblewrap = find_bubblewrap()
    if isinstance(bubblewrap, BubblewrapMissing):
        raise ConfinementFailed(f"nothing can be confined on this machine: {bubblewrap.reason}; {bubblewrap.remedy}")
    charge = await _take_charge(confinement)
    starting = asyncio.create_task(_start([bubblewrap.path, *argv], confinement, charge, stdin=stdin, stdout=stdout))
    starting.add_done_callback(lambda task: charge.end() if task.cancelled() or task.exception() is not None else None)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # A half-started process cannot be killed as a whole, so finish starting it before closing it.
        while not starting.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([starting])
        if starting.exception() is None:
            await starting.result().close()
        raise


@dataclass(slots=True)
class Charge:
    """The share that a confined process is charged to, and the place that it holds; both None if nobody is charged."""

    share: Share | None = None
    place: CommandPlace | None = None

    def look(self) -> None:
        """Kill a sandbox if its share is exceeded."""
        if self.share is not None:
            self.share.shares.end_what_is_too_much(self.share)

    def begin(self, process: ConfinedProcess) -> None:
        """Start counting a process."""
        if self.share is not None:
            self.share.add(process)

    def end(self, process: ConfinedProcess | None = None) -> None:
        """Stop counting; calling it twice is harmless."""
        if self.place is not None:
            self.place.free()
        if self.share is not None and process is not None:
            self.share.remove(process)

    def memory_fault(self) -> str:
        """Return the message for a process that the kernel killed for lack of memory."""
        most = "" if self.share is None else f" than the {self.share.limits.session_memory // MIB} MiB"
        return f"the kernel ended a process of it, because the sandboxes of this session together used more memory{most} that they may have"


async def _take_charge(confinement: Confinement) -> Charge:
    """Return the charge of a process; one with a time limit waits for a free place."""
    share = charged()
    if share is None:
        return Charge()
    return Charge(share, None if confinement.bounds.seconds is None else await share.take_place())


async def _start(argv: Sequence[str], confinement: Confinement, charge: Charge, *, stdin: bool, stdout: int | None) -> ConfinedProcess:
    """Start bubblewrap, limit its child while that waits, and let it continue once it cannot outlive us."""
    confinement = await asyncio.to_thread(with_sockets_held, confinement)
    owner = await asyncio.to_thread(confinement_owner, confinement)
    # Decided once: the process must start as the same user that its limits are prepared for.
    confinement = replace(confinement, as_owner=owner is not None)
    plan = await asyncio.to_thread(plan_of, confinement)
    # In a view the paths below mean what the view has there, to bubblewrap too.
    use = view_use()
    into_view, view_descriptors = ((), ()) if use is None else (use.entrance.words_as_us, use.entrance.descriptors)
    # Of each pipe we keep one end and pass on the other.
    pipes = {name: os.pipe2(os.O_CLOEXEC) for name in ("status", "bounded", "ready", "go")}
    status, ready = pipes["status"][0], pipes["ready"][0]
    bounded, go = pipes["bounded"][1], pipes["go"][1]
    theirs = [pipes["status"][1], pipes["ready"][1], pipes["bounded"][0], pipes["go"][0]]
    try:
        words = [*plan.words, "--json-status-fd", str(theirs[0]), "--block-fd", str(theirs[2])]
        theirs.append(file_of(b"".join(os.fsencode(word) + b"\0" for word in words)))
        # Bubblewrap holds our end of the status pipe too: it would abort halfway if it could not write its status.
        gate = ["/bin/bash", "-c", GATE, "gate", str(theirs[1]), str(theirs[3]), str(status), " ".join(map(str, view_descriptors))]
        # INVARIANT: an empty environment. Everyone inside can see what the first process was started with.
        process = await asyncio.create_subprocess_exec(
            *broker_words(confinement), *into_view, *owner_words(owner, confinement),
            argv[0], "--args", str(theirs[-1]), "--", *gate, *argv[1:],
            stdin=PIPE if stdin else DEVNULL, stdout=PIPE if stdout is None else stdout, stderr=PIPE, env={},
            pass_fds=(*plan.descriptors, *theirs, status, *view_descriptors), cwd="/",
        )  # fmt: skip
    except (OSError, ValueError) as fault:
        for descriptor in (status, ready, bounded, go):
            os.close(descriptor)
        raise ConfinementFailed(f"the confined process cannot be started: {fault}") from fault
    finally:
        plan.close()
        for descriptor in theirs:
            os.close(descriptor)
    try:
        readers = await _reader(status), await _reader(ready)
        return await _admit(process, readers, (bounded, go), confinement, charge)
    finally:
        os.close(bounded)
        os.close(go)


def confinement_owner(confinement: Confinement) -> FileOwner | None:
    """Return the user to start a process as, or None if that is us: inside it has no rights over files of other users."""
    if not confinement.as_owner or not confinement.given:
        return None
    try:
        opened = open_beneath(confinement.given[0], os.O_PATH)
    except OSError:
        # Mounting it will report what is wrong.
        return None
    try:
        return owner_of(opened)
    finally:
        os.close(opened)


async def _admit(
    process: Process,
    readers: tuple[asyncio.StreamReader, asyncio.StreamReader],
    gates: tuple[int, int],
    confinement: Confinement,
    charge: Charge,
) -> ConfinedProcess:
    status, ready = readers
    outer = os.pidfd_open(process.pid)
    try:
        async with asyncio.timeout(_SETUP_SECONDS):
            line = await status.readline()
    except TimeoutError:
        line = b""
    if not line:
        _kill(outer)
        os.close(outer)
        _, stderr = await process.communicate()
        raise ConfinementFailed(_setup_message(stderr))
    running = ConfinedProcess(process, outer, status, cast("int", json.loads(line)["child-pid"]), confinement, charge)
    charge.begin(running)
    try:
        running.bound()
        os.write(gates[0], b"1")
        async with asyncio.timeout(_SETUP_SECONDS):
            is_ready = bool(await ready.readline())
        if is_ready and confinement.bridge is not None:
            await _open_bridge(running.pid, confinement.bridge)
        if is_ready:
            os.write(gates[1], b"1\n")
    except OSError as fault:
        await running.close()
        raise ConfinementFailed(f"the confined process cannot be bounded or bridged: {fault}") from fault
    except BaseException:
        await running.close()
        raise
    return running


async def _open_bridge(process: int, bridge: Bridge) -> None:
    """Let our server listen inside; it is the other end of the bridge."""
    # INVARIANT: the process waits at the gate, so its number cannot be reused and nothing inside can take the port first.
    listener = await listen_inside(process, bridge.port)
    try:
        await bridge.serve(listener)
    except BaseException:
        listener.close()
        raise


async def _reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    pipe = os.fdopen(descriptor, "rb", buffering=0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


async def run_confined(argv: Sequence[str], confinement: Confinement, *, stdin: bytes = b"", stdout: int | None = None) -> Finished:
    """Run a confined process and return what it printed; at its bounds or on cancellation it is killed with all its children."""
    bounds = confinement.bounds
    async with await start_confined(argv, confinement, stdin=bool(stdin), stdout=stdout) as process:
        out, err = _Capture(bounds.output), _Capture(bounds.output)
        tasks = [asyncio.create_task(err.take(process.stderr, process))]
        if stdout is None:
            tasks.append(asyncio.create_task(out.take(process.stdout, process)))
        if stdin:
            tasks.append(asyncio.create_task(_feed(process.stdin, stdin)))
        timed_out = False
        try:
            try:
                async with asyncio.timeout(bounds.seconds):
                    code = await process.wait()
            except TimeoutError:
                timed_out = True
                process.kill(f"it took longer than {bounds.seconds:g} seconds")
                code = await process.wait()
            except ConfinementFailed:
                await asyncio.wait(tasks, timeout=_SETTLE_SECONDS)
                raise ConfinementFailed(_setup_message(err.content())) from None
            await asyncio.wait(tasks, timeout=_SETTLE_SECONDS)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return Finished(code, out.content(), err.content(), out.is_cut or err.is_cut, timed_out, process.stopped)


class _Capture:
    """The beginning and the end of a stream, each half of the limit, and how much was left out between."""

    def __init__(self, limit: int) -> None:
        self._half = max(1, limit // 2)
        self._max_drained = max(limit * _DRAIN_FACTOR, 64 * MIB)
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    async def take(self, stream: asyncio.StreamReader, process: ConfinedProcess) -> None:
        """Read to the end; kill a process that never stops printing."""
        while chunk := await stream.read(_CHUNK):
            self._total += len(chunk)
            room = self._half - len(self._head)
            self._head += chunk[:room]
            self._tail += chunk[max(room, 0) :]
            if len(self._tail) > 2 * self._half + _CHUNK:
                del self._tail[: -self._half]
            if self._total > self._max_drained:
                process.kill(f"it printed more than {self._max_drained} bytes")

    @property
    def is_cut(self) -> bool:
        """Tell whether something was left out."""
        return self._total > 2 * self._half

    def content(self) -> bytes:
        """Return the kept output, with a note of how much was cut."""
        if not self.is_cut:
            return bytes(self._head + self._tail)
        left_out = self._total - 2 * self._half
        return bytes(self._head) + f"\n[… {left_out} bytes left out …]\n".encode() + bytes(self._tail[-self._half :])


async def _feed(stream: asyncio.StreamWriter, content: bytes) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):
        stream.write(content)
        await stream.drain()
        stream.close()
        await stream.wait_closed()


def _exit_code(status: bytes) -> int | None:
    for line in status.splitlines():
        with suppress(ValueError):
            report: object = json.loads(line)
            if isinstance(report, dict) and "exit-code" in report:
                return cast("dict[str, int]", report)["exit-code"]
    return None


def _setup_message(text: bytes) -> str:
    message = text.decode(errors="replace").strip().removeprefix("bwrap: ")[:500]
    return f"the confinement could not be set up: {message or 'it gave no reason'}"
