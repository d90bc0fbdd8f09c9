"""Lines of JSON from a process that may send anything: never longer than the bound, never faster than the bound, never more than JSON."""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Final, cast

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from curtainwall.model import CurtainwallError
from curtainwall.tools.servers.large import Unreadable, is_large, reduce

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


async def frames(reader: asyncio.StreamReader, longest: int = LONGEST) -> AsyncGenerator[tuple[Frame | None, int]]:
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
        line = await reduce(line) if is_large(line) else line
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
