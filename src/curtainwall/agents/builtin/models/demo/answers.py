"""What came of a program, in plain English: what was found, what was refused and by which rule, what failed."""

import re
from collections.abc import Sequence
from typing import Final, assert_never

from curtainwall.agents.builtin.models.demo.programs import StepReport, read_back, steps_in

_PAST: Final = {
    "read": "read", "list": "listed", "search": "searched", "look": "looked", "count": "counted", "check": "checked", "ask": "asked",
    "write": "wrote", "append": "appended", "replace": "replaced", "make": "made", "delete": "deleted", "move": "moved", "copy": "copied",
    "fetch": "fetched", "post": "posted", "save": "saved", "run": "ran", "show": "looked at", "commit": "committed", "stage": "staged",
    "switch": "switched", "push": "pushed", "pull": "pulled", "clone": "cloned", "create": "created", "remember": "remembered",
    "recall": "recalled", "call": "called", "calculate": "calculated",
}  # fmt: skip
_FENCE = re.compile(r"`{3,}")
_LONGEST_LINE: Final = 300


def answer_of(codes: Sequence[str], results: Sequence[str]) -> str:
    """Return the answer to give after programs ended with these texts."""
    parts: list[str] = []
    for code, result in zip(codes, results, strict=False):
        told = read_back(result)
        parts += [_part(each) for each in told]
        missing = steps_in(code) - len(told)
        if not told:
            parts.append(f"The program did not get to its end:\n\n{_fenced(result.strip() or 'it said nothing')}")
        elif missing > 0:
            parts.append(f"What came of {missing} more steps is not in the part of the result that I was given.")
    return "\n\n".join(parts)


def _part(told: StepReport) -> str:
    match told.end:
        case "said":
            return _found(told)
        case "refused":
            return f"I was not allowed to {told.deed}: {_sentence(told.text)}"
        case "failed":
            return f"I could not {told.deed}: {_sentence(told.text)}"
        case _:
            assert_never(told.end)


def _found(told: StepReport) -> str:
    verb, _, rest = told.deed.partition(" ")
    done = f"I {_PAST.get(verb, verb)} {rest}"
    text = told.text.rstrip()
    if not text.strip():
        return f"{done}. There is nothing in it." if verb == "read" else f"{done}. There was nothing to show."
    cut = "\n\n(The rest is cut off.)" if told.cut else ""
    if "\n" not in text and len(text) <= _LONGEST_LINE:
        return f"{done}: {text}{cut}"
    return f"{done}:\n\n{_fenced(text)}{cut}"


def _fenced(text: str) -> str:
    fence = "`" * max(3, *(len(found) + 1 for found in _FENCE.findall(text)), 3)
    return f"{fence}\n{text}\n{fence}"


def _sentence(text: str) -> str:
    text = text.strip() or "no reason was given"
    return text if text.endswith((".", "!", "?")) else f"{text}."
