"""A program's value, told inside the interpreter: what crosses over to us is text, which the interpreter's own limits bound.

A value of a few kilobytes there can be gigabytes here, because what it shares with itself is counted once there and written out here.
"""

import ast
import warnings

TELL = "_told"

TELLING = f"""\
import json as _json
def {TELL}(value):
    if value is None:
        return
    if isinstance(value, str):
        print(value)
        return
    try:
        print(_json.dumps(value, indent=1, ensure_ascii=False))
    except (TypeError, ValueError):
        print(repr(value))
"""
"""What runs before every program, so that its value can be told."""

_LONGEST = 4_000
_TRIES = 8
_FAULTS = (SyntaxError, ValueError, RecursionError, MemoryError, SystemError)


def with_value_told(code: str) -> str:
    """Return the program with its last expression handed over to be told; what it leaves as its own value is always None.

    Line numbers stay. Where no expression stands last, or only one that is too long to be looked at, nothing is told.
    """
    lines = code.splitlines(keepends=True)
    starts = [place for place, line in enumerate(lines) if line.strip() and line[0] not in " \t#)]}"]
    for place in reversed(starts[-_TRIES:]):
        last = "".join(lines[place:])
        continues = place > 0 and lines[place - 1].rstrip("\r\n").endswith("\\")
        if len(last) > _LONGEST:
            break
        if not continues and _is_expression(last):
            return f"{''.join(lines[:place])}{TELL}(({last}\n))\nNone\n"
    return f"{code}\nNone\n"


def _is_expression(text: str) -> bool:
    # Only a little text is ever parsed here: it is an agent's, and the parser is our own process's.
    # Nor has it anything to say on our terminal, or where a warning is an error.
    with warnings.catch_warnings(action="ignore"):
        try:
            ast.parse(f"async def _program():\n return (\n{text}\n)")
        except _FAULTS:
            return False
    return True
