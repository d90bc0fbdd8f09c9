"""Renders what a program printed, returned or raised for the model. Values become text inside the interpreter, under its limits.

A value of a few kilobytes in the interpreter can be gigabytes here, because shared parts count once there but are written out in full
here.
"""

import ast
import json
import warnings
from typing import Literal, cast

from pydantic import JsonValue
from pydantic_monty import MontyCrashedError, MontyError, MontyRuntimeError, MontySyntaxError

from curtainwall.model import is_deeper

PRINT_VALUE = "_told"

PRELUDE = f"""\
import json as _json
def {PRINT_VALUE}(value):
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
"""Code that runs before every program, so that its value can be printed."""

_LONGEST_EXPRESSION = 4_000
_TRIES = 8
_FAULTS = (SyntaxError, ValueError, RecursionError, MemoryError, SystemError)


def with_value_printed(code: str) -> str:
    """Return the program changed to print its last expression; the program's own value is then always None.

    Line numbers stay. Nothing is printed if the program does not end in an expression, or if that is too long to parse.
    """
    lines = code.splitlines(keepends=True)
    starts = [place for place, line in enumerate(lines) if line.strip() and line[0] not in " \t#)]}"]
    for place in reversed(starts[-_TRIES:]):
        last = "".join(lines[place:])
        continues = place > 0 and lines[place - 1].rstrip("\r\n").endswith("\\")
        if len(last) > _LONGEST_EXPRESSION:
            break
        if not continues and _is_expression(last):
            return f"{''.join(lines[:place])}{PRINT_VALUE}(({last}\n))\nNone\n"
    return f"{code}\nNone\n"


def _is_expression(text: str) -> bool:
    # Only a little text is ever parsed here: it comes from an agent, and the parser runs in our process.
    # Its warnings must not reach our terminal or become errors.
    with warnings.catch_warnings(action="ignore"):
        try:
            ast.parse(f"async def _program():\n return (\n{text}\n)")
        except _FAULTS:
            return False
    return True


_HEAD = 20_000
_TAIL = 10_000
_LONGEST_FAULT = 4_000
_MOST_DIGITS = 18
_DEEPEST = 128


class PrintedOutput:
    """Everything that a program printed; if that is too much, the beginning and the end."""

    def __init__(self) -> None:
        self._head = ""
        self._tail = ""
        self._cut = 0

    def take(self, stream: Literal["stdout", "stderr"], text: str) -> None:  # noqa: ARG002 - the interpreter's signature
        """Add printed text."""
        room = _HEAD - len(self._head)
        self._head += text[:room]
        self._tail += text[room:]
        if len(self._tail) > 2 * _TAIL:
            self._cut += len(self._tail) - _TAIL
            self._tail = self._tail[-_TAIL:]

    def restore(self, saved: str) -> None:
        """Start from what was printed before a wait."""
        self._head, self._tail, self._cut = saved[:_HEAD], saved[_HEAD:], 0

    @property
    def saved(self) -> str:
        """Return what was printed so far, to continue from after a wait, with a note on what was cut."""
        cut = f"\n…[{self._cut} characters of output cut]…\n" if self._cut else ""
        return f"{self._head}{cut}{self._tail}"

    @property
    def text(self) -> str:
        """Return what was printed, ending in a line break, with a note on what was cut."""
        text = self.saved
        return text if not text or text.endswith("\n") else f"{text}\n"


def render_fault(fault: MontyError) -> str:
    """Return why a program ended early: the lines and the error."""
    match fault:
        case MontySyntaxError() | MontyRuntimeError():
            words = _own_traceback(fault.display("traceback"))
        case MontyCrashedError() if fault.timed_out:
            words = "the program ran for too long and was stopped"
        case MontyCrashedError():
            words = "the program was stopped: it used too much memory, or went too deep"
        case _:
            words = str(fault)
    if len(words) > _LONGEST_FAULT:
        words = f"{words[: _LONGEST_FAULT // 2]}\n…\n{words[-_LONGEST_FAULT // 2 :]}"
    return words.strip()


def _own_traceback(traceback: str) -> str:
    """Return a traceback without the lines that run before every program."""
    kept: list[str] = []
    is_ours = False
    for line in traceback.splitlines():
        if line.startswith("  File "):
            is_ours = line.startswith('  File "<python-input-0>"')
        elif not line.startswith(" "):
            is_ours = False
        if not is_ours and line.strip() != "))":
            kept.append(line.replace("<python-input-1>", "program").replace(f"{PRINT_VALUE}((", ""))
    return "\n".join(kept)


def value_size(value: JsonValue) -> int:
    """Return about how many characters a value takes."""
    match value:
        case str():
            return len(value) + 2
        case list():
            return sum(map(value_size, value)) + len(value) + 2
        case dict():
            return sum(len(name) + value_size(each) + 4 for name, each in value.items()) + 2
        case _:
            return 8


def read_json(text: str) -> JsonValue:
    """Parse JSON that a program wrote; raise `TypeError` if it is invalid or cannot be sent on."""
    try:
        value = cast("JsonValue", json.loads(text, parse_constant=_no_number, parse_int=_whole))
    except (ValueError, RecursionError) as fault:
        raise TypeError(f"the arguments cannot be sent: {fault}") from None
    if is_deeper(value, _DEEPEST):
        raise TypeError(f"the arguments cannot be sent: they are nested deeper than {_DEEPEST} levels")
    return value


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits is too long")
    return int(digits)
