"""Limits on a confined process and its children: set from outside before the first program runs, and watched if the kernel cannot count."""

import os
import resource
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from curtainwall.host.files.beneath import FileOwner
from curtainwall.host.sandbox import owner_entry
from curtainwall.host.sandbox.cgroups import ProcessGroup, make_group
from curtainwall.host.sandbox.confinement import Bounds, Confinement
from curtainwall.host.sandbox.shares import SandboxUsage, Share
from curtainwall.model import on_disk

_OPEN_FILES: Final = 4096
_PAGE: Final = resource.getpagesize()


def counts_processes(release: str = os.uname().release, uid: int = -1) -> bool:
    """Tell whether the kernel counts the processes of each user namespace separately; it never does for root."""
    uid = os.geteuid() if uid < 0 else uid
    number = release.split("-", maxsplit=1)[0].split(".")
    return uid != 0 and tuple(int(part) for part in number[:2] if part.isdigit()) >= (5, 14)


def owner_words(owner: FileOwner | None, confinement: Confinement) -> list[str]:
    """Return the words that start a command as another user, with its limits; empty if it runs as us."""
    if owner is None:
        return []
    limits = ",".join(f"{which}={_allowed(0, which, limit)}" for which, limit in _limits(confinement.bounds).items())
    paths = confinement.given
    # INVARIANT: the entry script imports nothing from the workspace, the environment or the user's site-packages.
    return [sys.executable, "-I", "-S", owner_entry.__file__, str(owner.user), str(owner.group), limits, str(len(paths)), *paths]


def _limits(bounds: Bounds) -> dict[int, int]:
    limits = {
        # Not RLIMIT_AS: today's runtimes reserve far more address space than they use.
        resource.RLIMIT_DATA: bounds.memory,
        resource.RLIMIT_FSIZE: bounds.file_size,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_MEMLOCK: 8 * 1024 * 1024,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if counts_processes():
        limits[resource.RLIMIT_NPROC] = bounds.processes
    return limits


def _allowed(pid: int, which: int, limit: int) -> int:
    hard = resource.prlimit(pid, which)[1]
    return limit if hard == resource.RLIM_INFINITY else min(limit, hard)


def set_limits(pid: int, bounds: Bounds, share: Share | None = None, *, is_ours: bool = True) -> ProcessGroup | None:
    """Limit a process and all that it will start, and return its control group; if memory runs out, the kernel kills these first.

    The caller removes the group when they are gone. A process that was started as another user has its limits already (`owner_words`).
    """
    for which, limit in _limits(bounds).items() if is_ours else ():
        allowed = _allowed(pid, which, limit)
        resource.prlimit(pid, which, (allowed, allowed))
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, 5)
    with suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w") as file:
        file.write("1000")
    is_counted = counts_processes()
    # One more for bubblewrap's own process.
    group = make_group(None if is_counted else bounds.processes + 1, share)
    if group is not None:
        try:
            group.add(pid)
        except OSError:
            group.remove()
            # An ordinary user may be allowed to create groups but not to move processes into them.
            if not is_counted:
                raise
            return None
    return group


def holds_processes() -> bool:
    """Tell whether the kernel enforces the number of processes; otherwise we only watch it."""
    if counts_processes():
        return True
    group = make_group(1)
    if group is not None:
        group.remove()
    return group is not None


def overuse(pid: int, bounds: Bounds, usage: SandboxUsage | None = None) -> str | None:
    """Return a message if a family uses too much, or None; it looks from outside, so a moment late."""
    usage = usage or usage_of(pid, bounds.processes)
    if usage.processes > bounds.processes:
        return f"it had more than {bounds.processes} processes"
    if usage.memory > bounds.memory and usage_of(pid, bounds.processes, is_exact=True).memory > bounds.memory:
        return f"it used more than {bounds.memory // (1024 * 1024)} MiB of memory"
    return None


def usage_of(pid: int, max_processes: int, *, is_exact: bool = False) -> SandboxUsage:
    """Return what a family uses, counting no further once it has too many processes; with `is_exact`, shared memory counts once."""
    tasks = memory = 0
    memory_of = _proportional if is_exact else _resident
    for member, threads in _family(pid):
        tasks += threads
        memory += memory_of(member)
        # The first two belong to bubblewrap.
        if tasks > max_processes + 2:
            break
    return SandboxUsage(max(tasks - 2, 0), memory)


def _family(pid: int) -> Iterator[tuple[int, int]]:
    """Yield a process and its descendants, each with its number of threads; orphans are children of the namespace's first process."""
    waiting = [pid]
    while waiting:
        member = waiting.pop()
        try:
            threads = os.listdir(f"/proc/{member}/task")
        except OSError:
            continue
        yield member, len(threads)
        for thread in threads:
            with suppress(OSError), open(f"/proc/{member}/task/{thread}/children") as file:
                waiting.extend(int(child) for child in file.read().split())


def _resident(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * _PAGE
    return 0


def _proportional(pid: int) -> int:
    """Return a process's proportional share of its memory, so that pages shared in a family count once."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    return _resident(pid)


_MIN_FREE_NAMES: Final = 10_000
# If a disk was nearly full before, a family is blamed only if it adds more than this.
_LITTLE_BYTES: Final = 16 * 1024 * 1024
_FEW_NEW_NAMES: Final = 1_000


class DiskRoom:
    """The free room on the disks of some directories, compared with the room at the start."""

    def __init__(self, directories: Iterable[str], spare: int) -> None:
        self._spare = spare
        self._before: dict[int, tuple[str, int, int]] = {}
        for path in directories:
            # What is written in a view takes room where its changes are kept.
            with suppress(OSError):
                self._before.setdefault(os.stat(on_disk(path)).st_dev, (path, *_free(path)))

    def missing(self) -> str | None:
        """Return a message if a disk is nearly full and was less so before; None if there is room."""
        for path, free, names in self._before.values():
            with suppress(OSError):
                free_now, names_now = _free(path)
                if free_now < self._spare and free_now < free - _LITTLE_BYTES:
                    return f"the disk with `{path}` has less than {self._spare // (1024 * 1024)} MiB left"
                if names_now < _MIN_FREE_NAMES and names_now < names - _FEW_NEW_NAMES:
                    return f"the disk with `{path}` has hardly any room left for names of files"
        return None


def _free(path: str) -> tuple[int, int]:
    """Return the free bytes and inodes; a disk that does not count inodes has room for any number."""
    stats = os.statvfs(on_disk(path))
    return stats.f_bavail * stats.f_frsize, stats.f_favail if stats.f_files else 1 << 62
