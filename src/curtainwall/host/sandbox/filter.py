"""The system calls that nobody confined may make, as a seccomp program; namespaces do the rest.

Kernel key rings, VM sockets and a terminal's input queue belong to no namespace, so only a filter keeps them away. The same goes for
programs that run as their owner (setuid, setgid): what is made in a workspace has its owner and its mode outside as well, for everybody.
"""

import errno
import os
import struct
from dataclasses import dataclass
from typing import Final

from curtainwall.host.sandbox.confinement import Sockets

_LOAD, _AND, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND, _THIRD, _FOURTH = 0, 4, 16, 24, 32, 40
_NOTIFY = 0x7FC00000
_UNIX = 1
_FAMILIES = (_UNIX, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
_KIND = 0xF
_CONNECTED = (1, 5)  # SOCK_STREAM, SOCK_SEQPACKET: once they are connected, no message of theirs names another address
_TERMINAL_TRICKS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX

_AS_OWNER = 0o6000
_CREATING = 0x400040  # O_CREAT, and what O_TMPFILE has beside O_DIRECTORY

# The same numbers on every architecture: io_uring walks around filters, and the newer calls for mounting.
_NEW = {"io_uring": (425, 426, 427), "mounting": (428, 429, 430, 431, 432, 433, 442, 443)}
_OPENAT2, _FCHMODAT2 = 437, 452


@dataclass(frozen=True, slots=True)
class _Machine:
    architecture: int
    socket: int
    socketpair: int
    connect: int
    ioctl: int
    denied: tuple[int, ...]
    modes: tuple[tuple[int, int], ...]
    """Calls that set a mode, and which argument it is: chmod fchmod fchmodat mknod mknodat creat."""
    opens: tuple[tuple[int, int, int], ...]
    """Calls that set a mode where they make a file, and which arguments flags and mode are: open openat."""


# add_key request_key keyctl | perf_event_open bpf userfaultfd | kexec_load kexec_file_load | init_module finit_module delete_module |
# mount umount2 pivot_root setns | swapon swapoff acct quotactl syslog reboot vhangup | name_to_handle_at open_by_handle_at
_MACHINES: Final = {
    "x86_64": _Machine(
        0xC000003E, 41, 53, 42, 16,
        (248, 249, 250, 298, 321, 323, 246, 320, 175, 313, 176, 165, 166, 155, 308, 167, 168, 163, 179, 103, 169, 153, 303, 304),
        ((90, _SECOND), (91, _SECOND), (268, _THIRD), (133, _SECOND), (259, _THIRD), (85, _SECOND)),
        ((2, _SECOND, _THIRD), (257, _THIRD, _FOURTH)),
    ),
    "aarch64": _Machine(
        0xC00000B7, 198, 199, 203, 29,
        (217, 218, 219, 241, 280, 282, 104, 294, 105, 273, 106, 40, 39, 41, 268, 224, 225, 89, 60, 116, 142, 58, 264, 265),
        ((52, _SECOND), (53, _THIRD), (33, _THIRD)),
        ((56, _THIRD, _FOURTH),),
    ),
}  # fmt: skip


def filter_program(machine: str = os.uname().machine, sockets: Sockets = Sockets.ANY) -> bytes | None:
    """Return the program for this kind of machine, or None for one whose calls we do not know.

    `OWN` sockets need the broker besides, which sees where each of them connects to.
    """
    known = _MACHINES.get(machine)
    if known is None:
        return None
    no, missing, family = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS, _ERRNO | errno.EAFNOSUPPORT
    rules = [
        _op(_LOAD, _ARCHITECTURE),
        # Another architecture's calls have other numbers.
        *_unless_equal(known.architecture, missing),
        _op(_LOAD, _NUMBER),
        _op(_JUMP_AT_LEAST, 0x40000000, 0, 1),
        _op(_RETURN, missing),
    ]
    # What `openat2` is told lies in memory, where no filter looks; programs do without it.
    for number in (*_NEW["io_uring"], _OPENAT2):
        rules += _if_equal(number, missing)
    for number in (*known.denied, *_NEW["mounting"]):
        rules += _if_equal(number, no)
    for number, mode in (*known.modes, (_FCHMODAT2, _THIRD)):
        rules += _only_for(number, [_op(_LOAD, mode), *_if_set(_AS_OWNER, no)])
    for number, flags, mode in known.opens:
        checked = [_op(_LOAD, mode), *_if_set(_AS_OWNER, no)]
        rules += _only_for(number, [_op(_LOAD, flags), _op(_JUMP_SET, _CREATING, 0, len(checked)), *checked])
    if sockets is not Sockets.ANY:
        # A datagram names where it goes, each time anew.
        kinds = [_op(_LOAD, _SECOND), _op(_AND, _KIND), *_unless_in(_CONNECTED, family)]
        rules += _only_for(known.socketpair, [_op(_LOAD, _FIRST), *_only_where(_UNIX, kinds)])
        if sockets is Sockets.NONE:
            kinds = [_op(_RETURN, family)]
        rules += [
            _op(_JUMP_EQUAL, known.socket, 0, len(kinds) + 3), _op(_LOAD, _FIRST), *_only_where(_UNIX, kinds), _op(_LOAD, _NUMBER)
        ]  # fmt: skip
    families = [_op(_LOAD, _FIRST), *_unless_in(_FAMILIES, family)]
    rules += _only_for(known.socket, families)
    tricks = [_op(_LOAD, _SECOND), *(rule for one in _TERMINAL_TRICKS for rule in _if_equal(one, no))]
    rules += [_op(_JUMP_EQUAL, known.ioctl, 0, len(tricks)), *tricks, _op(_RETURN, _ALLOW)]
    return b"".join(rules)


def broker_program(machine: str = os.uname().machine) -> bytes | None:
    """Return the program that hands every connection to the broker, or None for a kind of machine whose calls we do not know."""
    known = _MACHINES.get(machine)
    if known is None:
        return None
    # Another architecture's calls are refused by the other filter.
    handed = [_op(_LOAD, _NUMBER), *_if_equal(known.connect, _NOTIFY)]
    rules = [_op(_LOAD, _ARCHITECTURE), *_only_where(known.architecture, handed), _op(_RETURN, _ALLOW)]
    return b"".join(rules)


def _op(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def _if_equal(value: int, verdict: int) -> list[bytes]:
    return [_op(_JUMP_EQUAL, value, 0, 1), _op(_RETURN, verdict)]


def _if_set(bits: int, verdict: int) -> list[bytes]:
    return [_op(_JUMP_SET, bits, 0, 1), _op(_RETURN, verdict)]


def _only_for(number: int, rules: list[bytes]) -> list[bytes]:
    """Return rules about one call, which is allowed where they do not end it."""
    return [_op(_JUMP_EQUAL, number, 0, len(rules) + 1), *rules, _op(_RETURN, _ALLOW)]


def _unless_equal(value: int, verdict: int) -> list[bytes]:
    return [_op(_JUMP_EQUAL, value, 1, 0), _op(_RETURN, verdict)]


def _unless_in(values: tuple[int, ...], verdict: int) -> list[bytes]:
    return [*(_op(_JUMP_EQUAL, one, len(values) - at, 0) for at, one in enumerate(values)), _op(_RETURN, verdict)]


def _only_where(value: int, rules: list[bytes]) -> list[bytes]:
    """Return rules for where what was loaded has this value; others go on behind them."""
    return [_op(_JUMP_EQUAL, value, 0, len(rules)), *rules]
