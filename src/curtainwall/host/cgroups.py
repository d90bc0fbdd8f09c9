"""A control group for one confined family, so that the kernel counts its processes also where it does not count a user's: as root."""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

_PREFIX = "curtainwall-"


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A group of processes of which there can only be so many."""

    path: str

    def add(self, pid: int) -> None:
        """Put a process in, and with it all that it will start."""
        _write(f"{self.path}/cgroup.procs", str(pid))

    def remove(self) -> None:
        """Take the group away, once its processes are gone."""
        for _ in range(20):
            try:
                os.rmdir(self.path)
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.005)
            else:
                return


def make_group(processes: int) -> ProcessGroup | None:
    """Return a new group that holds no more than so many processes, or None where this machine does not let us make one."""
    for parent in _parents():
        path = f"{parent}/{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        try:
            _sweep(parent)
            os.mkdir(path, 0o755)
        except OSError:
            continue
        try:
            _write(f"{path}/pids.max", str(processes))
        except OSError:
            os.rmdir(path)
            continue
        return ProcessGroup(path)
    return None


def _parents() -> Iterator[str]:
    """Yield the directories in which a group could be made, the nearest to our own group first."""
    with suppress(OSError):
        own = dict(_own_groups())
        with open("/proc/self/mountinfo") as file:
            mounts = [line.split(" ") for line in file]
        for fields in mounts:
            kind, options = fields[fields.index("-") + 1], fields[-1].strip().split(",")
            if kind == "cgroup" and "pids" in options:
                yield _below(fields[4], fields[3], own.get("pids", "/"))
            elif kind == "cgroup2":
                here = _below(fields[4], fields[3], own.get("", "/"))
                while here.startswith(fields[4]):
                    if "pids" in _read(f"{here}/cgroup.subtree_control").split():
                        yield here
                    here = os.path.dirname(here)


def _own_groups() -> Iterator[tuple[str, str]]:
    with open("/proc/self/cgroup") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for controller in controllers.split(","):
                yield controller, path


def _below(mount: str, root: str, path: str) -> str:
    inside = path[len(root) :] if root != "/" and path.startswith(root) else path
    return f"{mount}/{inside.strip('/')}".rstrip("/")


def _sweep(parent: str) -> None:
    """Take away what processes of ours left behind that were killed; a group that is in use cannot be removed."""
    for name in os.listdir(parent):
        if name.startswith(_PREFIX) and not os.path.exists(f"/proc/{name.removeprefix(_PREFIX).partition('-')[0]}"):
            with suppress(OSError):
                os.rmdir(f"{parent}/{name}")


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
