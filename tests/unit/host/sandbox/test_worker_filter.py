"""The worker's filter is run by a small machine of our own, so that the calls of both architectures are tried on this one."""

import errno

import pytest

from curtainwall.host.sandbox.workers import start_number, worker_filter
from tests.support.filters import verdict_of

ALLOW, KILL = 0x7FFF0000, 0x80000000
X86, ARM, I386 = 0xC000003E, 0xC00000B7, 0x40000003
MACHINES = pytest.mark.parametrize(("machine", "architecture"), [("x86_64", X86), ("aarch64", ARM)])

# As in the kernel's own tables, `(x86_64, aarch64)`.
CALLS = {
    "read": (0, 63), "write": (1, 64), "futex": (202, 98), "munmap": (11, 215), "getrandom": (318, 278), "exit_group": (231, 94),
    "openat": (257, 56), "mmap": (9, 222), "mprotect": (10, 226), "clone": (56, 220), "prctl": (157, 167), "prlimit64": (302, 261),
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "sendto": (44, 206), "ptrace": (101, 117), "kill": (62, 129),
    "tgkill": (234, 131),
    "process_vm_readv": (310, 270), "unshare": (272, 97), "mount": (165, 40), "bpf": (321, 280), "keyctl": (250, 219), "ioctl": (16, 29),
    "userfaultfd": (323, 282), "open_by_handle_at": (304, 265), "memfd_create": (319, 279), "dup3": (292, 24), "io_uring_setup": (425, 425),
    "clone3": (435, 435), "openat2": (437, 437), "unlinkat": (263, 35), "truncate": (76, 45), "setsid": (112, 157), "seccomp": (317, 277),
}  # fmt: skip
FREE = "read write futex munmap getrandom exit_group".split()
ABSENT = """
    socket connect bind sendto ptrace kill tgkill process_vm_readv unshare mount bpf keyctl ioctl userfaultfd open_by_handle_at memfd_create
    dup3 io_uring_setup clone3 openat2 unlinkat truncate setsid seccomp
""".split()


def verdict(machine: str, architecture: int, number: int, *arguments: int) -> int:
    program = worker_filter("execve", machine)
    assert program is not None
    return verdict_of(program, architecture, number, *arguments)


def said(machine: str, architecture: int, call: str, *arguments: int) -> str:
    number = CALLS[call][["x86_64", "aarch64"].index(machine)]
    words = {ALLOW: "yes", KILL: "killed", 0x50000 | errno.EPERM: "no", 0x50000 | errno.ENOSYS: "absent"}
    return words[verdict(machine, architecture, number, *arguments)]


@MACHINES
def test_what_is_not_named_does_not_exist(machine: str, architecture: int) -> None:
    assert {call: said(machine, architecture, call) for call in FREE} == dict.fromkeys(FREE, "yes")
    assert {call: said(machine, architecture, call) for call in ABSENT} == dict.fromkeys(ABSENT, "absent")
    assert verdict(machine, architecture, start_number("execve", machine)) == ALLOW
    assert verdict(machine, architecture, start_number("execveat", machine)) == 0x50000 | errno.ENOSYS


@MACHINES
def test_files_are_opened_for_reading_alone(machine: str, architecture: int) -> None:
    for flags in (0, 0x80000):
        assert said(machine, architecture, "openat", 0, 0, flags) == "yes"
    for flags in (1, 2, 0x40, 0x200, 0x400, 0x200000, 0x80001, 0x410000):
        assert said(machine, architecture, "openat", 0, 0, flags) == "no", hex(flags)


@MACHINES
def test_what_was_written_is_never_run(machine: str, architecture: int) -> None:
    private, anonymous, fixed = 0x02, 0x20, 0x10
    for prot, flags, expected in (
        (3, private | anonymous, "yes"),
        (5, private | fixed, "yes"),
        (1, private, "yes"),
        (5, private | anonymous, "no"),
        (4, anonymous, "no"),
        (7, private, "no"),
    ):
        assert said(machine, architecture, "mmap", 0, 4096, prot, flags) == expected, (prot, flags)
    assert said(machine, architecture, "mprotect", 0, 4096, 3) == "yes"
    assert said(machine, architecture, "mprotect", 0, 4096, 5) == "no"


@MACHINES
def test_threads_are_made_and_nothing_else(machine: str, architecture: int) -> None:
    assert said(machine, architecture, "clone", 0x3D0F00) == "yes"
    # A fork, a vfork, and a thread in a namespace of its own.
    for flags in (17, 0x4111, *(0x10000 | 1 << bit for bit in (17, *range(25, 31)))):
        assert said(machine, architecture, "clone", flags) == "no", hex(flags)


@MACHINES
def test_limits_are_asked_for_and_never_set_and_never_of_others(machine: str, architecture: int) -> None:
    assert said(machine, architecture, "prlimit64", 0, 3, 0, 0x7000) == "yes"
    for arguments in ((1, 3, 0, 0x7000), (0, 3, 0x7000, 0), (0, 3, 1 << 32, 0), (1 << 32, 3, 0, 0)):
        assert said(machine, architecture, "prlimit64", *arguments) == "no", arguments
    assert said(machine, architecture, "prctl", 15) == "yes"
    assert {said(machine, architecture, "prctl", option) for option in (1, 3, 4, 22, 24, 38)} == {"no"}


def test_calls_of_another_architecture_are_the_end() -> None:
    assert verdict("x86_64", I386, 1) == verdict("x86_64", X86, 0x40000001) == verdict("aarch64", X86, 0) == KILL


def test_an_unknown_machine_has_no_filter() -> None:
    assert worker_filter("execve", "pdp11") is None
