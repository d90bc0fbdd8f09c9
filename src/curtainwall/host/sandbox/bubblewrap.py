"""Translates a confinement into bubblewrap's arguments, and checks whether this machine can confine processes."""

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import field
from functools import cache

from curtainwall.host.files.beneath import open_beneath
from curtainwall.host.sandbox.cgroups import holds_memory
from curtainwall.host.sandbox.confinement import HOME, MIB, Confinement, ConfinementFailed, Network
from curtainwall.host.sandbox.filter import filter_program
from curtainwall.host.sandbox.limits import counts_processes, holds_processes
from curtainwall.host.sandbox.shares import ShareLimits, limits_of_this_machine
from curtainwall.host.sandbox.sockets import can_broker
from curtainwall.model import on_disk, record

_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# What programs need to start and to check certificates; no accounts, keys or service settings.
_ETC = """
    ld.so.cache ld.so.conf ld.so.conf.d alternatives localtime timezone ssl/certs ssl/openssl.cnf pki/tls/certs pki/ca-trust/extracted
    ca-certificates mime.types protocols services magic terminfo fonts inputrc
""".split()
_ETC_NETWORK = ("resolv.conf", "hosts", "nsswitch.conf")
_MADE = {
    "passwd": f"root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:{HOME}:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "group": "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
}
# As root we share a uid with their owner, so the namespaces alone do not prevent reading them.
_KERNEL = "kcore keys key-users kallsyms kmsg kpagecount kpageflags kpagecgroup timer_list sched_debug slabinfo".split()
_CLOSED = frozenset({"/", "/usr", "/etc", "/proc", "/dev", "/sys", "/run", "/boot", "/var", "/tmp", "/home", "/root", HOME, *_SYSTEM})  # noqa: S108 - inside
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
    "HOME": HOME,
    "USER": "agent",
    "LOGNAME": "agent",
    "SHELL": "/bin/bash",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own, in memory
}


@record
class Plan:
    """Bubblewrap's arguments, and the descriptors that they refer to."""

    words: list[str] = field(default_factory=list[str])
    descriptors: list[int] = field(default_factory=list[int])

    def say(self, *words: str) -> None:
        """Add arguments."""
        self.words.extend(words)

    def hand(self, descriptor: int) -> str:
        """Pass a descriptor and return its number as an argument; the plan closes it."""
        self.descriptors.append(descriptor)
        return str(descriptor)

    def close(self) -> None:
        """Close the descriptors."""
        while self.descriptors:
            os.close(self.descriptors.pop())


def plan_of(confinement: Confinement) -> Plan:
    """Return the arguments for a confinement; raise `ConfinementFailed` if it names a path that cannot be given."""
    plan = Plan()
    with ExitStack() as undo:
        undo.callback(plan.close)
        try:
            _namespaces(plan, confinement)
            _system(plan, confinement)
            _given(plan, confinement)
        except OSError as fault:
            raise ConfinementFailed(
                f"`{fault.filename}` cannot be given to a confined process: {(fault.strerror or 'unknown').lower()}"
            ) from fault
        except ValueError as fault:
            raise ConfinementFailed(str(fault)) from fault
        # Last, because the mounts above had to be made in it.
        plan.say("--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", confinement.cwd)
        undo.pop_all()
    return plan


def _namespaces(plan: Plan, confinement: Confinement) -> None:
    plan.say("--unshare-all", "--unshare-user", "--disable-userns", "--uid", "1000", "--gid", "1000", "--hostname", "sandbox")
    plan.say("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv")
    if confinement.network is Network.HOST:
        plan.say("--share-net")
    bridged = confinement.bridge.environment if confinement.bridge is not None else {}
    for name, value in {**_ENVIRONMENT, **confinement.environment, **bridged}.items():
        plan.say("--setenv", name, value)
    program = filter_program(sockets=confinement.sockets)
    if program is not None:
        plan.say("--seccomp", plan.hand(file_of(program)))


def _system(plan: Plan, confinement: Confinement) -> None:
    plan.say("--ro-bind", "/usr", "/usr")
    for path in _SYSTEM:
        if os.path.islink(path):
            plan.say("--symlink", os.readlink(path), path)
        else:
            plan.say("--ro-bind-try", path, path)
    made = dict(_MADE)
    if confinement.network is Network.HOST:
        for name in _ETC_NETWORK:
            made.pop(name, None)
            plan.say("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    for name in _ETC:
        plan.say("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    for name, text in made.items():
        plan.say("--perms", "0444", "--ro-bind-data", plan.hand(file_of(text.encode())), f"/etc/{name}")
    scratch = str(confinement.bounds.scratch)
    plan.say("--proc", "/proc", "--dev", "/dev", "--size", str(64 * MIB), "--perms", "1777", "--tmpfs", "/dev/shm")  # noqa: S108 - inside
    for name in _KERNEL:
        if os.path.exists(f"/proc/{name}"):
            plan.say("--ro-bind-data", plan.hand(file_of(b"")), f"/proc/{name}")
    plan.say("--size", scratch, "--perms", "1777", "--tmpfs", "/tmp", "--size", scratch, "--perms", "0700", "--tmpfs", HOME)  # noqa: S108 - inside
    plan.say("--dir", "/run", "--symlink", "/tmp", "/var/tmp")  # noqa: S108 - inside


def _given(plan: Plan, confinement: Confinement) -> None:
    shared = [("--bind-fd", path, path) for path in confinement.writable]
    shared += [("--ro-bind-fd", outside, inside) for outside, inside in confinement.readable]
    # Deeper paths come later, or they would be covered.
    for option, outside, inside in sorted(shared, key=lambda mount: mount[2].count("/")):
        if inside in _CLOSED or inside.startswith(("/proc/", "/dev/", "/sys/")):
            raise ValueError(f"`{inside}` is the system's and cannot be given to a confined process")
        plan.say(option, plan.hand(open_beneath(outside, os.O_PATH)), inside)
    for path in sorted(confinement.fixed, key=lambda mount: mount.count("/")):
        # A path that has vanished needs no protection.
        with suppress(FileNotFoundError, NotADirectoryError):
            plan.say("--ro-bind-fd", plan.hand(open_beneath(path, os.O_PATH)), path)
    for path, is_directory in _existing(confinement.hidden):
        if is_directory:
            plan.say("--perms", "0555", "--tmpfs", path, "--remount-ro", path)
        else:
            plan.say("--ro-bind-data", plan.hand(file_of(b"")), path)


def _existing(paths: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    for path in sorted(paths, key=lambda path: path.count("/")):
        with suppress(FileNotFoundError, NotADirectoryError):
            yield path, stat.S_ISDIR(os.lstat(on_disk(path)).st_mode)


def file_of(content: bytes) -> int:
    """Return a descriptor of an in-memory file with this content."""
    descriptor = os.memfd_create("curtainwall", os.MFD_CLOEXEC)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


_NEEDED = ("--disable-userns", "--ro-bind-fd", "--json-status-fd", "--seccomp", "--size", "--perms")
_GET_IT = "install bubblewrap (on Debian: apt-get install bubblewrap)"


@record
class Bubblewrap:
    """A bubblewrap that works here."""

    path: str
    version: str


@record
class BubblewrapMissing:
    """Why nothing can be confined here, and how to fix it."""

    reason: str
    remedy: str


@record
class Guarantee:
    """One property of the confinement, and whether it holds on this machine."""

    name: str
    holds: bool
    detail: str


@cache
def find_bubblewrap() -> Bubblewrap | BubblewrapMissing:
    """Return this machine's bubblewrap, or why it does not work; tested once."""
    return look_for_bubblewrap(shutil.which("bwrap"))


def look_for_bubblewrap(path: str | None) -> Bubblewrap | BubblewrapMissing:
    """Test a program as bubblewrap."""
    if path is None:
        return BubblewrapMissing("`bwrap` is not on the path", _GET_IT)
    version = re.search(r"[0-9]+(\.[0-9]+)+", _output_of(path, "--version"))
    offered = _output_of(path, "--help")
    lacking = [option for option in _NEEDED if option not in offered]
    if version is None or lacking:
        return BubblewrapMissing(
            f"`{path}` lacks {', '.join(lacking) or 'a version'}", "install bubblewrap 0.10, or an older one with its fixes"
        )
    try:
        plan = plan_of(Confinement(cwd="/"))
    except ConfinementFailed as fault:
        return BubblewrapMissing(str(fault), _GET_IT)
    try:
        result = subprocess.run(
            [path, *plan.words, "--", "/usr/bin/env", "true"], pass_fds=plan.descriptors, env={}, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=20, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as fault:
        return BubblewrapMissing(f"`{path}` does not run: {fault}", _GET_IT)
    finally:
        plan.close()
    if result.returncode != 0:
        message = result.stderr.decode(errors="replace").strip().removeprefix("bwrap: ")[:200]
        return BubblewrapMissing(
            f"`{path}` cannot make namespaces here: {message}",
            "allow user namespaces (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces, AppArmor's restriction)",
        )
    return Bubblewrap(path, version[0])


def confinement_report(limits: ShareLimits | None = None) -> tuple[Guarantee, ...]:
    """Return which guarantees of the confinement hold here, for `doctor`; `limits` are those of sessions."""
    bubblewrap = find_bubblewrap()
    if isinstance(bubblewrap, BubblewrapMissing):
        return (Guarantee("confinement", False, f"{bubblewrap.reason}; shell, git and sandboxed servers are absent; {bubblewrap.remedy}"),)
    counted, filtered, brokered = holds_processes(), filter_program() is not None, can_broker()
    return (
        Guarantee("confinement", True, f"bubblewrap {bubblewrap.version} at {bubblewrap.path}"),
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
    """Describe the limits of sessions, and who enforces them."""
    enforced = {True: "held by the kernel", False: "watched, so a moment late"}
    memory = holds_memory()
    return Guarantee(
        "session limits", memory,
        f"{limits.session_commands} commands at once for a session and {limits.commands} for all; "
        f"{limits.session_memory // MIB} and {limits.memory // MIB} MiB of memory, {enforced[memory]}; "
        f"{limits.session_processes} and {limits.processes} processes, {enforced[is_counted]}",
    )  # fmt: skip


def _output_of(path: str, option: str) -> str:
    try:
        return subprocess.run([path, option], capture_output=True, text=True, timeout=20, check=False, env={}).stdout
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
