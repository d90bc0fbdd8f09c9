"""A small machine that runs a filter of system calls as the kernel does, for the calls of any architecture."""

import struct

_LOAD, _AND, _IS, _AT_LEAST, _HAS, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06


def verdict_of(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """Return what a filter says to one call."""
    rules = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    data = struct.pack("=IIQ6Q", number, architecture, 0, *(*arguments, *[0] * (6 - len(arguments))))
    at = value = 0
    while True:
        code, yes, no, operand = rules[at]
        at += 1
        if code == _LOAD:
            (value,) = struct.unpack_from("=I", data, operand)
        elif code == _AND:
            value &= operand
        elif code == _IS:
            at += yes if value == operand else no
        elif code == _AT_LEAST:
            at += yes if value >= operand else no
        elif code == _HAS:
            at += yes if value & operand else no
        else:
            assert code == _RETURN, f"no filter of ours has the code {code:#x}"
            return operand
