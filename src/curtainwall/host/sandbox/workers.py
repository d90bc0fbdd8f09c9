"""Confined code workers: writes a launcher that replaces the interpreter's binary and starts it without files or network.

The allowed system calls were measured: `strace` of a worker that runs, type-checks, suspends, dumps, runs out of memory and out of time.
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
from functools import cache
from pathlib import Path
from typing import Final, Literal, assert_never

from curtainwall.host.sandbox import worker_entry
from curtainwall.host.sandbox.bubblewrap import BubblewrapMissing, find_bubblewrap
from curtainwall.host.sandbox.confinement import MIB, ConfinementFailed
from curtainwall.model import record

_LOAD, _AND, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_OTHER_NUMBERING: Final = 0x40000000  # x32 marks its calls with this bit

# Memory, its own threads, its two pipes, the clock, randomness. `name: (x86_64, aarch64)`; None if there is no such call.
_ALLOWED: Final[dict[str, tuple[int | None, int | None]]] = {
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
_CONDITIONAL: Final = {
    "openat": (257, 56), "mmap": (9, 222), "mprotect": (10, 226), "clone": (56, 220), "prctl": (157, 167), "prlimit64": (302, 261),
}  # fmt: skip
STARTS: Final = {"execve": (59, 221), "execveat": (322, 281)}
"""The two calls that can start the worker, as `(x86_64, aarch64)`."""

_O_CLOEXEC, _PROT_WRITE, _PROT_EXEC, _MAP_ANONYMOUS, _PR_SET_NAME = 0x80000, 2, 4, 0x20, 15
_CLONE_THREAD, _CLONE_NEW_ANYTHING = 0x10000, 0x7E020000


def worker_filter(start: Literal["execve", "execveat"], machine: str = os.uname().machine) -> bytes | None:
    """Return the filter for this architecture, or None if we do not know its calls; `start` is the call that runs the worker."""
    if machine not in _ARCHITECTURES:
        return None
    column = list(_ARCHITECTURES).index(machine)
    rules = [
        _op(_LOAD, _ARCHITECTURE),
        # Another architecture's calls have other numbers; no honest program makes them.
        _op(_IF_EQUAL, _ARCHITECTURES[machine], 1, 0), _op(_RETURN, _KILL),
        _op(_LOAD, _NUMBER),
        _op(_IF_AT_LEAST, _OTHER_NUMBERING, 0, 1), _op(_RETURN, _KILL),
    ]  # fmt: skip
    for number in (call[column] for call in (*_ALLOWED.values(), STARTS[start])):
        if number is not None:
            rules += [_op(_IF_EQUAL, number, 0, 1), _op(_RETURN, _ALLOW)]
    for name, condition in _conditions().items():
        rules += [_op(_IF_EQUAL, _CONDITIONAL[name][column], 0, len(condition)), *condition]
    # ENOSYS and not EPERM: libraries then do without the call, or fall back on an older one (clone3 on clone).
    return b"".join([*rules, _op(_RETURN, _ERRNO | errno.ENOSYS)])


def start_number(start: Literal["execve", "execveat"], machine: str = os.uname().machine) -> int:
    """Return the number of the call that runs the worker, on an architecture that we know."""
    return STARTS[start][list(_ARCHITECTURES).index(machine)]


def _conditions() -> dict[str, list[bytes]]:
    """Return, for each call that depends on its arguments, rules that end with a verdict."""
    yes, no = _op(_RETURN, _ALLOW), _op(_RETURN, _ERRNO | errno.EPERM)
    return {
        # Only for reading.
        "openat": [_argument(2), _op(_IF_ANY, ~_O_CLOEXEC & 0xFFFFFFFF, 0, 1), no, yes],
        # INVARIANT: memory that was written is never executed. Code comes only from files: the worker and its libraries.
        "mmap": [
            _argument(2), _op(_IF_ANY, _PROT_EXEC, 1, 0), yes,
            _op(_IF_ANY, _PROT_WRITE, 2, 0), _argument(3), _op(_IF_ANY, _MAP_ANONYMOUS, 0, 1), no, yes,
        ],
        "mprotect": [_argument(2), _op(_IF_ANY, _PROT_EXEC, 0, 1), no, yes],
        # Only threads, never processes or namespaces.
        "clone": [_argument(0), _op(_AND, _CLONE_THREAD | _CLONE_NEW_ANYTHING), _op(_IF_EQUAL, _CLONE_THREAD, 1, 0), no, yes],
        "prctl": [_argument(0), _op(_IF_EQUAL, _PR_SET_NAME, 1, 0), no, yes],
        # It may read its own limits, not set them.
        "prlimit64": [*_all_zero(0, 2), no],
    }  # fmt: skip


def _all_zero(*arguments: int) -> Sequence[bytes]:
    """Return rules that allow the call if all 64 bits of these arguments are zero, and otherwise continue with the next rule."""
    offsets = [offset for argument in arguments for offset in (_offset(argument), _offset(argument) + 4)]
    rules: list[bytes] = []
    for remaining, offset in zip(range(len(offsets), 0, -1), offsets, strict=True):
        rules += [_op(_LOAD, offset), _op(_IF_EQUAL, 0, 0, 2 * remaining - 1)]
    return [*rules, _op(_RETURN, _ALLOW)]


def _argument(which: int) -> bytes:
    """Return the rule that loads the lower half of an argument; flags only use that half."""
    return _op(_LOAD, _offset(which))


def _offset(which: int) -> int:
    return _ARGUMENTS + 8 * which


def _op(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


WorkerConfinement = Literal["bubblewrap", "landlock", "none"]
"""The confinement of a worker: bubblewrap and a filter, Landlock and a filter, or only resource limits."""

_MEMORY: Final = 2048 * MIB
_INTERPRETER: Final = 3
_TRIAL_TIME: Final = 30.0
_REMEDY: Final = "install bubblewrap (on Debian: apt-get install bubblewrap), or boot a kernel with Landlock (`lsm=landlock,…`)"


@record
class Worker:
    """A tested way to start code workers: run `launcher` in place of the binary, with the same arguments and pipes."""

    launcher: Path
    how: WorkerConfinement


def confined_worker(
    binary: Path, directory: Path, *, how: WorkerConfinement | None = None, unconfined_ok: bool = False, memory: int = _MEMORY
) -> Worker:
    """Write a launcher for the binary into a directory of ours; each method is tested once per process, so the first call is slow.

    `how` requires one method. Raise `ConfinementFailed` if none works; with `unconfined_ok`, which only the user may set, fall back on
    resource limits alone.
    """
    if how == "none" and not unconfined_ok:
        raise ConfinementFailed("code workers run unconfined only where the user allows it")
    methods: tuple[WorkerConfinement, ...] = (
        (how,) if how else ("bubblewrap", "landlock", "none") if unconfined_ok else ("bubblewrap", "landlock")
    )
    failures: list[str] = []
    for method in methods:
        try:
            entry = _entry_arguments(method, str(binary.resolve(strict=True)), memory)
            _require_working(entry)
        except (ConfinementFailed, OSError) as fault:
            failures.append(f"{method}: {fault}")
            continue
        try:
            return Worker(_write_launcher(directory, method, entry), method)
        except OSError as fault:
            # Another method would write to the same directory.
            remedy = "make room on its disk, and see that it is ours to write to"
            raise ConfinementFailed(f"`{directory}` takes no launcher for code workers: {fault.strerror}; {remedy}") from None
    raise ConfinementFailed(f"code workers cannot be confined here ({'; '.join(failures)}); {_REMEDY}")


def find_monty() -> Path | None:
    """Return the interpreter that was installed with us, or the one on the path."""
    places = [Path(sysconfig.get_path("scripts")), Path(sys.executable).parent]
    with suppress(KeyError):
        places.append(Path(sysconfig.get_path("scripts", f"{os.name}_user")))
    for place in places:
        if os.access(place / "monty", os.X_OK):
            return place / "monty"
    path = shutil.which("monty")
    return Path(path) if path else None


def _entry_arguments(how: WorkerConfinement, binary: str, memory: int) -> tuple[str, ...]:
    """Return the arguments of `worker_entry`."""
    match how:
        case "bubblewrap":
            program, words = worker_filter("execve") or b"", _bubblewrap_words(binary)
        case "landlock":
            program = worker_filter("execveat")
            if program is None:
                # Landlock alone does not restrict sockets or other processes.
                raise ConfinementFailed(f"no system-call filter for {os.uname().machine}")
            loader, libraries = _dependencies(binary)
            words = [str(start_number("execveat")), binary, loader, *libraries]
        case "none":
            program, words = b"", [binary]
        case _:
            assert_never(how)
    return how, str(memory), program.hex(), *words


def _bubblewrap_words(binary: str) -> list[str]:
    bubblewrap = find_bubblewrap()
    if isinstance(bubblewrap, BubblewrapMissing):
        raise ConfinementFailed(bubblewrap.reason)
    words = [bubblewrap.path, "--unshare-all", "--unshare-user", "--disable-userns", "--uid", "65534", "--gid", "65534"]
    # The worker is the namespace's first process: it may not start others, so nobody has to reap them.
    words += ["--hostname", "worker", "--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL", "--clearenv"]
    words += ["--ro-bind", binary, worker_entry.INSIDE]
    loader, libraries = _dependencies(binary)
    for path in filter(None, (loader, *libraries)):
        words += ["--ro-bind", os.path.realpath(path), path]
    return [*words, "--remount-ro", "/", "--chdir", "/"]


@cache
def _dependencies(binary: str) -> tuple[str, tuple[str, ...]]:
    """Return a program's loader, empty if it needs none, and the libraries that the loader finds for it."""
    loader = _loader(binary)
    if not loader:
        return "", ()
    try:
        result = subprocess.run(
            [loader, "--list", binary], capture_output=True, text=True, env={}, cwd="/", timeout=_TRIAL_TIME, check=True
        )
    except (subprocess.SubprocessError, UnicodeDecodeError) as fault:
        raise ConfinementFailed(f"the libraries of `{binary}` cannot be listed: {fault}") from fault
    # Lines look like `libm.so.6 => /lib/libm.so.6 (0x…)`; a library without a path comes from the kernel.
    paths = (line.rpartition(" => ")[2].rpartition(" (")[0].strip() for line in result.stdout.splitlines())
    return loader, tuple(path for path in paths if path.startswith("/") and path != loader)


def _loader(binary: str) -> str:
    """Return the loader that a program's ELF header names."""
    with open(binary, "rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01" or len(head) < 64:
            raise ConfinementFailed(f"`{binary}` is no 64-bit program")
        offset = struct.unpack_from("<Q", head, 32)[0]
        size, count = struct.unpack_from("<HH", head, 54)
        for number in range(count):
            file.seek(offset + number * size)
            header = file.read(size)
            if struct.unpack_from("<I", header)[0] == _INTERPRETER:
                file.seek(struct.unpack_from("<Q", header, 8)[0])
                return os.fsdecode(file.read(struct.unpack_from("<Q", header, 32)[0]).rstrip(b"\0"))
    return ""


def _command(stderr: Literal["quiet", "loud"], entry: tuple[str, ...]) -> list[str]:
    # INVARIANT: the entry script imports nothing from the workspace, the environment or the user's site-packages.
    return [sys.executable, "-I", "-S", worker_entry.__file__, stderr, *entry, "--"]


@cache
def _trial_failure(entry: tuple[str, ...]) -> str | None:
    """Start a worker without work, and return what it prints if it fails."""
    try:
        result = subprocess.run(
            [*_command("loud", entry), "subprocess"], stdin=subprocess.DEVNULL, capture_output=True, env={}, cwd="/", timeout=_TRIAL_TIME,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as fault:
        return str(fault)
    if result.returncode == 0:
        return None
    message = result.stderr.decode(errors="replace").strip()[:300]
    return message or f"a worker ended with {result.returncode}"


def _require_working(entry: tuple[str, ...]) -> None:
    failure = _trial_failure(entry)
    if failure is not None:
        raise ConfinementFailed(failure)


def _write_launcher(directory: Path, how: WorkerConfinement, entry: tuple[str, ...]) -> Path:
    """Write the launcher atomically, unless it is already up to date."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.statvfs(directory).f_flag & os.ST_NOEXEC:
        raise ConfinementFailed(f"no program may be started in `{directory}`: its file system is mounted noexec")
    launcher = directory.resolve() / f"monty-{how}"
    text = f'#!/bin/sh\nexec {shlex.join(_command("quiet", entry))} "$@"\n'.encode()
    with suppress(FileNotFoundError):
        if launcher.read_bytes() == text and launcher.stat().st_mode & 0o7777 == 0o700:
            return launcher
    draft = directory / f".monty-{how}.{os.getpid()}"
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o700)
        file.write(text)
    draft.replace(launcher)
    return launcher
