"""Instruction files of a workspace: read by descriptor and pinned; the agent follows what was pinned, whatever becomes of the file."""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from curtainwall.host import open_beneath
from curtainwall.model import Digest, Workspace

NAMES = ("AGENTS.md", "CLAUDE.md")
NONE = ""
"""What is remembered of a file that was not there."""
COMPACT = "compact instructions"
_BIGGEST = 64 * 1024


@dataclass(frozen=True, slots=True)
class Instructions:
    """One file of instructions, as it stands now."""

    path: str
    text: str


class Remembered(Protocol):
    """What instructions were last gone by, over all sessions of a workspace."""

    def known(self, workspace: str, path: str) -> str | None:
        """Return the digest that was remembered, `NONE` for a file that was not there, or None where nobody has looked."""
        ...

    def remember(self, workspace: str, path: str, digest: str) -> None:
        """Remember a digest in place of the one before."""
        ...


def read_instructions(workspace: Workspace) -> Iterator[Instructions]:
    """Return the instruction files at the top of the workspace; a link, a device or something huge is none."""
    for name in NAMES:
        try:
            descriptor = open_beneath(f"{workspace.path}/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            continue
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(_BIGGEST + 1)
        if content and len(content) <= _BIGGEST:
            yield Instructions(name, content.decode("utf-8", "replace"))


def digest_of(text: str) -> Digest:
    """Return the digest of instructions, as everyone sees them."""
    return Digest(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


def compact_instructions(text: str) -> str:
    """Return the section headed "Compact Instructions" of a file, or nothing."""
    found: list[str] = []
    level = 0
    for line in text.splitlines():
        heading = len(line) - len(line.lstrip("#")) if line.startswith("#") else 0
        if heading and level and heading <= level:
            break
        if level:
            found.append(line)
        elif heading and line.lstrip("#").strip().lower() == COMPACT:
            level = heading
    return "\n".join(found).strip()
