"""The system calls that nobody confined may make, as a seccomp program; namespaces do the rest.

Kernel key rings, VM sockets and a terminal's input queue belong to no namespace, so only a filter keeps them away.
"""

import errno
import os
import struct
from dataclasses import dataclass
from typing import Final

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24
_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
_TERMINAL_TRICKS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX

# The same numbers on every architecture: io_uring walks around filters, and the newer calls for mounting.
_NEW = {"io_uring": (425, 426, 427), "mounting": (428, 429, 430, 431, 432, 433, 442, 443)}


@dataclass(frozen=True, slots=True)
class _Machine:
    architecture: int
    socket: int
    ioctl: int
    denied: tuple[int, ...]


# add_key request_key keyctl | perf_event_open bpf userfaultfd | kexec_load kexec_file_load | init_module finit_module delete_module |
# mount umount2 pivot_root setns | swapon swapoff acct quotactl syslog reboot vhangup | name_to_handle_at open_by_handle_at
_MACHINES: Final = {
    "x86_64": _Machine(
        0xC000003E, 41, 16,
        (248, 249, 250, 298, 321, 323, 246, 320, 175, 313, 176, 165, 166, 155, 308, 167, 168, 163, 179, 103, 169, 153, 303, 304),
    ),
    "aarch64": _Machine(
        0xC00000B7, 198, 29,
        (217, 218, 219, 241, 280, 282, 104, 294, 105, 273, 106, 40, 39, 41, 268, 224, 225, 89, 60, 116, 142, 58, 264, 265),
    ),
}  # fmt: skip


def filter_program(machine: str = os.uname().machine) -> bytes | None:
    """Return the program for this kind of machine, or None for one whose calls we do not know."""
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
    for number in _NEW["io_uring"]:
        rules += _if_equal(number, missing)
    for number in (*known.denied, *_NEW["mounting"]):
        rules += _if_equal(number, no)
    families = [
        _op(_LOAD, _FIRST),
        *(_op(_JUMP_EQUAL, one, len(_FAMILIES) - at, 0) for at, one in enumerate(_FAMILIES)),
        _op(_RETURN, family),
    ]
    rules += [_op(_JUMP_EQUAL, known.socket, 0, len(families) + 1), *families, _op(_RETURN, _ALLOW)]
    tricks = [_op(_LOAD, _SECOND), *(rule for one in _TERMINAL_TRICKS for rule in _if_equal(one, no))]
    rules += [_op(_JUMP_EQUAL, known.ioctl, 0, len(tricks)), *tricks, _op(_RETURN, _ALLOW)]
    return b"".join(rules)


def _op(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def _if_equal(value: int, verdict: int) -> list[bytes]:
    return [_op(_JUMP_EQUAL, value, 0, 1), _op(_RETURN, verdict)]


def _unless_equal(value: int, verdict: int) -> list[bytes]:
    return [_op(_JUMP_EQUAL, value, 1, 0), _op(_RETURN, verdict)]
