"""Code workers, confined: a launcher that stands in for the interpreter's binary and starts it with no files, no network and no way out."""

import os
import shlex
import shutil
import struct
import subprocess
import sys
import sysconfig
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal, assert_never

from curtainwall.host.sandbox import worker_entry
from curtainwall.host.sandbox.bubblewrap import Missing, find_bubblewrap
from curtainwall.host.sandbox.terms import MIB, ConfinementFailed
from curtainwall.host.sandbox.worker_filter import start_number, worker_filter

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
    if isinstance(found, Missing):
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
    told = done.stderr.decode(errors="replace").strip()[:300]
    return told or f"a worker ended with {done.returncode}"


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
