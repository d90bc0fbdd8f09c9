"""The owner of a container: a process identified by id, start time and boot, so that a later process with its id is not mistaken for it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from curtainwall.model import record

OWNER: Final = "curtainwall.owner"
SESSION: Final = "curtainwall.session"
HOUSE: Final = "curtainwall.house"
AGENT: Final = "curtainwall.agent"


@record
class ContainerOwner:
    """One process of one boot. `namespace` is its PID namespace; ids from another one mean nothing here."""

    pid: int
    started: int
    boot: str
    namespace: int

    @classmethod
    def of_this_process(cls) -> "ContainerOwner":
        """Return this process as an owner."""
        pid = os.getpid()
        return cls(pid, _started(pid) or 0, _boot(), _namespace())

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> "ContainerOwner | None":
        """Return the owner in a container's labels, or None if there is no readable one."""
        parts = labels.get(OWNER, "").split("/")
        try:
            pid, started, boot, namespace = parts
            return cls(int(pid), int(started), boot, int(namespace))
        except ValueError:
            return None

    @property
    def label(self) -> str:
        """Return the owner as a container's label."""
        return f"{self.pid}/{self.started}/{self.boot}/{self.namespace}"

    @property
    def is_alive(self) -> bool:
        """Tell whether the process may still be alive, which is never ruled out for a process of another namespace."""
        if self.boot != _boot():
            return False
        if self.namespace != _namespace():
            return True
        return _started(self.pid) == self.started


def _started(pid: int) -> int | None:
    """Return a process's start time in ticks since the boot, or None if there is no such process."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in parentheses may contain anything, so only the last parenthesis ends it.
    fields = status.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino
