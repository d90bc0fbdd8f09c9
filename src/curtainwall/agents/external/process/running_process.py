"""One process of the agent: its pipes, its sockets, the lock on its conversation, and why it ended."""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
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
from curtainwall.model import SessionId, TurnFailed, record

_CHUNK: Final = 256 * 1024
_KEPT_LINES: Final = 200
_LONGEST_LINE: Final = 64 * 1024**2
_LONGEST_COMPLAINT: Final = 2_000
_SETTLE: Final = 5.0
_HAND_OVER: Final = 45.0


@record
class ProcessMeans:
    """The parts that every process needs: the opener of its sockets, its limits, its user, and the sessions' shares of this machine."""

    outside: ProcessSockets
    limits: ProcessLimits
    user: int
    shares: Shares | None = None


class RunningProcess:
    """A process that runs, or did."""

    def __init__(self, session: SessionId, start: ProcessStart) -> None:
        self.session = session
        self.start = start
        self.listener = ClaudeStreamParser()
        self.errors: deque[str] = deque(maxlen=_KEPT_LINES)
        self._closing = asyncio.Event()
        self._stdout = LineSplitter(_LONGEST_LINE)
        self._lines: deque[bytes] = deque()
        self._pings = 0
        self.conversation = start.conversation
        """The conversation that it is in; the agent may have given it another name."""
        self.names = {start.conversation}
        """The names that the agent has called it by."""
        self._other_locks: list[FileLock] = []
        self.has_had_message = False
        """It got a message before the current one, and may still be answering that."""
        self.reach = ProcessNetwork()
        self._process: ConfinedProcess | None = None
        self._ended: asyncio.Task[int] | None = None
        self._lifetime: asyncio.Task[None] | None = None

    @property
    def process(self) -> ConfinedProcess:
        """Return the confined process."""
        assert self._process is not None
        return self._process

    @property
    def is_alive(self) -> bool:
        """Tell whether it still accepts messages."""
        return self._ended is not None and not self._ended.done() and not self._closing.is_set()

    async def begin(self, means: ProcessMeans) -> None:
        """Start it; raise what prevents that."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # One task opens and closes its sockets, whichever task starts and ends the process.
        self._lifetime = asyncio.create_task(self._live(means, ready), name=f"agent of {self.session}")
        try:
            await asyncio.shield(ready)
        except asyncio.CancelledError:
            self._closing.set()
            await asyncio.gather(self._lifetime, ready, return_exceptions=True)
            raise

    async def send(self, line: bytes) -> None:
        """Write a line. If the process is gone, the reader notices."""
        with suppress(ConnectionError):
            self.process.stdin.write(line)
            await self.process.stdin.drain()

    async def read_signals(self) -> Sequence[Signal] | None:
        """Return the signals of the next line, None at the end."""
        while not self._lines:
            data = await self.process.stdout.read(_CHUNK)
            if not data:
                return None
            self._lines.extend(line for line in self._stdout.feed(data) if line.strip())
        return self.listener.parse_stdout(self._lines.popleft())

    def rename(self, conversation: str, name: str) -> None:
        """Go on in a conversation under the name that the agent has for it; raise if another process is in it."""
        if conversation != self.conversation:
            lock = lock_file(self.start.folders.locks / f"{conversation}.lock")
            if lock is None:
                raise ConversationTaken(f"another process is in the conversation of session `{self.session}`; use that one or stop it")
            self._other_locks.append(lock)
        self.conversation = conversation
        self.names.add(name)

    async def is_well(self, patience: float) -> bool:
        """Tell whether it answers a ping, which leaves no trace in the conversation."""
        self._pings += 1
        request = f"ping-{self._pings}"
        await self.send(ping_line(request))
        try:
            async with asyncio.timeout(patience):
                while (signals := await self.read_signals()) is not None:
                    if ControlReply(request) in signals:
                        return True
        except TimeoutError:
            pass
        return False

    async def exit_code(self) -> int:
        """Wait for its end and return its exit code."""
        code = await self.process.wait()
        # Its last lines on stderr may still be in the pipe.
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE):
                while not self.process.stderr.at_eof():  # noqa: ASYNC110 - another task reads it
                    await asyncio.sleep(0.005)
        return code

    async def end(self, grace: float) -> None:
        """Let it exit on its own so that it saves its files; after the grace period, end it."""
        if self._process is not None and self.is_alive:
            with suppress(ConnectionError):
                self._process.stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._process.wait()
        self._closing.set()
        if self._lifetime is not None:
            await asyncio.gather(self._lifetime, return_exceptions=True)

    async def _live(self, means: ProcessMeans, ready: "asyncio.Future[None]") -> None:
        try:
            async with AsyncExitStack() as stack:
                await self._open(means, stack)
                ready.set_result(None)
                # Do not close when the process ends: that would take its last output from the reader.
                await self._closing.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
                return
            raise

    async def _lock(self, path: Path) -> FileLock:
        """Return the lock on the conversation. Wait for its previous owner to leave, which takes a while on a slow machine."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_HAND_OVER):
                while (lock := lock_file(path)) is None:  # noqa: ASYNC110 - another process holds it and sends no signal
                    await asyncio.sleep(0.05)
                return lock
        raise ConversationTaken(f"another process is in the conversation of session `{self.session}`; use that one or stop it")

    async def _open(self, means: ProcessMeans, stack: AsyncExitStack) -> None:
        start = self.start
        start.folders.locks.mkdir(mode=0o700, parents=True, exist_ok=True)
        stack.callback((await self._lock(start.folders.locks / f"{start.conversation}.lock")).release)
        stack.callback(self._release_others)
        start.folders.run.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.reach = reach = await stack.enter_async_context(means.outside.open(self.session, start.folders.run, means.user, (PROVIDER,)))
        if not reach.keys.get(PROVIDER):
            raise LoginNeeded(f"there is no key for `{PROVIDER}`; {HOW_TO_SIGN_IN}")
        await asyncio.to_thread(prepare, start.folders, reach)
        with charged_to(None if means.shares is None else means.shares.of(self.session)):
            confined = await start_confined(command(start, reach), confinement(start, reach, means.limits))
        self._process = await stack.enter_async_context(confined)
        self._ended = asyncio.create_task(confined.wait())
        reader = asyncio.create_task(self._read_errors(confined))
        stack.push_async_callback(_cancel, reader)
        stack.push_async_callback(_cancel, self._ended)

    def _release_others(self) -> None:
        for lock in self._other_locks:
            lock.release()

    async def _read_errors(self, confined: ConfinedProcess) -> None:
        lines = LineSplitter(_LONGEST_COMPLAINT)
        while data := await confined.stderr.read(_CHUNK):
            self.errors.extend(line.decode("utf-8", errors="replace") for line in lines.feed(data) if line.strip())
        if (half := lines.rest()).strip():
            self.errors.append(half.decode("utf-8", errors="replace"))


async def _cancel(task: "asyncio.Task[None] | asyncio.Task[int]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


_NOT_STARTED: Final = frozenset({126, 127})


def process_fault(code: int, stopped: str | None, errors: Sequence[str], noise: str) -> TurnFailed:
    """Return the error for a process that ended, from its exit code, its last lines of stderr, and its output that is not stream-json."""
    output = "; it said: " + " / ".join([*(line.strip() for line in errors[-3:]), *([noise] if noise else [])]) if errors or noise else ""
    unknown = next((line for line in errors if "unknown option" in line), None)
    if unknown is not None:
        return WrongVersion(f"claude does not know what it was asked for ({unknown.strip()}); install Claude Code {TRIED} or a newer one")
    if code in _NOT_STARTED:
        return AgentCrashed(f"claude cannot be started here{output}; install Claude Code anew, as a native program")
    if stopped is not None:
        return AgentCrashed(f"claude was ended: {stopped}; send a message, and it starts again")
    if code == 0:
        return NoAnswer(f"claude ended without an answer{output}; send the message again")
    return AgentCrashed(f"claude ended in the middle of its turn with exit code {code}{output}; send a message, and it starts again")
