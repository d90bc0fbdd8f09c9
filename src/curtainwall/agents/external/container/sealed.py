"""Directories of an agent's home that it may only read: one that it could write to, it would fetch packages into before every turn."""

from collections.abc import Mapping
from typing import Final

from curtainwall.agents.external.container.inside import HOME
from curtainwall.agents.external.container.terms import Folders, Program

# OpenCode has no setting against it: it installs its plugin package into every configuration directory that it can write to.
SEALED: Final[Mapping[str, tuple[str, ...]]] = {"opencode": (".config/opencode", ".opencode")}
"""Below the agent's home."""

_SOURCE: Final = "sealed"
_IGNORE: Final = ".gitignore"


def sealed_mounts(agent: str, folders: Folders) -> tuple[Program, ...]:
    """Return what to mount, read-only, over the directories of an agent that it must not write to."""
    places = SEALED.get(agent, ())
    if places:
        source = folders.orientation / _SOURCE
        source.mkdir(mode=0o755, exist_ok=True)
        # OpenCode writes this one itself where it is missing, and ends where it cannot.
        (source / _IGNORE).touch(mode=0o644)
    return tuple(Program(here=folders.orientation / _SOURCE, inside=f"{HOME}/{place}") for place in places)
