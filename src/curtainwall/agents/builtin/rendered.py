"""What a program printed, gave back or stumbled over, as a model can read it."""

import json
from typing import Literal, cast

from pydantic import JsonValue
from pydantic_monty import MontyCrashedError, MontyError, MontyRuntimeError, MontySyntaxError

from curtainwall.agents.builtin.program_value import TELL
from curtainwall.model import is_deeper

_HEAD = 20_000
_TAIL = 10_000
_LONGEST_FAULT = 4_000
_MOST_DIGITS = 18
_DEEPEST = 128


class Prints:
    """Everything that a program printed; of a flood, the beginning and the end."""

    def __init__(self) -> None:
        self._head = ""
        self._tail = ""
        self._cut = 0

    def take(self, stream: Literal["stdout", "stderr"], text: str) -> None:  # noqa: ARG002 - the interpreter's signature
        """Take what was printed."""
        room = _HEAD - len(self._head)
        self._head += text[:room]
        self._tail += text[room:]
        if len(self._tail) > 2 * _TAIL:
            self._cut += len(self._tail) - _TAIL
            self._tail = self._tail[-_TAIL:]

    def restore(self, saved: str) -> None:
        """Begin with what was printed before a wait."""
        self._head, self._tail, self._cut = saved[:_HEAD], saved[_HEAD:], 0

    @property
    def saved(self) -> str:
        """Return what was printed so far, to go on from after a wait; what was cut out is stated."""
        cut = f"\n…[{self._cut} characters of output cut]…\n" if self._cut else ""
        return f"{self._head}{cut}{self._tail}"

    @property
    def text(self) -> str:
        """Return what was printed, ending in a line break, with what was cut out stated."""
        text = self.saved
        return text if not text or text.endswith("\n") else f"{text}\n"


def told_of_fault(fault: MontyError) -> str:
    """Return why a program ended early: the lines where it happened and what it was."""
    match fault:
        case MontySyntaxError() | MontyRuntimeError():
            words = _of_the_program(fault.display("traceback"))
        case MontyCrashedError() if fault.timed_out:
            words = "the program ran for too long and was stopped"
        case MontyCrashedError():
            words = "the program was stopped: it used too much memory, or went too deep"
        case _:
            words = str(fault)
    if len(words) > _LONGEST_FAULT:
        words = f"{words[: _LONGEST_FAULT // 2]}\n…\n{words[-_LONGEST_FAULT // 2 :]}"
    return words.strip()


def _of_the_program(traceback: str) -> str:
    """Return a traceback without the lines that run before every program."""
    kept: list[str] = []
    is_ours = False
    for line in traceback.splitlines():
        if line.startswith("  File "):
            is_ours = line.startswith('  File "<python-input-0>"')
        elif not line.startswith(" "):
            is_ours = False
        if not is_ours and line.strip() != "))":
            kept.append(line.replace("<python-input-1>", "program").replace(f"{TELL}((", ""))
    return "\n".join(kept)


def size_of(value: JsonValue) -> int:
    """Return about how many characters a value takes."""
    match value:
        case str():
            return len(value) + 2
        case list():
            return sum(map(size_of, value)) + len(value) + 2
        case dict():
            return sum(len(name) + size_of(each) + 4 for name, each in value.items()) + 2
        case _:
            return 8


def read_json(text: str) -> JsonValue:
    """Return what a program wrote as JSON; raise `TypeError` for what is none, or cannot be sent on."""
    try:
        told = cast("JsonValue", json.loads(text, parse_constant=_no_number, parse_int=_whole))
    except (ValueError, RecursionError) as fault:
        raise TypeError(f"the arguments cannot be sent: {fault}") from None
    if is_deeper(told, _DEEPEST):
        raise TypeError(f"the arguments cannot be sent: they are nested deeper than {_DEEPEST} levels")
    return told


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits is too long")
    return int(digits)
