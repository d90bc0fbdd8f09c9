"""Whose container it is: a process told by its id, its start and the boot, so that a later process with the same id is not taken for it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

OWNER: Final = "curtainwall.owner"
SESSION: Final = "curtainwall.session"
HOUSE: Final = "curtainwall.house"
AGENT: Final = "curtainwall.agent"


@dataclass(frozen=True, slots=True)
class ContainerOwner:
    """One process of one boot. `namespace` is where its id counts: ids of another one say nothing here."""

    pid: int
    started: int
    boot: str
    namespace: int

    @classmethod
    def of_this_process(cls) -> "ContainerOwner":
        """Return ourselves."""
        pid = os.getpid()
        return cls(pid, _started(pid) or 0, _boot(), _namespace())

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> "ContainerOwner | None":
        """Return the owner that a container names, or None where it names none that can be read."""
        parts = labels.get(OWNER, "").split("/")
        try:
            pid, started, boot, namespace = parts
            return cls(int(pid), int(started), boot, int(namespace))
        except ValueError:
            return None

    @property
    def label(self) -> str:
        """Return the owner as a container names it."""
        return f"{self.pid}/{self.started}/{self.boot}/{self.namespace}"

    @property
    def is_alive(self) -> bool:
        """Tell whether the process may still be there; of one whose ids do not count here, that is never ruled out."""
        if self.boot != _boot():
            return False
        if self.namespace != _namespace():
            return True
        return _started(self.pid) == self.started


def _started(pid: int) -> int | None:
    """Return when a process began, in ticks since the boot, or None where there is none."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in parentheses may hold anything, so it is the last one that ends it.
    fields = told.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino
