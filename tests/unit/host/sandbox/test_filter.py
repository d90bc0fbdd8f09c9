"""The filter is run by a small machine of our own, so that every architecture is tried on every other."""

import errno

import pytest

from curtainwall.host import Sockets
from curtainwall.host.sandbox.filter import broker_program, filter_program
from tests.support.filters import verdict_of

ALLOW = 0x7FFF0000
X86, ARM, I386 = 0xC000003E, 0xC00000B7, 0x40000003


def verdict(machine: str, architecture: int, number: int, *arguments: int, sockets: Sockets = Sockets.ANY) -> int:
    program = filter_program(machine, sockets)
    assert program is not None
    return verdict_of(program, architecture, number, *arguments)


def refused(error: int) -> int:
    return 0x00050000 | error


@pytest.mark.parametrize(("machine", "architecture", "socket", "ioctl"), [("x86_64", X86, 41, 16), ("aarch64", ARM, 198, 29)])
def test_sockets_are_of_four_families_and_terminals_take_no_forged_input(machine: str, architecture: int, socket: int, ioctl: int) -> None:
    for family in (1, 2, 10, 16):
        assert verdict(machine, architecture, socket, family) == ALLOW
    for family in (0, 3, 17, 31, 38, 40):
        assert verdict(machine, architecture, socket, family) == refused(errno.EAFNOSUPPORT)
    assert verdict(machine, architecture, ioctl, 0, 0x5401) == ALLOW
    assert verdict(machine, architecture, ioctl, 0, 0x5412) == refused(errno.EPERM)
    assert verdict(machine, architecture, ioctl, 0, 0x541C) == refused(errno.EPERM)
    # The kernel looks at the lower half alone.
    assert verdict(machine, architecture, ioctl, 0, 0x5412 | 1 << 40) == refused(errno.EPERM)


@pytest.mark.parametrize(
    ("machine", "architecture", "denied", "fine"),
    [("x86_64", X86, [165, 248, 250, 298, 321, 323, 442], [0, 1, 2, 56, 57, 59, 101, 435]),
     ("aarch64", ARM, [40, 217, 219, 241, 280, 282, 442], [56, 63, 64, 117, 220, 221, 435])],
)  # fmt: skip
def test_calls_that_no_namespace_holds_are_refused(machine: str, architecture: int, denied: list[int], fine: list[int]) -> None:
    assert {verdict(machine, architecture, number) for number in denied} == {refused(errno.EPERM)}
    assert {verdict(machine, architecture, number) for number in fine} == {ALLOW}
    assert verdict(machine, architecture, 425) == refused(errno.ENOSYS)


@pytest.mark.parametrize(
    ("machine", "architecture", "modes", "opens"),
    [("x86_64", X86, [(90, 1), (91, 1), (268, 2), (452, 2), (133, 1), (259, 2), (85, 1)], [(2, 1, 2), (257, 2, 3)]),
     ("aarch64", ARM, [(52, 1), (53, 2), (452, 2), (33, 2)], [(56, 2, 3)])],
)  # fmt: skip
def test_no_call_sets_the_bits_by_which_a_program_runs_as_its_owner(
    machine: str, architecture: int, modes: list[tuple[int, int]], opens: list[tuple[int, int, int]]
) -> None:
    def told(number: int, **at: int) -> int:
        return verdict(machine, architecture, number, *(at.get(f"a{place}", 0) for place in range(6)))

    for number, mode in modes:
        assert told(number, **{f"a{mode}": 0o1777}) == ALLOW
        assert {told(number, **{f"a{mode}": bits}) for bits in (0o4000, 0o2755, 0o6777)} == {refused(errno.EPERM)}
    for number, flags, mode in opens:
        for making in (0x40, 0x410000 | 0x400000):
            assert told(number, **{f"a{flags}": making, f"a{mode}": 0o755}) == ALLOW
            assert told(number, **{f"a{flags}": making, f"a{mode}": 0o4755}) == refused(errno.EPERM)
        assert told(number, **{f"a{flags}": 1, f"a{mode}": 0o4755}) == ALLOW, "nothing is made, so the mode means nothing"
    assert verdict(machine, architecture, 437) == refused(errno.ENOSYS)


@pytest.mark.parametrize(("machine", "architecture", "socket", "pair"), [("x86_64", X86, 41, 53), ("aarch64", ARM, 198, 199)])
def test_unix_sockets_that_name_an_address_with_every_message_are_refused_where_sockets_are_held(
    machine: str, architecture: int, socket: int, pair: int
) -> None:
    stream, datagram, raw, seqpacket, flags = 1, 2, 3, 5, 0o2004000
    no = refused(errno.EAFNOSUPPORT)
    for sockets in Sockets:
        for kind in (stream, datagram, raw, seqpacket):
            is_held = sockets is not Sockets.ANY and kind in (datagram, raw)
            made = verdict(machine, architecture, socket, 1, kind | flags, sockets=sockets)
            assert made == (no if is_held or sockets is Sockets.NONE else ALLOW)
            assert verdict(machine, architecture, pair, 1, kind | flags, sockets=sockets) == (no if is_held else ALLOW)
            assert verdict(machine, architecture, socket, 2, kind, sockets=sockets) == ALLOW
        assert verdict(machine, architecture, socket, 40, stream, sockets=sockets) == no


def test_the_broker_hears_of_connections_alone() -> None:
    for machine, architecture, connect in (("x86_64", X86, 42), ("aarch64", ARM, 203)):
        program = broker_program(machine)
        assert program is not None
        assert verdict_of(program, architecture, connect) == 0x7FC00000
        assert verdict_of(program, architecture, connect + 1) == ALLOW
    assert broker_program("pdp11") is None


def test_calls_of_another_architecture_do_not_exist() -> None:
    assert verdict("x86_64", I386, 1) == refused(errno.ENOSYS)
    assert verdict("x86_64", X86, 0x40000001) == refused(errno.ENOSYS)


def test_an_unknown_machine_has_no_filter() -> None:
    assert filter_program("pdp11") is None
