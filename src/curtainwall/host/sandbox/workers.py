"""Code workers, confined: a launcher that stands in for the interpreter's binary and starts it with no files, no network and no way out.

Measured, not guessed: `strace` of a worker that runs, type-checks, suspends, dumps, runs out of memory and out of time.
"""

import errno
import os
import shlex
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal, assert_never

from curtainwall.host.sandbox import worker_entry
from curtainwall.host.sandbox.bubblewrap import BubblewrapMissing, find_bubblewrap
from curtainwall.host.sandbox.confinement import MIB, ConfinementFailed

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


How = Literal["bubblewrap", "landlock", "none"]
"""What holds a worker: bubblewrap and a filter, Landlock and a filter, or nothing but bounds."""

_MEMORY: Final = 2048 * MIB
_INTERPRETER: Final = 3
_TRIAL: Final = 30.0
_REMEDY: Final = "install bubblewrap (on Debian: apt-get install bubblewrap), or boot a kernel with Landlock (`lsm=landlock,…`)"


@dataclass(frozen=True, slots=True)
class Worker:
    """A way to start code workers that was seen to work: `launcher` is run in place of the binary, with the same arguments and pipes."""

    launcher: Path
    how: How


def confined_worker(binary: Path, directory: Path, *, how: How | None = None, unconfined_ok: bool = False, memory: int = _MEMORY) -> Worker:
    """Write a launcher for the binary into a directory of ours; each way is tried out once per process, so the first call takes a moment.

    `how` insists on one way. Raise `ConfinementFailed` where no way works; with `unconfined_ok`, which is the user's to say, bounds are
    all that is left.
    """
    if how == "none" and not unconfined_ok:
        raise ConfinementFailed("code workers run unconfined only where the user allows it")
    ways: tuple[How, ...] = (how,) if how else ("bubblewrap", "landlock", "none") if unconfined_ok else ("bubblewrap", "landlock")
    faults: list[str] = []
    for way in ways:
        try:
            entry = _entry(way, str(binary.resolve(strict=True)), memory)
            _try_out(entry)
        except (ConfinementFailed, OSError) as fault:
            faults.append(f"{way}: {fault}")
            continue
        try:
            return Worker(_written(directory, way, entry), way)
        except OSError as fault:
            # Another way would be written to the same place.
            remedy = "make room on its disk, and see that it is ours to write to"
            raise ConfinementFailed(f"`{directory}` takes no launcher for code workers: {fault.strerror}; {remedy}") from None
    raise ConfinementFailed(f"code workers cannot be confined here ({'; '.join(faults)}); {_REMEDY}")


def find_monty() -> Path | None:
    """Return the interpreter that was installed along with us, or the one on the path."""
    places = [Path(sysconfig.get_path("scripts")), Path(sys.executable).parent]
    with suppress(KeyError):
        places.append(Path(sysconfig.get_path("scripts", f"{os.name}_user")))
    for place in places:
        if os.access(place / "monty", os.X_OK):
            return place / "monty"
    found = shutil.which("monty")
    return Path(found) if found else None


def _entry(how: How, binary: str, memory: int) -> tuple[str, ...]:
    """Return what `worker_entry` is told."""
    match how:
        case "bubblewrap":
            program, words = worker_filter("execve") or b"", _in_bubblewrap(binary)
        case "landlock":
            program = worker_filter("execveat")
            if program is None:
                # Landlock leaves sockets and other processes alone.
                raise ConfinementFailed(f"no system-call filter for {os.uname().machine}")
            loader, libraries = _needs(binary)
            words = [str(start_number("execveat")), binary, loader, *libraries]
        case "none":
            program, words = b"", [binary]
        case _:
            assert_never(how)
    return how, str(memory), program.hex(), *words


def _in_bubblewrap(binary: str) -> list[str]:
    found = find_bubblewrap()
    if isinstance(found, BubblewrapMissing):
        raise ConfinementFailed(found.reason)
    words = [found.path, "--unshare-all", "--unshare-user", "--disable-userns", "--uid", "65534", "--gid", "65534"]
    # It is the first process itself: it may start no others, so there is nobody to reap.
    words += ["--hostname", "worker", "--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL", "--clearenv"]
    words += ["--ro-bind", binary, worker_entry.INSIDE]
    loader, libraries = _needs(binary)
    for path in filter(None, (loader, *libraries)):
        words += ["--ro-bind", os.path.realpath(path), path]
    return [*words, "--remount-ro", "/", "--chdir", "/"]


@cache
def _needs(binary: str) -> tuple[str, tuple[str, ...]]:
    """Return a program's loader, empty where it needs none, and the libraries that this loader finds for it."""
    loader = _loader(binary)
    if not loader:
        return "", ()
    try:
        done = subprocess.run([loader, "--list", binary], capture_output=True, text=True, env={}, cwd="/", timeout=_TRIAL, check=True)
    except (subprocess.SubprocessError, UnicodeDecodeError) as fault:
        raise ConfinementFailed(f"the libraries of `{binary}` cannot be listed: {fault}") from fault
    # As in `libm.so.6 => /lib/libm.so.6 (0x…)`; what has no path is the kernel's own.
    found = (line.rpartition(" => ")[2].rpartition(" (")[0].strip() for line in done.stdout.splitlines())
    return loader, tuple(path for path in found if path.startswith("/") and path != loader)


def _loader(binary: str) -> str:
    """Return the loader that a program names."""
    with open(binary, "rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01" or len(head) < 64:
            raise ConfinementFailed(f"`{binary}` is no 64-bit program")
        at = struct.unpack_from("<Q", head, 32)[0]
        size, count = struct.unpack_from("<HH", head, 54)
        for number in range(count):
            file.seek(at + number * size)
            part = file.read(size)
            if struct.unpack_from("<I", part)[0] == _INTERPRETER:
                file.seek(struct.unpack_from("<Q", part, 8)[0])
                return os.fsdecode(file.read(struct.unpack_from("<Q", part, 32)[0]).rstrip(b"\0"))
    return ""


def _command(voice: Literal["quiet", "loud"], entry: tuple[str, ...]) -> list[str]:
    # INVARIANT: nothing of the workspace, the environment or the user's site is imported on the way in.
    return [sys.executable, "-I", "-S", worker_entry.__file__, voice, *entry, "--"]


@cache
def _complaint(entry: tuple[str, ...]) -> str | None:
    """Start a worker that has nothing to do, and return what it says where it does not end well."""
    try:
        done = subprocess.run(
            [*_command("loud", entry), "subprocess"], stdin=subprocess.DEVNULL, capture_output=True, env={}, cwd="/", timeout=_TRIAL,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as fault:
        return str(fault)
    if done.returncode == 0:
        return None
    message = done.stderr.decode(errors="replace").strip()[:300]
    return message or f"a worker ended with {done.returncode}"


def _try_out(entry: tuple[str, ...]) -> None:
    complaint = _complaint(entry)
    if complaint is not None:
        raise ConfinementFailed(complaint)


def _written(directory: Path, how: How, entry: tuple[str, ...]) -> Path:
    """Write the launcher, all of it or nothing, and leave one that is right already."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.statvfs(directory).f_flag & os.ST_NOEXEC:
        raise ConfinementFailed(f"no program may be started in `{directory}`: its file system is mounted noexec")
    launcher = directory.resolve() / f"monty-{how}"
    text = f'#!/bin/sh\nexec {shlex.join(_command("quiet", entry))} "$@"\n'.encode()
    with suppress(FileNotFoundError):
        if launcher.read_bytes() == text and launcher.stat().st_mode & 0o7777 == 0o700:
            return launcher
    fresh = directory / f".monty-{how}.{os.getpid()}"
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o700)
        file.write(text)
    fresh.replace(launcher)
    return launcher
