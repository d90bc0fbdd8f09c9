"""The program for a list of steps, which tells of each in one line, and the reading of these lines, whole or cut."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, cast

from pydantic import JsonValue

from curtainwall.agents.builtin.models.demo.steps import HELPERS, NEEDS, Step

MOST_STEPS: Final = 40
_MOST_TOLD: Final = 20_000

_STEP: Final = """\
async def step(number, deed, work):
    try:
        end, told = "said", await work()
    except Exception as why:
        end, told = "refused" if type(why).__name__ == "PermissionError" else "failed", str(why)
    text = told if isinstance(told, str) else json.dumps(told)
    print(json.dumps({{"step": number, "deed": deed, "cut": max(0, len(text) - {most}), end: text[:{most}]}}, ensure_ascii=False))
"""

Ending = Literal["said", "refused", "failed"]

_TORN = re.compile(
    r'\{"step": (?P<number>\d+), "deed": (?P<deed>"(?:[^"\\]|\\.)*"), "cut": \d+, "(?P<end>said|refused|failed)": "(?P<text>.*)', re.DOTALL
)
_CALLED = re.compile(r"^await step\((?P<number>\d+), ", re.MULTILINE)
_LINE = re.compile(r'^\{"step": ', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class StepReport:
    """What came of one step, as far as it was told; `cut` says that more was there."""

    number: int
    deed: str
    end: Ending
    text: str
    cut: bool = False


def program_of(steps: Sequence[Step], among: int = 1) -> str:
    """Return one program that takes every step, whatever became of the one before; where there are more `among` others, each tells less."""
    most = max(400, _MOST_TOLD // max(1, among, len(steps)))
    used = dict.fromkeys(need for step in steps for name in step.uses for need in (*NEEDS.get(name, ()), name))
    calls = [f"await step({number}, {step.deed!r}, lambda: {step.code})" for number, step in enumerate(steps, 1)]
    parts = ["import json\n", _STEP.format(most=most), *(HELPERS[name] for name in used), "\n".join(calls) + "\n"]
    return "\n".join(parts)


def steps_in(code: str) -> int:
    """Return how many steps a program takes."""
    return sum(1 for _ in _CALLED.finditer(code))


def read_back(text: str) -> list[StepReport]:
    """Return what a program told of its steps; a line that was cut in the middle gives what is left of it."""
    return [told for piece in _pieces(text) if (told := _whole(piece) or _torn(piece))]


def _pieces(text: str) -> Iterator[str]:
    starts = [found.start() for found in _LINE.finditer(text)]
    for start, end in pairwise([*starts, len(text)]):
        yield text[start:end]


def _whole(piece: str) -> StepReport | None:
    try:
        found = cast("JsonValue", json.loads(piece.partition("\n")[0]))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    ends: tuple[Ending, ...] = ("said", "refused", "failed")
    for end in ends:
        match found:
            case {"step": int(number), "deed": str(deed), "cut": int(cut)} if isinstance(text := found.get(end), str):
                return StepReport(number, deed, end, text, cut > 0)
            case _:
                pass
    return None


def _torn(piece: str) -> StepReport | None:
    found = _TORN.match(piece)
    if found is None:
        return None
    text = found["text"].rstrip().removesuffix("}").removesuffix('"')
    plain = text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")
    return StepReport(int(found["number"]), json.loads(found["deed"]), cast("Ending", found["end"]), plain, cut=True)
