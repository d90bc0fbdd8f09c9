"""What a user adds to an agent's container: mounts, caches and variables. Each mount is checked anew whenever a container is requested."""

import hashlib
import os
import stat
from pathlib import Path
from typing import Final

from curtainwall.agents.external.container import ExtraMount, engine_socket
from curtainwall.config.agents import AgentSection
from curtainwall.facts import quoted
from curtainwall.host import MOST_FIFOS, TooManyFifos, find_fifos
from curtainwall.model import CommandRefused, Mode, Workspace
from curtainwall.policy import Protection

_SYSTEM: Final = ("/proc", "/sys", "/dev", "/run", "/var/run", "/boot", "/etc", "/var/lib/docker", "/var/lib/containerd", "/root")
_INSIDE_HOME: Final = "/home/agent"
_SHORTEST_SECRET: Final = 8


def variables_of(section: AgentSection) -> dict[str, str]:
    """Return the variables that a user gives an agent."""
    return dict(each.split("=", 1) for each in section.env)


def is_worth_masking(value: str) -> bool:
    """Tell whether a variable's value is specific enough to be masked; an ordinary word would hide ordinary text."""
    return len(value) >= _SHORTEST_SECRET and not value.isalpha()


def extra_mounts(section: AgentSection, workspace: Workspace, mode: Mode, protection: Protection) -> tuple[ExtraMount, ...]:
    """Return the mounts that a user configured for an agent; raise `CommandRefused` if one may not be mounted."""
    return tuple(_mount(each, workspace, mode, protection) for each in section.mounts)


def cache_mounts(section: AgentSection, agent: str, workspace: Workspace, caches: Path) -> tuple[ExtraMount, ...]:
    """Return the caches of an agent in a project.

    They belong to one project, so that what a hostile session leaves in them reaches only sessions that work in the same project. A session
    with its own workspace has its own home, and needs none.
    """
    if workspace.own:
        return ()
    project = hashlib.sha256(workspace.path.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    places = ((name, caches / agent / project / name.replace("/", "+")) for name in section.caches)
    return tuple(ExtraMount(here, f"{_INSIDE_HOME}/{name}", is_readonly=False, is_ours=True) for name, here in places)


def mounted_path(configured: str) -> str:
    """Return the real path of a configured mount on this machine."""
    return os.path.realpath(os.path.expanduser(configured.split(":", maxsplit=1)[0]))


def _mount(configured: str, workspace: Workspace, mode: Mode, protection: Protection) -> ExtraMount:
    written, inside, *rights = configured.split(":")
    here = mounted_path(configured)
    is_readonly = not rights or mode is Mode.PLAN
    _require_harmless(here, written, workspace, protection, is_readonly=is_readonly)
    return ExtraMount(Path(here), inside, is_readonly=is_readonly, hidden=_services(here, written))


def _require_harmless(here: str, written: str, workspace: Workspace, protection: Protection, *, is_readonly: bool) -> None:
    name = quoted(written)
    try:
        kind = os.lstat(here).st_mode
    except OSError:
        raise CommandRefused(f"the mount {name} is not there; correct `mounts` of the agent") from None
    if not (stat.S_ISDIR(kind) or stat.S_ISREG(kind)):
        raise CommandRefused(f"the mount {name} is neither a directory nor a plain file; only those can be mounted")
    closed = (*_SYSTEM, *filter(None, (engine_socket(),)), *(() if is_readonly else (*protection.readonly, *protection.programs)))
    conflict = protection.conflict(Workspace(path=here, own=False)) or next((it for it in closed if _overlap(here, it)), None)
    if conflict is not None:
        raise CommandRefused(f"the mount {name} is, contains or lies in the protected path {quoted(conflict)}, so no agent may see it")
    if _overlap(here, workspace.path):
        raise CommandRefused(f"the mount {name} overlaps the workspace, in which the agent could exchange it for another one")
    if not is_readonly and _is_in_repository(here):
        raise CommandRefused(f"the mount {name} is in a git repository, where an agent could leave hooks; mount it without `:rw`")


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other.rstrip('/')}/") or other.startswith(f"{one.rstrip('/')}/")


def _is_in_repository(path: str) -> bool:
    return any(os.path.lexists(os.path.join(place, ".git")) for place in (path, *map(str, Path(path).parents)))


def _services(here: str, written: str) -> tuple[str, ...]:
    """Return the sockets and pipes below a mount, which must be hidden: a read-only mount does not keep an agent from connecting."""
    try:
        return find_fifos(here, sockets=True) if os.path.isdir(here) else ()
    except TooManyFifos:
        raise CommandRefused(
            f"the mount {quoted(written)} holds more than {MOST_FIFOS} sockets and named pipes, too many to hide"
        ) from None
