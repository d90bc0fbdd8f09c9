"""Seccomp programs that block system calls in a confinement; namespaces do the rest.

Kernel key rings, VM sockets and a terminal's input queue belong to no namespace, so only a filter can block them. The same goes for
creating setuid and setgid programs: a file in a workspace has the same owner and mode outside, for everyone.
"""

import errno
import os
import struct
from typing import Final

from curtainwall.host.sandbox.confinement import Sockets
from curtainwall.model import record

_LOAD, _AND, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND, _THIRD, _FOURTH = 0, 4, 16, 24, 32, 40
_NOTIFY = 0x7FC00000
_UNIX = 1
_FAMILIES = (_UNIX, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
_KIND = 0xF
_CONNECTED = (1, 5)  # SOCK_STREAM, SOCK_SEQPACKET: once connected, they cannot send to another address
_TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX

_AS_OWNER = 0o6000
_CREATING = 0x400040  # O_CREAT, and the bit of O_TMPFILE besides O_DIRECTORY

# The same numbers on every architecture: io_uring, which bypasses filters, and the newer mount calls.
_NEW = {"io_uring": (425, 426, 427), "mounting": (428, 429, 430, 431, 432, 433, 442, 443)}
_OPENAT2, _FCHMODAT2 = 437, 452


@record
class _SystemCalls:
    architecture: int
    socket: int
    socketpair: int
    connect: int
    ioctl: int
    denied: tuple[int, ...]
    modes: tuple[tuple[int, int], ...]
    """Calls that set a mode, each with the argument that holds it: chmod fchmod fchmodat mknod mknodat creat."""
    opens: tuple[tuple[int, int, int], ...]
    """Calls that set a mode if they create a file, each with the arguments that hold flags and mode: open openat."""


# add_key request_key keyctl | perf_event_open bpf userfaultfd | kexec_load kexec_file_load | init_module finit_module delete_module |
# mount umount2 pivot_root setns | swapon swapoff acct quotactl syslog reboot vhangup | name_to_handle_at open_by_handle_at
_CALLS_BY_MACHINE: Final = {
    "x86_64": _SystemCalls(
        0xC000003E, 41, 53, 42, 16,
        (248, 249, 250, 298, 321, 323, 246, 320, 175, 313, 176, 165, 166, 155, 308, 167, 168, 163, 179, 103, 169, 153, 303, 304),
        ((90, _SECOND), (91, _SECOND), (268, _THIRD), (133, _SECOND), (259, _THIRD), (85, _SECOND)),
        ((2, _SECOND, _THIRD), (257, _THIRD, _FOURTH)),
    ),
    "aarch64": _SystemCalls(
        0xC00000B7, 198, 199, 203, 29,
        (217, 218, 219, 241, 280, 282, 104, 294, 105, 273, 106, 40, 39, 41, 268, 224, 225, 89, 60, 116, 142, 58, 264, 265),
        ((52, _SECOND), (53, _THIRD), (33, _THIRD)),
        ((56, _THIRD, _FOURTH),),
    ),
}  # fmt: skip


def filter_program(machine: str = os.uname().machine, sockets: Sockets = Sockets.ANY) -> bytes | None:
    """Return the filter for this architecture, or None if we do not know its calls.

    `OWN` sockets need the broker as well, which sees where each of them connects to.
    """
    calls = _CALLS_BY_MACHINE.get(machine)
    if calls is None:
        return None
    denied, missing, family = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS, _ERRNO | errno.EAFNOSUPPORT
    rules = [
        _op(_LOAD, _ARCHITECTURE),
        # Another architecture's calls have other numbers.
        *_unless_equal(calls.architecture, missing),
        _op(_LOAD, _NUMBER),
        _op(_JUMP_AT_LEAST, 0x40000000, 0, 1),
        _op(_RETURN, missing),
    ]
    # The arguments of `openat2` are in memory, which a filter cannot read; programs work without it.
    for number in (*_NEW["io_uring"], _OPENAT2):
        rules += _if_equal(number, missing)
    for number in (*calls.denied, *_NEW["mounting"]):
        rules += _if_equal(number, denied)
    for number, mode in (*calls.modes, (_FCHMODAT2, _THIRD)):
        rules += _only_for(number, [_op(_LOAD, mode), *_if_set(_AS_OWNER, denied)])
    for number, flags, mode in calls.opens:
        checked = [_op(_LOAD, mode), *_if_set(_AS_OWNER, denied)]
        rules += _only_for(number, [_op(_LOAD, flags), _op(_JUMP_SET, _CREATING, 0, len(checked)), *checked])
    if sockets is not Sockets.ANY:
        # Every datagram names its own destination.
        kinds = [_op(_LOAD, _SECOND), _op(_AND, _KIND), *_unless_in(_CONNECTED, family)]
        rules += _only_for(calls.socketpair, [_op(_LOAD, _FIRST), *_only_if_equal(_UNIX, kinds)])
        if sockets is Sockets.NONE:
            kinds = [_op(_RETURN, family)]
        rules += [
            _op(_JUMP_EQUAL, calls.socket, 0, len(kinds) + 3), _op(_LOAD, _FIRST), *_only_if_equal(_UNIX, kinds), _op(_LOAD, _NUMBER)
        ]  # fmt: skip
    families = [_op(_LOAD, _FIRST), *_unless_in(_FAMILIES, family)]
    rules += _only_for(calls.socket, families)
    tricks = [_op(_LOAD, _SECOND), *(rule for trick in _TERMINAL_INJECTION for rule in _if_equal(trick, denied))]
    rules += [_op(_JUMP_EQUAL, calls.ioctl, 0, len(tricks)), *tricks, _op(_RETURN, _ALLOW)]
    return b"".join(rules)


def broker_program(machine: str = os.uname().machine) -> bytes | None:
    """Return the filter that hands every connection to the broker, or None if we do not know this architecture's calls."""
    calls = _CALLS_BY_MACHINE.get(machine)
    if calls is None:
        return None
    # The other filter refuses another architecture's calls.
    notify_rules = [_op(_LOAD, _NUMBER), *_if_equal(calls.connect, _NOTIFY)]
    rules = [_op(_LOAD, _ARCHITECTURE), *_only_if_equal(calls.architecture, notify_rules), _op(_RETURN, _ALLOW)]
    return b"".join(rules)


def _op(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def _if_equal(value: int, verdict: int) -> list[bytes]:
    return [_op(_JUMP_EQUAL, value, 0, 1), _op(_RETURN, verdict)]


def _if_set(bits: int, verdict: int) -> list[bytes]:
    return [_op(_JUMP_SET, bits, 0, 1), _op(_RETURN, verdict)]


def _only_for(number: int, rules: list[bytes]) -> list[bytes]:
    """Return rules about one call, which is allowed unless they refuse it."""
    return [_op(_JUMP_EQUAL, number, 0, len(rules) + 1), *rules, _op(_RETURN, _ALLOW)]


def _unless_equal(value: int, verdict: int) -> list[bytes]:
    return [_op(_JUMP_EQUAL, value, 1, 0), _op(_RETURN, verdict)]


def _unless_in(values: tuple[int, ...], verdict: int) -> list[bytes]:
    return [*(_op(_JUMP_EQUAL, value, len(values) - index, 0) for index, value in enumerate(values)), _op(_RETURN, verdict)]


def _only_if_equal(value: int, rules: list[bytes]) -> list[bytes]:
    """Return rules that apply only if the loaded value is this one; otherwise they are skipped."""
    return [_op(_JUMP_EQUAL, value, 0, len(rules)), *rules]
