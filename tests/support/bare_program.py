"""A program of nothing but system calls: the smallest ELF file that makes them, and tells what the kernel answered to each."""

import struct
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_BASE, _HEAD, _ROOM = 0x400000, 64 + 56, 256
# mov rax | rdi | rsi | rdx | r10 | r8 | r9, imm64
_REGISTERS = (b"\x48\xb8", b"\x48\xbf", b"\x48\xbe", b"\x48\xba", b"\x49\xba", b"\x49\xb8", b"\x49\xb9")
_READ, _WRITE, _EXIT_GROUP = 0, 1, 231

ROOM = "\0room"
"""Stands for the address of some room to read into; what is there in the end is told."""

Call = tuple[int, *tuple[int | str, ...]]
"""The number of a system call, and its arguments; text stands for its address."""


@dataclass(frozen=True)
class Told:
    """What the kernel answered, what was read, and how the program ended."""

    answers: list[int]
    read: bytes
    code: int


def write_program(path: Path, *calls: Call) -> Path:
    """Write a program for x86_64 that makes these calls, once it was given a byte of input; without input it ends at once, well."""
    strings = b""
    length = len(_code(calls, lambda _: 0, 0, 0))
    at_strings = _BASE + _HEAD + length
    places: dict[str, int] = {}
    for text in (one for _, *arguments in calls for one in arguments if isinstance(one, str)):
        if text not in places:
            places[text] = at_strings + len(strings)
            strings += text.encode() + b"\0"
    room = at_strings + len(strings)
    code = _code(calls, lambda text: places[text], room, room + _ROOM)
    whole = code + strings + bytes(_ROOM + 8 * len(calls))
    size = _HEAD + len(whole)
    head = struct.pack("<4sBBBB8xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, 2, 62, 1, _BASE + _HEAD, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 7, 0, _BASE, _BASE, size, size, 0x1000)
    path.write_bytes(head + segment + whole)
    path.chmod(0o755)
    return path


def run_program(*command: str | Path, user: int | None = None) -> Told:
    """Run such a program, or a launcher in front of it, and return what it tells."""
    done = subprocess.run(
        [*command, "subprocess"], input=b"x", capture_output=True, timeout=90, check=False, user=user, group=user,
        extra_groups=None if user is None else [],
    )  # fmt: skip
    answers = [one for (one,) in struct.iter_unpack("<q", done.stdout[_ROOM:])]
    return Told(answers, done.stdout[:_ROOM].rstrip(b"\0"), done.returncode)


def _code(calls: Sequence[Call], address_of: Callable[[str], int], room: int, results: int) -> bytes:
    def made(number: int, *arguments: int | str) -> bytes:
        words = [room if one == ROOM else address_of(one) if isinstance(one, str) else one for one in arguments]
        loads = (how + struct.pack("<Q", word & (2**64 - 1)) for how, word in zip(_REGISTERS, (number, *words), strict=False))
        return b"".join(loads) + b"\x0f\x05"

    body = b"".join(
        # The answer goes to its place.
        made(*call) + b"\x48\xa3" + struct.pack("<Q", results + 8 * place)
        for place, call in enumerate(calls)
    )
    body += made(_WRITE, 1, room, _ROOM + 8 * len(calls))
    # Without a byte of input, over the body to the end.
    gate = made(_READ, 0, room, 1) + b"\x48\x85\xc0\x0f\x84" + struct.pack("<i", len(body))
    return gate + body + made(_EXIT_GROUP, 0)
