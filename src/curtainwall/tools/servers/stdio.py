"""What a server writes: bounded lines of JSON on stdout, large ones reduced in another process, and a masked log of its stderr."""

import asyncio
import codecs
import contextlib
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from curtainwall.facts import Masker, StreamMasker
from curtainwall.model import CurtainwallError
from curtainwall.tools.servers import large_entry
from curtainwall.tools.servers.large_entry import MOST_IN_ALL, MOST_VALUES, TOO_MANY
from curtainwall.tools.servers.offered import clean_text

_REDUCE_SECONDS: Final = 60.0


class Unreadable(CurtainwallError):
    """A message has more values than anyone needs, or takes too long to read."""


def is_large(line: bytes) -> bool:
    """Tell whether a message may have too many values to be read here; commas in texts count as well, which does no harm."""
    return len(line) > MOST_VALUES and line.count(b",") + line.count(b"[") + line.count(b"{") >= MOST_VALUES


async def reduce_message(line: bytes) -> bytes:
    """Return a large message with what is passed on of it; raise `Unreadable`."""
    program = str(Path(large_entry.__file__))
    child = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", program, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={})
    try:
        async with asyncio.timeout(_REDUCE_SECONDS):
            text, _ = await child.communicate(line)
    except TimeoutError:
        raise Unreadable(f"it sent a message that could not be read within {_REDUCE_SECONDS:g} seconds") from None
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    if child.returncode == TOO_MANY:
        raise Unreadable(f"it sent a message of more than {MOST_IN_ALL} values")
    if child.returncode:
        raise Unreadable(f"it sent a message of {len(line)} bytes that could not be read")
    return text


LONGEST: Final = 8 * 1024 * 1024
"""Bytes of one line."""

_CHUNK: Final = 65_536
# What a server may send without being asked: so much at once, and so much a second.
_BURST: Final = 10_000.0
_A_SECOND: Final = 1_000.0
_BYTES_A_UNIT: Final = 4_096
_MOST_WAITING: Final = 16 * 1024 * 1024

Frame = dict[str, JsonValue]


class Overrun(CurtainwallError):
    """The peer sends more than anyone needs; it must be ended."""


async def read_frames(reader: asyncio.StreamReader, longest: int = LONGEST) -> AsyncGenerator[tuple[Frame | None, int]]:
    """Yield every line as an object, or None for one that is none, with its length; raise `Overrun` for one without an end."""
    held, looked = bytearray(), 0
    while chunk := await reader.read(_CHUNK):
        held += chunk
        start = 0
        while (end := held.find(b"\n", max(start, looked))) >= 0:
            line = bytes(held[start:end])
            start = end + 1
            if line and not line.isspace():
                yield await _read(line), len(line)
        del held[:start]
        looked = len(held)
        if looked > longest:
            raise Overrun(f"it sent a line of more than {longest // 1024 // 1024} MiB")
        # Whatever comes, others get their turn.
        await asyncio.sleep(0)


async def _read(line: bytes) -> Frame | None:
    try:
        line = await reduce_message(line) if is_large(line) else line
    except Unreadable as fault:
        raise Overrun(str(fault)) from None
    try:
        told = from_json(line, allow_inf_nan=False)
    except ValueError:
        return None
    return cast("Frame", told) if isinstance(told, dict) else None


async def write(writer: asyncio.StreamWriter, frame: Frame) -> None:
    """Send an object and wait until there is room for more."""
    write_soon(writer, frame)
    await writer.drain()


def write_soon(writer: asyncio.StreamWriter, frame: Frame) -> None:
    """Send an object without waiting; raise `Overrun` where the peer has not read for too long."""
    if writer.transport.get_write_buffer_size() > _MOST_WAITING:
        raise Overrun("it does not read what it is sent")
    if not writer.is_closing():
        writer.write(to_json(frame) + b"\n")


class Allowance:
    """How much a server may still send unasked."""

    def __init__(self) -> None:
        self._left = _BURST
        self._at = time.monotonic()

    def spend(self, size: int) -> None:
        """Count a frame; raise `Overrun` where it is one too many."""
        now = time.monotonic()
        self._left = min(_BURST, self._left + (now - self._at) * _A_SECOND) - 1 - size / _BYTES_A_UNIT
        self._at = now
        if self._left < 0:
            raise Overrun("it floods us with messages that nobody asked for")


LARGEST_FILE: Final = 1024 * 1024
MOST_OF_ONE: Final = 4 * 1024 * 1024
"""Bytes taken from one process; what comes after is read and dropped."""

_STDERR_CHUNK: Final = 16_384
_TAIL: Final = 2_000


class StderrLog:
    """The stderr of one process of a server. The file is shared with the processes before it; the one before last is let go."""

    def __init__(self, file: Path, masker: Masker, about: str) -> None:
        self._file = file
        self._masker = StreamMasker(masker)
        self._about = about
        self._tail = ""
        self._taken = 0

    @property
    def last_words(self) -> str:
        """Return the end of what it said, fit for a message."""
        return clean_text(self._tail[-600:], 600)

    async def take(self, stderr: asyncio.StreamReader) -> None:
        """Read to the end."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._keep(f"--- {self._about}\n")
        while chunk := await stderr.read(_STDERR_CHUNK):
            if self._taken <= MOST_OF_ONE:
                self._taken += len(chunk)
                self._keep(self._masker.feed(decoder.decode(chunk)))
                if self._taken > MOST_OF_ONE:
                    self._keep(self._masker.finish() + "\n--- it says too much; the rest is not kept\n")
            await asyncio.sleep(0)
        self._keep(self._masker.finish())

    def note(self, text: str) -> None:
        """Add words of ours."""
        self._keep(f"--- {text}\n")

    def _keep(self, text: str) -> None:
        if not text:
            return
        if not text.startswith("---"):
            self._tail = (self._tail + text)[-_TAIL:]
        # A full disk must not stop the server: this is only for people who look for a cause.
        with contextlib.suppress(OSError):
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with open(descriptor, "ab") as file:
                file.write(text.encode("utf-8", "replace"))
                if file.tell() > LARGEST_FILE:
                    self._file.replace(self._file.with_name(f"{self._file.name}.1"))
