"""The ways to hold a code worker that this machine has, and a look at workers from outside: whose child, how they stand, when gone."""

import ctypes
import os
import select
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from curtainwall.host import WorkerConfinement
from tests.support.real_parts import REAL_PARTS, RealPart, require
from tests.support.waiting import until


def _landlock() -> str | None:
    version = ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    return f"ABI {version}" if version > 0 else None


WAYS = {"bubblewrap": REAL_PARTS["bubblewrap"], "landlock": RealPart("landlock", _landlock, "a kernel booted with `lsm=landlock,…`")}


def way(name: str) -> WorkerConfinement:
    """Return a way to hold workers; where this machine lacks it, skip the test, or fail it when `CI=true`."""
    require(WAYS[name])
    return cast("WorkerConfinement", name)


def descendants(pid: int) -> Iterator[int]:
    """Yield the children of a process, and theirs."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for task in tasks:
        try:
            children = Path(f"/proc/{pid}/task/{task}/children").read_text()
        except OSError:
            continue
        for child in map(int, children.split()):
            yield child
            yield from descendants(child)


def worker_of(pid: int) -> int:
    """Return the process at or beneath this one in which the interpreter's thread runs; wait until it does."""
    return until(lambda: next((one for one in (pid, *descendants(pid)) if "monty-worker" in threads(one)), 0))


def threads(pid: int) -> list[str]:
    """Return the names of a process's threads."""
    try:
        return [Path(f"/proc/{pid}/task/{task}/comm").read_text().strip() for task in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def status(pid: int) -> dict[str, str]:
    """Return what the kernel says of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def time_used(pid: int) -> int:
    """Return the clock ticks that a process has spent computing."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return int(user) + int(system)


def is_gone(process: int, seconds: float) -> bool:
    """Tell whether the process of this descriptor ends in time."""
    return bool(select.select([process], [], [], seconds)[0])
