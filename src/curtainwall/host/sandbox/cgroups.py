"""Control groups for confined families, so that the kernel limits their memory, and their processes even if they run as root.

Each family has a group inside the group of its session, which is inside the group of our process. Each level has its limits.
"""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from typing import Final

from curtainwall.host.sandbox.shares import Share
from curtainwall.model import record

_PREFIX: Final = "curtainwall-"
_PIDS: Final = "pids"
_MEMORY: Final = "memory"
# The file that holds a limit, by controller and version.
_LIMITS: Final = {(_PIDS, 1): "pids.max", (_PIDS, 2): "pids.max", (_MEMORY, 1): "memory.limit_in_bytes", (_MEMORY, 2): "memory.max"}
_TOKEN: Final = secrets.token_hex(4)


@record
class ProcessGroup:
    """The groups of one family, one for each controller that we may use."""

    paths: tuple[str, ...]

    def add(self, pid: int) -> None:
        """Add a process, and with it all that it will start."""
        for path in self.paths:
            _write(f"{path}/cgroup.procs", str(pid))

    def was_short_of_memory(self) -> bool:
        """Tell whether the kernel killed a process of the group because a level above ran out of memory."""
        counters = "".join(_read(f"{path}/{name}") for path in self.paths for name in ("memory.events", "memory.oom_control"))
        return any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in counters.splitlines())

    def remove(self) -> None:
        """Remove the groups once their processes are gone, and the parents that are empty then."""
        for path in self.paths:
            for _ in range(20):
                try:
                    os.rmdir(path)
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.005)
                else:
                    break
            above = os.path.dirname(path)
            while os.path.basename(above).startswith(_PREFIX):
                try:
                    os.rmdir(above)
                except OSError:
                    break
                above = os.path.dirname(above)


@record
class _Parent:
    """A directory in which we may create groups for a controller."""

    path: str
    controller: str
    version: int


def make_group(processes: int | None, share: Share | None = None) -> ProcessGroup | None:
    """Create a group, limited to a number of processes and to its session's share; None if this machine does not let us."""
    limits_of_family = {_PIDS: processes} if processes is not None else {}
    ours = f"{_PREFIX}{os.getpid()}-{_TOKEN}"
    levels: list[tuple[str, dict[str, int]]] = [(ours, {})]
    if share is not None:
        limits = share.limits
        name = f"{_PREFIX}session-{sha256(share.session.encode()).hexdigest()[:16]}"
        levels = [
            (ours, {_PIDS: limits.processes, _MEMORY: limits.memory}),
            (name, {_PIDS: limits.session_processes, _MEMORY: limits.session_memory}),
        ]
    levels.append((f"{_PREFIX}{secrets.token_hex(4)}", limits_of_family))
    paths: dict[str, None] = {}
    for controller in (_PIDS, _MEMORY):
        if any(controller in limits for _, limits in levels):
            group_path = next((path for parent in _parents(controller) if (path := _create_levels(parent, levels)) is not None), None)
            paths |= {group_path: None} if group_path is not None else {}
    return ProcessGroup(tuple(paths)) if paths else None


def holds_memory() -> bool:
    """Tell whether the kernel can enforce the memory limits of sessions."""
    with suppress(StopIteration):
        parent = next(_parents(_MEMORY))
        path = f"{parent.path}/{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        try:
            os.mkdir(path, 0o755)
        except OSError:
            return False
        try:
            _write(f"{path}/{_LIMITS[_MEMORY, parent.version]}", str(1 << 30))
        except OSError:
            return False
        finally:
            os.rmdir(path)
        return True
    return False


def _create_levels(parent: _Parent, levels: list[tuple[str, dict[str, int]]]) -> str | None:
    """Create the groups of all levels for one controller, and return the path of the innermost."""
    path = parent.path
    created: list[str] = []
    try:
        _sweep(path)
        for number, (name, limits) in enumerate(levels):
            path = f"{path}/{name}"
            with suppress(FileExistsError):
                os.mkdir(path, 0o755)
                created.append(path)
            if parent.controller in limits:
                _write(f"{path}/{_LIMITS[parent.controller, parent.version]}", str(limits[parent.controller]))
            if parent.version == 2 and number < len(levels) - 1:
                _write(f"{path}/cgroup.subtree_control", f"+{parent.controller}")
    except OSError:
        for created_path in reversed(created):
            with suppress(OSError):
                os.rmdir(created_path)
        return None
    return path


def _parents(controller: str) -> Iterator[_Parent]:
    """Yield the directories in which we could create a group, the nearest to our own group first."""
    with suppress(OSError):
        own = dict(_own_groups())
        with open("/proc/self/mountinfo") as file:
            mounts = [line.split(" ") for line in file]
        for fields in mounts:
            kind, options = fields[fields.index("-") + 1], fields[-1].strip().split(",")
            if kind == "cgroup" and controller in options:
                yield _Parent(_path_below_mount(fields[4], fields[3], own.get(controller, "/")), controller, 1)
            elif kind == "cgroup2":
                here = _path_below_mount(fields[4], fields[3], own.get("", "/"))
                while here.startswith(fields[4]):
                    if controller in _read(f"{here}/cgroup.subtree_control").split():
                        yield _Parent(here, controller, 2)
                    here = os.path.dirname(here)


def _own_groups() -> Iterator[tuple[str, str]]:
    with open("/proc/self/cgroup") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for controller in controllers.split(","):
                yield controller, path


def _path_below_mount(mount: str, root: str, path: str) -> str:
    inside = path[len(root) :] if root != "/" and path.startswith(root) else path
    return f"{mount}/{inside.strip('/')}".rstrip("/")


def _sweep(parent: str) -> None:
    """Remove groups that killed processes of ours left behind; a group in use cannot be removed."""
    for name in os.listdir(parent):
        if name.startswith(_PREFIX) and not os.path.exists(f"/proc/{name.removeprefix(_PREFIX).partition('-')[0]}"):
            for here, _, _ in os.walk(f"{parent}/{name}", topdown=False):
                with suppress(OSError):
                    os.rmdir(here)


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
