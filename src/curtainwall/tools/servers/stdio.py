"""Read a server's output: bounded lines of JSON on stdout, with large ones reduced in another process, and a masked log of stderr."""

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
    """A message has too many values, or takes too long to read."""


def is_large(line: bytes) -> bool:
    """Tell whether a message may have too many values to parse in this process; commas in texts count too, which is harmless."""
    return len(line) > MOST_VALUES and line.count(b",") + line.count(b"[") + line.count(b"{") >= MOST_VALUES


async def reduce_message(line: bytes) -> bytes:
    """Return a large message reduced to what is passed on; raise `Unreadable`."""
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
# Limits on unsolicited messages: the burst and the rate per second.
_BURST: Final = 10_000.0
_A_SECOND: Final = 1_000.0
_BYTES_A_UNIT: Final = 4_096
_MOST_WAITING: Final = 16 * 1024 * 1024

Frame = dict[str, JsonValue]


class Overrun(CurtainwallError):
    """The peer sends too much and must be ended."""


async def read_frames(reader: asyncio.StreamReader, longest: int = LONGEST) -> AsyncGenerator[tuple[Frame | None, int]]:
    """Yield every line as an object, or None if it is not one, with its length; raise `Overrun` for an endless line."""
    buffer, searched = bytearray(), 0
    while chunk := await reader.read(_CHUNK):
        buffer += chunk
        start = 0
        while (end := buffer.find(b"\n", max(start, searched))) >= 0:
            line = bytes(buffer[start:end])
            start = end + 1
            if line and not line.isspace():
                yield await _read(line), len(line)
        del buffer[:start]
        searched = len(buffer)
        if searched > longest:
            raise Overrun(f"it sent a line of more than {longest // 1024 // 1024} MiB")
        # Let other tasks run, however much arrives.
        await asyncio.sleep(0)


async def _read(line: bytes) -> Frame | None:
    try:
        line = await reduce_message(line) if is_large(line) else line
    except Unreadable as error:
        raise Overrun(str(error)) from None
    try:
        message = from_json(line, allow_inf_nan=False)
    except ValueError:
        return None
    return cast("Frame", message) if isinstance(message, dict) else None


async def write(writer: asyncio.StreamWriter, frame: Frame) -> None:
    """Send an object and wait until there is room for more."""
    write_soon(writer, frame)
    await writer.drain()


def write_soon(writer: asyncio.StreamWriter, frame: Frame) -> None:
    """Send an object without waiting; raise `Overrun` if the peer has not read for too long."""
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
        """Count a frame; raise `Overrun` if it exceeds the allowance."""
        now = time.monotonic()
        self._left = min(_BURST, self._left + (now - self._at) * _A_SECOND) - 1 - size / _BYTES_A_UNIT
        self._at = now
        if self._left < 0:
            raise Overrun("it floods us with messages that nobody asked for")


LARGEST_FILE: Final = 1024 * 1024
MOST_OF_ONE: Final = 4 * 1024 * 1024
"""Bytes kept from one process; the rest is read and dropped."""

_STDERR_CHUNK: Final = 16_384
_TAIL: Final = 2_000


class StderrLog:
    """The stderr log of one server process. Successive processes share the file, which is rotated with one old copy."""

    def __init__(self, file: Path, masker: Masker, about: str) -> None:
        self._file = file
        self._masker = StreamMasker(masker)
        self._about = about
        self._tail = ""
        self._taken = 0

    @property
    def last_words(self) -> str:
        """Return the end of its output, fit for a message."""
        return clean_text(self._tail[-600:], 600)

    async def take(self, stderr: asyncio.StreamReader) -> None:
        """Read to the end."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._append(f"--- {self._about}\n")
        while chunk := await stderr.read(_STDERR_CHUNK):
            if self._taken <= MOST_OF_ONE:
                self._taken += len(chunk)
                self._append(self._masker.feed(decoder.decode(chunk)))
                if self._taken > MOST_OF_ONE:
                    self._append(self._masker.finish() + "\n--- it says too much; the rest is not kept\n")
            await asyncio.sleep(0)
        self._append(self._masker.finish())

    def note(self, text: str) -> None:
        """Add a note from us."""
        self._append(f"--- {text}\n")

    def _append(self, text: str) -> None:
        if not text:
            return
        if not text.startswith("---"):
            self._tail = (self._tail + text)[-_TAIL:]
        # A full disk must not stop the server: the log is only for troubleshooting.
        with contextlib.suppress(OSError):
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with open(descriptor, "ab") as file:
                file.write(text.encode("utf-8", "replace"))
                if file.tell() > LARGEST_FILE:
                    self._file.replace(self._file.with_name(f"{self._file.name}.1"))
