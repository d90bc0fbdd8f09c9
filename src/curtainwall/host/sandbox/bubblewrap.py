"""Whether this machine can confine processes, and with which program."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

from curtainwall.host.sandbox.cgroups import holds_memory
from curtainwall.host.sandbox.filter import filter_program
from curtainwall.host.sandbox.limits import counts_processes, holds_processes
from curtainwall.host.sandbox.mounts import plan_of
from curtainwall.host.sandbox.shares import ShareLimits, limits_of_this_machine
from curtainwall.host.sandbox.sockets import can_broker
from curtainwall.host.sandbox.terms import MIB, Confinement, ConfinementFailed

_NEEDED = ("--disable-userns", "--ro-bind-fd", "--json-status-fd", "--seccomp", "--size", "--perms")
_GET_IT = "install bubblewrap (on Debian: apt-get install bubblewrap)"


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """A bubblewrap that was seen to work here."""

    path: str
    version: str


@dataclass(frozen=True, slots=True)
class Missing:
    """Why nothing can be confined here, and what would change that."""

    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Guarantee:
    """One thing that holds on this machine, or does not."""

    name: str
    holds: bool
    detail: str


@cache
def find_bubblewrap() -> Bubblewrap | Missing:
    """Return the bubblewrap of this machine, tried out once; where it does not work, why."""
    return look_for_bubblewrap(shutil.which("bwrap"))


def look_for_bubblewrap(path: str | None) -> Bubblewrap | Missing:
    """Try out a program as bubblewrap."""
    if path is None:
        return Missing("`bwrap` is not on the path", _GET_IT)
    version = re.search(r"[0-9]+(\.[0-9]+)+", _said(path, "--version"))
    offered = _said(path, "--help")
    lacking = [option for option in _NEEDED if option not in offered]
    if version is None or lacking:
        return Missing(f"`{path}` lacks {', '.join(lacking) or 'a version'}", "install bubblewrap 0.10, or an older one with its fixes")
    try:
        plan = plan_of(Confinement(cwd="/"))
    except ConfinementFailed as fault:
        return Missing(str(fault), _GET_IT)
    try:
        done = subprocess.run(
            [path, *plan.words, "--", "/usr/bin/env", "true"], pass_fds=plan.descriptors, env={}, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=20, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as fault:
        return Missing(f"`{path}` does not run: {fault}", _GET_IT)
    finally:
        plan.close()
    if done.returncode != 0:
        why = done.stderr.decode(errors="replace").strip().removeprefix("bwrap: ")[:200]
        return Missing(
            f"`{path}` cannot make namespaces here: {why}",
            "allow user namespaces (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces, AppArmor's restriction)",
        )
    return Bubblewrap(path, version[0])


def confinement_report(limits: ShareLimits | None = None) -> tuple[Guarantee, ...]:
    """Return which guarantees of the confinement hold here, for `doctor`; `limits` are those of sessions."""
    found = find_bubblewrap()
    if isinstance(found, Missing):
        return (Guarantee("confinement", False, f"{found.reason}; shell, git and sandboxed servers are absent; {found.remedy}"),)
    counted, filtered, brokered = holds_processes(), filter_program() is not None, can_broker()
    return (
        Guarantee("confinement", True, f"bubblewrap {found.version} at {found.path}"),
        Guarantee("system-call filter", filtered, "loaded" if filtered else f"none for {os.uname().machine}; VM sockets stay"),
        Guarantee(
            "Unix sockets", filtered,
            "only a sandbox's own can be connected to" if brokered
            else "none can be connected to, not even a sandbox's own: this kernel does not let us see where to" if filtered
            else "those in a mounted directory can be connected to",
        ),
        Guarantee(
            "process limit", counted,
            "held by the kernel" if counted else "only watched: the kernel does not count root, and its control groups are closed to us",
        ),
        Guarantee("memory limit", True, "each process by the kernel, all together watched from outside five times a second"),
        _shares(limits or limits_of_this_machine(), is_counted=counted and not counts_processes()),
    )  # fmt: skip


def _shares(limits: ShareLimits, *, is_counted: bool) -> Guarantee:
    """Say what sessions have, and who holds them to it."""
    by = {True: "held by the kernel", False: "watched, so a moment late"}
    memory = holds_memory()
    return Guarantee(
        "session limits", memory,
        f"{limits.session_commands} commands at once for a session and {limits.commands} for all; "
        f"{limits.session_memory // MIB} and {limits.memory // MIB} MiB of memory, {by[memory]}; "
        f"{limits.session_processes} and {limits.processes} processes, {by[is_counted]}",
    )  # fmt: skip


def _said(path: str, option: str) -> str:
    try:
        return subprocess.run([path, option], capture_output=True, text=True, timeout=20, check=False, env={}).stdout
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
