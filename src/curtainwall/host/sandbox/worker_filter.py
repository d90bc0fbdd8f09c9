"""The few system calls a code worker lives on, as a seccomp program; whatever is not named here does not exist for it.

Measured, not guessed: `strace` of a worker that runs, type-checks, suspends, dumps, runs out of memory and out of time.
"""

import errno
import os
import struct
from collections.abc import Sequence
from typing import Final, Literal

_LOAD, _AND, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_OTHER_NUMBERING: Final = 0x40000000  # x32 marks its calls with this bit

# Memory, its own threads, its two pipes, the clock, chance. `name: (x86_64, aarch64)`; None where there is no such call.
_FREE: Final[dict[str, tuple[int | None, int | None]]] = {
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67), "lseek": (8, 62), "close": (3, 57),
    "fstat": (5, 80), "newfstatat": (262, 79), "poll": (7, None), "ppoll": (271, 73),
    "munmap": (11, 215), "mremap": (25, 216), "madvise": (28, 233), "brk": (12, 214),
    "futex": (202, 98), "set_robust_list": (273, 99), "set_tid_address": (218, 96), "rseq": (334, 293), "arch_prctl": (158, None),
    "gettid": (186, 178), "getpid": (39, 172), "sched_yield": (24, 124), "sched_getaffinity": (204, 123),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115), "nanosleep": (35, 101),
    "gettimeofday": (96, 169), "time": (201, None), "restart_syscall": (219, 128), "getrandom": (318, 278),
    "exit": (60, 93), "exit_group": (231, 94),
}  # fmt: skip
_BOUND: Final = {
    "openat": (257, 56), "mmap": (9, 222), "mprotect": (10, 226), "clone": (56, 220), "prctl": (157, 167), "prlimit64": (302, 261),
}  # fmt: skip
STARTS: Final = {"execve": (59, 221), "execveat": (322, 281)}
"""The two calls that can start the worker, as `(x86_64, aarch64)`."""

_O_CLOEXEC, _PROT_WRITE, _PROT_EXEC, _MAP_ANONYMOUS, _PR_SET_NAME = 0x80000, 2, 4, 0x20, 15
_CLONE_THREAD, _CLONE_NEW_ANYTHING = 0x10000, 0x7E020000


def worker_filter(start: Literal["execve", "execveat"], machine: str = os.uname().machine) -> bytes | None:
    """Return the program for this kind of machine, or None for one whose calls we do not know; `start` is the call that runs the worker."""
    if machine not in _ARCHITECTURES:
        return None
    column = list(_ARCHITECTURES).index(machine)
    rules = [
        _op(_LOAD, _ARCHITECTURE),
        # Another architecture's calls have other numbers; nobody honest makes them.
        _op(_IF_EQUAL, _ARCHITECTURES[machine], 1, 0), _op(_RETURN, _KILL),
        _op(_LOAD, _NUMBER),
        _op(_IF_AT_LEAST, _OTHER_NUMBERING, 0, 1), _op(_RETURN, _KILL),
    ]  # fmt: skip
    for number in (call[column] for call in (*_FREE.values(), STARTS[start])):
        if number is not None:
            rules += [_op(_IF_EQUAL, number, 0, 1), _op(_RETURN, _ALLOW)]
    for name, bound in _bounds().items():
        rules += [_op(_IF_EQUAL, _BOUND[name][column], 0, len(bound)), *bound]
    # Not "forbidden" but "no such call": libraries then do without, or fall back on an older one (clone3 on clone).
    return b"".join([*rules, _op(_RETURN, _ERRNO | errno.ENOSYS)])


def start_number(start: Literal["execve", "execveat"], machine: str = os.uname().machine) -> int:
    """Return the number of the call that runs the worker on a kind of machine that we know."""
    return STARTS[start][list(_ARCHITECTURES).index(machine)]


def _bounds() -> dict[str, list[bytes]]:
    """Return, for each call that depends on its arguments, rules that end with a verdict."""
    yes, no = _op(_RETURN, _ALLOW), _op(_RETURN, _ERRNO | errno.EPERM)
    return {
        # For reading alone.
        "openat": [_argument(2), _op(_IF_ANY, ~_O_CLOEXEC & 0xFFFFFFFF, 0, 1), no, yes],
        # INVARIANT: what was written is never run. Code comes from files, and of those there are only the worker and its libraries.
        "mmap": [
            _argument(2), _op(_IF_ANY, _PROT_EXEC, 1, 0), yes,
            _op(_IF_ANY, _PROT_WRITE, 2, 0), _argument(3), _op(_IF_ANY, _MAP_ANONYMOUS, 0, 1), no, yes,
        ],
        "mprotect": [_argument(2), _op(_IF_ANY, _PROT_EXEC, 0, 1), no, yes],
        # Threads, never processes or namespaces.
        "clone": [_argument(0), _op(_AND, _CLONE_THREAD | _CLONE_NEW_ANYTHING), _op(_IF_EQUAL, _CLONE_THREAD, 1, 0), no, yes],
        "prctl": [_argument(0), _op(_IF_EQUAL, _PR_SET_NAME, 1, 0), no, yes],
        # Asking for its own limits, not setting them.
        "prlimit64": [*_all_zero(0, 2), no],
    }  # fmt: skip


def _all_zero(*arguments: int) -> Sequence[bytes]:
    """Return rules that allow where these arguments are zero, all 64 bits of them, and otherwise go on to the next rule."""
    words = [place for argument in arguments for place in (_place(argument), _place(argument) + 4)]
    rules: list[bytes] = []
    for left, place in zip(range(len(words), 0, -1), words, strict=True):
        rules += [_op(_LOAD, place), _op(_IF_EQUAL, 0, 0, 2 * left - 1)]
    return [*rules, _op(_RETURN, _ALLOW)]


def _argument(which: int) -> bytes:
    """Return the rule that loads an argument's lower half; flags have no other."""
    return _op(_LOAD, _place(which))


def _place(which: int) -> int:
    return _ARGUMENTS + 8 * which


def _op(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)
