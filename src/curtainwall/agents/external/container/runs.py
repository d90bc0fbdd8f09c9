"""One program inside a container: started with a file as its stdin, read as it writes, and ended from inside with all its children."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from curtainwall.agents.external import LineSplitter
from curtainwall.agents.external.container.engine import ContainerExec, Engine, Stream
from curtainwall.agents.external.container.spec import MESSAGE, ORIENTATION, ROOT_FILES
from curtainwall.model import CurtainwallError, TurnFailed

# The engine makes the program the leader of its own process group. The shell prints the group's number before the program starts.
_WRAP: Final = 'echo "$$" && exec "$@" <"$0"'
_LONGEST_LINE: Final = 16 * 1024**2
_LOOK_AGAIN: Final = 1.0
_MOST_COMPLAINTS: Final = 300


class Run:
    """A running program."""

    def __init__(self, engine: Engine, container: str, running: ContainerExec) -> None:
        self._engine = engine
        self._container = container
        self._running = running
        self._lines: dict[Stream, LineSplitter] = {"out": LineSplitter(_LONGEST_LINE), "err": LineSplitter(_LONGEST_LINE)}
        self._group = 0

    async def lines(self) -> AsyncGenerator[tuple[Stream, str]]:
        """Yield each line that the program writes, until it ends."""
        while (piece := await self._read()) is not None:
            for line in self._split(*piece):
                yield piece[0], line
        for stream, lines in self._lines.items():
            if rest := lines.rest():
                yield stream, rest.decode("utf-8", errors="replace")

    async def pieces(self) -> AsyncGenerator[tuple[Stream, bytes]]:
        """Yield the output as it comes, until the program ends."""
        first = b""
        while (piece := await self._read()) is not None:
            stream, data = piece
            if stream == "out" and not self._group:
                first, ended, data = (first + data).partition(b"\n")
                self._group = _number(first.decode("utf-8", errors="replace")) if ended else 0
            if data:
                yield stream, data

    async def exit_code(self) -> int | None:
        """Return the program's exit code, or None if it is unknown: the program still runs, or its container is gone."""
        try:
            return await self._engine.exit_code(self._running.id)
        except CurtainwallError:
            return None

    async def stop(self, grace: float) -> None:
        """Ask the program and its children to end, then kill them. Children that left its group end only with the container."""
        await self._learn_group(grace)
        for signal, patience in (("TERM", grace), ("KILL", grace)):
            if not self._group or await self.exit_code() is not None:
                return
            await self._engine.resume(self._container)
            await self._signal(signal)
            if await self._ends_within(patience):
                return

    def _split(self, stream: Stream, data: bytes) -> list[str]:
        """Return the lines that this data completes; the very first one is the shell's."""
        lines = [line.decode("utf-8", errors="replace").rstrip("\r") for line in self._lines[stream].feed(data)]
        if stream == "out" and lines and not self._group:
            self._group = _number(lines.pop(0))
        return lines

    async def _learn_group(self, patience: float) -> None:
        """If the program has only just started, wait until the shell has printed its group."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while not self._group and (piece := await self._read()) is not None:
                    self._split(*piece)

    async def _signal(self, signal: str) -> None:
        command = ("/bin/sh", "-c", f"kill -s {signal} -- -{self._group}")
        async with self._engine.run(self._container, command, {}) as running:
            while await running.read() is not None:
                pass

    async def _ends_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while await self._read() is not None:
                    pass
        except TimeoutError:
            return False
        return True

    async def _read(self) -> tuple[Stream, bytes] | None:
        """Return the next output, or None once the output or the program ends; a child may keep the output open."""
        reading = asyncio.ensure_future(self._running.read())
        try:
            while True:
                done, _ = await asyncio.wait((reading,), timeout=_LOOK_AGAIN)
                if done:
                    return reading.result()
                if await self._engine.exit_code(self._running.id) is not None:
                    return None
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) <= 1:
        raise TurnFailed("the container's shell does not work; build its image anew")
    return int(text)


@asynccontextmanager
async def open_run(
    engine: Engine, container: str, command: Sequence[str], environment: Mapping[str, str], stdin: str = MESSAGE
) -> AsyncGenerator[Run]:
    """Run a command inside a container with a file there as its stdin: the message, or another."""
    async with engine.run(container, ("/bin/sh", "-c", _WRAP, stdin, *command), environment) as started:
        yield Run(engine, container, started)


async def copy_for_root(engine: Engine, container: str, names: Sequence[str]) -> None:
    """Copy files of the orientation so that the copies belong to root; raise `TurnFailed` if that fails."""
    if not names:
        return
    # The agent can change neither the program nor its input: both are mounted read-only.
    command = ("/bin/cp", "-f", *(f"{ORIENTATION}/{name}" for name in names), f"{ROOT_FILES}/")
    complaints = b""
    async with engine.run(container, command, {}, as_root=True) as copying:
        while (piece := await copying.read()) is not None:
            complaints += piece[1]
    if complaints:
        words = complaints.decode(errors="replace").strip()[:_MOST_COMPLAINTS]
        raise TurnFailed(f"the agent's settings could not be given to root in its container: {words}")
