"""Forms of words, and the steps they ask for: `(read|cat) [the file] {what}` is read from the first word of a clause to its last.

`(a|b)` is either, `[a|b]` either or neither, `{name}` a few words, `{name*}` as many as fit, `{name:word}` one word, `{name:number}`
a number. A space is any white space, and case does not matter.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from curtainwall.agents.builtin.models.demo.names import NameReader
from curtainwall.agents.builtin.models.demo.steps import Step

Found = tuple[Step, ...] | None
Build = Callable[[NameReader, re.Match[str]], Found]

_TOKEN = re.compile(r"(?P<space>\s+)|\{(?P<slot>\w+)(?P<how>\*|:word|:number)?\}|(?P<mark>[()\[\]|])|(?P<letters>[^\s{}()\[\]|]+)")
_HOW = {None: ".+?", "*": ".+", ":word": r"\S+?", ":number": r"\d{1,7}"}


@dataclass(frozen=True, slots=True)
class FormRule:
    """A form of words, and the steps that it asks for; it may still decline."""

    form: re.Pattern[str]
    build: Build

    def steps(self, reader: NameReader, clause: str) -> Found:
        """Return the steps, if the whole clause has this form."""
        found = self.form.fullmatch(f" {clause}")
        return self.build(reader, found) if found else None


def rule(form: str, build: Build) -> FormRule:
    """Return the rule for a form."""
    return FormRule(re.compile(pattern_of(form), re.IGNORECASE | re.DOTALL), build)


def one(step: Step | None) -> Found:
    """Return a step as the only one, if there is one."""
    return None if step is None else (step,)


def pattern_of(form: str) -> str:
    """Return the pattern of a form, which expects white space before each word, the first one too.

    What is optional takes the white space before it along, so that a form is written as it is read.
    """
    out: list[str] = []
    owed = True  # whether white space must come before the next thing
    before_choices: list[bool] = []
    for token in _TOKEN.finditer(form):
        match token["mark"]:
            case None if token["space"]:
                owed = True
            case None:
                piece = f"(?P<{token['slot']}>{_HOW[token['how']]})" if token["slot"] else re.escape(token["letters"])
                out.append(rf"\s+{piece}" if owed else piece)
                owed = False
            case "(" | "[":
                before_choices.append(owed)
                out.append("(?:")
            case "|":
                owed = before_choices[-1]
                out.append("|")
            case mark:
                before_choices.pop()
                owed = False
                out.append(")" if mark == ")" else ")?")
    return "".join(out)
