"""What a confined family may use: set from outside before its first program runs, and watched where the kernel does not count."""

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

_OPEN_FILES: Final = 4096
_PAGE: Final = resource.getpagesize()


def counts_processes(release: str = os.uname().release, uid: int = -1) -> bool:
    """Tell whether the kernel counts the processes of one user namespace by themselves; never for root's own uid."""
    uid = os.geteuid() if uid < 0 else uid
    number = release.split("-", maxsplit=1)[0].split(".")
    return uid != 0 and tuple(int(part) for part in number[:2] if part.isdigit()) >= (5, 14)


def owner_words(owner: FileOwner | None, confinement: Confinement) -> list[str]:
    """Return what comes before a command that is to be started as somebody else, with its limits; nothing where it stays ours."""
    if owner is None:
        return []
    limits = ",".join(f"{which}={_allowed(0, which, most)}" for which, most in _limits(confinement.bounds).items())
    paths = confinement.given
    # INVARIANT: nothing of the workspace, the environment or the user's site is imported on the way in.
    return [sys.executable, "-I", "-S", owner_entry.__file__, str(owner.user), str(owner.group), limits, str(len(paths)), *paths]


def _limits(bounds: Bounds) -> dict[int, int]:
    limits = {
        # Not RLIMIT_AS: today's runtimes reserve far more addresses than they ever use.
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


def _allowed(pid: int, which: int, most: int) -> int:
    hard = resource.prlimit(pid, which)[1]
    return most if hard == resource.RLIM_INFINITY else min(most, hard)


def set_limits(pid: int, bounds: Bounds, share: Share | None = None, *, is_ours: bool = True) -> ProcessGroup | None:
    """Bound a process and all that it will start, and return the group that was made for it; in need of memory the kernel ends these first.

    The group is to be removed when they are gone. One that was started as somebody else has its limits already (`owner_words`).
    """
    for which, most in _limits(bounds).items() if is_ours else ():
        allowed = _allowed(pid, which, most)
        resource.prlimit(pid, which, (allowed, allowed))
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, 5)
    with suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w") as file:
        file.write("1000")
    is_counted = counts_processes()
    # One more for bubblewrap's own.
    group = make_group(None if is_counted else bounds.processes + 1, share)
    if group is not None:
        try:
            group.add(pid)
        except OSError:
            group.remove()
            # An ordinary user may be allowed to make groups and not to move anybody there.
            if not is_counted:
                raise
            return None
    return group


def holds_processes() -> bool:
    """Tell whether the kernel will stop a family that grows too big; otherwise it is only watched."""
    if counts_processes():
        return True
    group = make_group(1)
    if group is not None:
        group.remove()
    return group is not None


def overuse(pid: int, bounds: Bounds, usage: SandboxUsage | None = None) -> str | None:
    """Return in words what a family uses too much of, or None; looks from outside, so a moment late."""
    usage = usage or usage_of(pid, bounds.processes)
    if usage.processes > bounds.processes:
        return f"it had more than {bounds.processes} processes"
    if usage.memory > bounds.memory and usage_of(pid, bounds.processes, is_exact=True).memory > bounds.memory:
        return f"it used more than {bounds.memory // (1024 * 1024)} MiB of memory"
    return None


def usage_of(pid: int, most: int, *, is_exact: bool = False) -> SandboxUsage:
    """Return what a family uses; one that has too many processes is not counted to the end. Exactly, what they share counts once."""
    tasks = memory = 0
    weigh = _proportional if is_exact else _resident
    for member, threads in _family(pid):
        tasks += threads
        memory += weigh(member)
        # The first two are bubblewrap's own.
        if tasks > most + 2:
            break
    return SandboxUsage(max(tasks - 2, 0), memory)


def _family(pid: int) -> Iterator[tuple[int, int]]:
    """Yield a process and its descendants, each with the number of its threads; orphans belong to the first process of the namespace."""
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
    """Return a process's share of the pages it has, so that what a family shares counts once."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    return _resident(pid)


_FEW_NAMES: Final = 10_000
# A disk that is nearly full already is nobody's fault as long as hardly anything is added.
_HARDLY: Final = 16 * 1024 * 1024
_HARDLY_ANY: Final = 1_000


class DiskRoom:
    """The disks of some directories, as they were when it began."""

    def __init__(self, directories: Iterable[str], spare: int) -> None:
        self._spare = spare
        self._before: dict[int, tuple[str, int, int]] = {}
        for path in directories:
            with suppress(OSError):
                self._before.setdefault(os.stat(path).st_dev, (path, *_free(path)))

    def missing(self) -> str | None:
        """Return in words which disk is nearly full by now, and was less so before; None where there is room."""
        for path, free, names in self._before.values():
            with suppress(OSError):
                free_now, names_now = _free(path)
                if free_now < self._spare and free_now < free - _HARDLY:
                    return f"the disk with `{path}` has less than {self._spare // (1024 * 1024)} MiB left"
                if names_now < _FEW_NAMES and names_now < names - _HARDLY_ANY:
                    return f"the disk with `{path}` has hardly any room left for names of files"
        return None


def _free(path: str) -> tuple[int, int]:
    """Return the bytes and names that fit; a disk that does not count names has room for all."""
    stats = os.statvfs(path)
    return stats.f_bavail * stats.f_frsize, stats.f_favail if stats.f_files else 1 << 62
