"""Tool names as MCP clients take them: `filesystem.read_file` is `filesystem__read_file` there, and both are understood."""

import hashlib
import re
from collections.abc import Iterable

_LONGEST = 64
_STRANGE = re.compile(r"[^a-zA-Z0-9_-]")


class Names:
    """Full names and their spellings on the wire, one to one."""

    def __init__(self, full_names: Iterable[str], joint: str = "__") -> None:
        self._joint = joint
        self._wire: dict[str, str] = {}
        self._full: dict[str, str] = {}
        taken: set[str] = set()
        for full in full_names:
            wire = _spelled(full, joint)
            # A plain spelling that another tool has, or that had to be changed, is told apart by the name's digest.
            if wire in taken or _strictly(full, joint) != wire:
                wire = f"{wire[: _LONGEST - 9]}_{hashlib.sha256(full.encode()).hexdigest()[:8]}"
            taken.add(wire)
            self._wire[full], self._full[wire] = wire, full

    def wire(self, full: str) -> str:
        """Return the spelling of a full name on the wire."""
        return self._wire[full]

    def full(self, name: str) -> str:
        """Return the full name that a client means, however it spells it; what nobody knows stays readable."""
        if name in self._wire:
            return name
        return self._full.get(name) or name.replace(self._joint, ".", 1)

    def knows(self, name: str) -> bool:
        """Tell whether a name is one of these, in either spelling."""
        return name in self._full or name in self._wire


def _strictly(full: str, joint: str) -> str:
    return full.replace(".", joint, 1)


def _spelled(full: str, joint: str) -> str:
    return _STRANGE.sub("_", _strictly(full, joint))[:_LONGEST]
