"""One process of the agent: its pipes, its sockets, the lock on its conversation, and why it ended."""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from curtainwall.agents.external import LineSplitter
from curtainwall.agents.external.process.launch import (
    HOW_TO_SIGN_IN,
    PROVIDER,
    TRIED,
    AgentCrashed,
    ConversationTaken,
    LoginNeeded,
    NoAnswer,
    ProcessLimits,
    ProcessNetwork,
    ProcessSockets,
    ProcessStart,
    WrongVersion,
    command,
    confinement,
    prepare,
)
from curtainwall.agents.external.process.wire import ClaudeStreamParser, ControlReply, Signal, ping_line
from curtainwall.host import ConfinedProcess, FileLock, Shares, charged_to, lock_file, start_confined
from curtainwall.model import SessionId, TurnFailed

_CHUNK: Final = 256 * 1024
_KEPT_LINES: Final = 200
_LONGEST_LINE: Final = 64 * 1024**2
_LONGEST_COMPLAINT: Final = 2_000
_SETTLE: Final = 5.0
_HAND_OVER: Final = 45.0


@dataclass(frozen=True, slots=True)
class ProcessMeans:
    """What every process needs: whoever opens its ways out, its limits, and the parts of this machine that sessions have."""

    outside: ProcessSockets
    limits: ProcessLimits
    user: int
    shares: Shares | None = None


class RunningProcess:
    """A process that lives, or did."""

    def __init__(self, session: SessionId, start: ProcessStart) -> None:
        self.session = session
        self.start = start
        self.listener = ClaudeStreamParser()
        self.errors: deque[str] = deque(maxlen=_KEPT_LINES)
        self._over = asyncio.Event()
        self._stdout = LineSplitter(_LONGEST_LINE)
        self._lines: deque[bytes] = deque()
        self._pings = 0
        self.has_been_told = False
        """It got a message before the present one, and may still have something to say to that."""
        self.reach = ProcessNetwork()
        self._process: ConfinedProcess | None = None
        self._ended: asyncio.Task[int] | None = None
        self._living: asyncio.Task[None] | None = None

    @property
    def process(self) -> ConfinedProcess:
        """Return the confined process."""
        assert self._process is not None
        return self._process

    @property
    def is_alive(self) -> bool:
        """Tell whether it can be talked to."""
        return self._ended is not None and not self._ended.done() and not self._over.is_set()

    async def begin(self, means: ProcessMeans) -> None:
        """Start it; raise whatever is in the way."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Its ways out are opened and closed by one and the same task, whoever starts and ends it.
        self._living = asyncio.create_task(self._live(means, ready), name=f"agent of {self.session}")
        try:
            await asyncio.shield(ready)
        except asyncio.CancelledError:
            self._over.set()
            await asyncio.gather(self._living, ready, return_exceptions=True)
            raise

    async def send(self, line: bytes) -> None:
        """Write a line; one that is gone already is noticed by whoever reads."""
        with suppress(ConnectionError):
            self.process.stdin.write(line)
            await self.process.stdin.drain()

    async def hear(self) -> Sequence[Signal] | None:
        """Return what the next line means, None at the end."""
        while not self._lines:
            data = await self.process.stdout.read(_CHUNK)
            if not data:
                return None
            self._lines.extend(line for line in self._stdout.feed(data) if line.strip())
        return self.listener.hear(self._lines.popleft())

    async def is_well(self, patience: float) -> bool:
        """Tell whether it answers; nothing of this is in the conversation."""
        self._pings += 1
        request = f"ping-{self._pings}"
        await self.send(ping_line(request))
        try:
            async with asyncio.timeout(patience):
                while (signals := await self.hear()) is not None:
                    if ControlReply(request) in signals:
                        return True
        except TimeoutError:
            pass
        return False

    async def exit_code(self) -> int:
        """Return how it ended, once it has."""
        code = await self.process.wait()
        # What it complained about last is still on its way.
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE):
                while not self.process.stderr.at_eof():  # noqa: ASYNC110 - another task reads it
                    await asyncio.sleep(0.005)
        return code

    async def end(self, grace: float) -> None:
        """Let it come to its end, so that it writes down what it has to; then end it."""
        if self._process is not None and self.is_alive:
            with suppress(ConnectionError):
                self._process.stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._process.wait()
        self._over.set()
        if self._living is not None:
            await asyncio.gather(self._living, return_exceptions=True)

    async def _live(self, means: ProcessMeans, ready: "asyncio.Future[None]") -> None:
        try:
            async with AsyncExitStack() as stack:
                await self._open(means, stack)
                ready.set_result(None)
                # Not until the process ends: closing would take away what it said last from whoever reads.
                await self._over.wait()
        except BaseException as fault:
            if not ready.done():
                ready.set_exception(fault)
                return
            raise

    async def _lock(self, path: Path) -> FileLock:
        """Return the lock on the conversation; whoever had it before is about to leave, and is waited for, on a slow machine as well."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_HAND_OVER):
                while (lock := lock_file(path)) is None:  # noqa: ASYNC110 - another process tells of it by nothing else
                    await asyncio.sleep(0.05)
                return lock
        raise ConversationTaken(f"another process is in the conversation of session `{self.session}`; use that one or stop it")

    async def _open(self, means: ProcessMeans, stack: AsyncExitStack) -> None:
        start = self.start
        start.folders.locks.mkdir(mode=0o700, parents=True, exist_ok=True)
        stack.callback((await self._lock(start.folders.locks / f"{start.conversation}.lock")).release)
        start.folders.run.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.reach = reach = await stack.enter_async_context(means.outside.open(self.session, start.folders.run, means.user, (PROVIDER,)))
        if not reach.keys.get(PROVIDER):
            raise LoginNeeded(f"there is no key for `{PROVIDER}`; {HOW_TO_SIGN_IN}")
        await asyncio.to_thread(prepare, start.folders, reach)
        with charged_to(None if means.shares is None else means.shares.of(self.session)):
            confined = await start_confined(command(start, reach.hosts), confinement(start, reach, means.limits))
        self._process = await stack.enter_async_context(confined)
        self._ended = asyncio.create_task(confined.wait())
        reading = asyncio.create_task(self._read_errors(confined))
        stack.push_async_callback(_cancelled, reading)
        stack.push_async_callback(_cancelled, self._ended)

    async def _read_errors(self, confined: ConfinedProcess) -> None:
        lines = LineSplitter(_LONGEST_COMPLAINT)
        while data := await confined.stderr.read(_CHUNK):
            self.errors.extend(line.decode("utf-8", errors="replace") for line in lines.feed(data) if line.strip())
        if (half := lines.rest()).strip():
            self.errors.append(half.decode("utf-8", errors="replace"))


async def _cancelled(task: "asyncio.Task[None] | asyncio.Task[int]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


_NOT_STARTED: Final = frozenset({126, 127})


def process_fault(code: int, stopped: str | None, errors: Sequence[str], noise: str) -> TurnFailed:
    """Return the fault of a process that ended with this code, with these last lines of stderr, after lines that are not stream-json."""
    said = "; it said: " + " / ".join([*(line.strip() for line in errors[-3:]), *([noise] if noise else [])]) if errors or noise else ""
    unknown = next((line for line in errors if "unknown option" in line), None)
    if unknown is not None:
        return WrongVersion(f"claude does not know what it was asked for ({unknown.strip()}); install Claude Code {TRIED} or a newer one")
    if code in _NOT_STARTED:
        return AgentCrashed(f"claude cannot be started here{said}; install Claude Code anew, as a native program")
    if stopped is not None:
        return AgentCrashed(f"claude was ended: {stopped}; send a message, and it starts again")
    if code == 0:
        return NoAnswer(f"claude ended without an answer{said}; send the message again")
    return AgentCrashed(f"claude ended in the middle of its turn with exit code {code}{said}; send a message, and it starts again")
