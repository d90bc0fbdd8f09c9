"""Help and usage errors in our style: `FILE` in place of a type, one line, names in backticks."""

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from typer.core import TyperArgument, TyperCommand, TyperOption

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

_BY_TYPE = {"<path>": "FILE", "<list[Path]>": "FILE", "<int>": "N", "<int range>": "N", "<float>": "N"}
# How the library writes ranges of numbers.
_RANGES = (
    (re.compile(r"(; |\[)(\d+)<=x<=(\d+)\]$"), r"\1\2 to \3]"),
    (re.compile(r"(; |\[)x>=(\d+)\]$"), r"\1at least \2]"),
)


class HelpedCommand(TyperCommand):
    """A command whose help shows `TASK…` and `--policy FILE`."""

    def collect_usage_pieces(self, ctx: "Context") -> list[str]:
        """Return the parts of the `Usage:` line."""
        return ["[OPTIONS]", *(_in_usage(it, ctx) for it in self.params if isinstance(it, TyperArgument))]

    def format_options(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write the descriptions of arguments and options."""
        for it in self.params:
            if isinstance(it, TyperOption) and not it.is_flag and it.metavar is None:
                it.metavar = _word(it, ctx)
        arguments: list[tuple[str, str]] = []
        options: list[tuple[str, str]] = []
        for it in self.get_params(ctx):
            if (record := it.get_help_record(ctx)) is None:
                continue
            if isinstance(it, TyperArgument):
                arguments.append((_shown(it, ctx), record[1]))
            else:
                options.append((record[0], _with_range(record[1])))
        for title, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _word(parameter: TyperArgument | TyperOption, ctx: "Context") -> str:
    """Return the placeholder of a value: the command's own, the choices, or a word for its type."""
    if parameter.metavar is not None:
        return parameter.metavar
    kind = parameter.display_type(ctx)
    if "|" in kind:
        return kind.strip("<>")
    return _BY_TYPE.get(kind, parameter.opts[0].lstrip("-").upper())


def _shown(parameter: TyperArgument, ctx: "Context") -> str:
    word = _word(parameter, ctx).removesuffix("]").removeprefix("[") if parameter.nargs == 1 else _word(parameter, ctx)
    return word if parameter.nargs == 1 or word.endswith("…") else f"{word}…"


def _in_usage(parameter: TyperArgument, ctx: "Context") -> str:
    shown = _shown(parameter, ctx)
    if parameter.required:
        return shown
    return f"[{shown.removesuffix('…')}]{'…' if shown.endswith('…') else ''}"


def _with_range(text: str) -> str:
    for pattern, words in _RANGES:
        text = pattern.sub(words, text)
    return text


_QUOTED = re.compile(r"'([^']*)'")
_COMMAND = re.compile(r"No such command '(?P<name>.*?)'\.(?: Did you mean (?P<meant>.*)\?)?", re.DOTALL)
_OPTION = re.compile(r"No such option: (?P<name>\S+)(?: \(Possible options: (?P<meant>.*)\))?", re.DOTALL)
_TOO_MANY = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((?P<words>.*)\)\.?", re.DOTALL)
# Validation errors of the library, each with what to write instead.
_RIGHT = (
    (re.compile(r"Input should be greater than or equal to (\S+)"), r"write \1 or more"),
    (re.compile(r"Input should be less than or equal to (\S+)"), r"write \1 or less"),
    (re.compile(r"Input should be a valid integer.*", re.DOTALL), "write a whole number"),
    (re.compile(r"Input should be a valid number.*", re.DOTALL), "write a number"),
)
_CHOICE = re.compile(r"\. Choose from:\s*(?P<choice>.*)", re.DOTALL)


# Options that other programs have under another name.
_ELSEWHERE = {"--json": "--output json"}


def in_our_words(message: str, options: Collection[str] = ()) -> str:
    """Return a usage error of the library in our style; `options` are those of the misused command."""
    for kind, pattern in (("command", _COMMAND), ("option", _OPTION)):
        if match := pattern.fullmatch(message):
            suggestions = [word.strip(" '") for word in (match["meant"] or "").split(",") if word.strip(" '")]
            if (replacement := _ELSEWHERE.get(match["name"])) and replacement.split()[0] in options:
                suggestions = [replacement]
            guess = f"; did you mean {' or '.join(f'`{word}`' for word in suggestions)}?" if suggestions else ""
            return f"there is no {kind} `{match['name']}`{guess}"
    if match := _TOO_MANY.fullmatch(message):
        return f"there is no place for `{match['words']}`; put what belongs together into quotes"
    # A value may contain anything, so remove only the prefix that the library put before it.
    message = message.replace(": Value error, ", ": ", 1).rstrip(".")
    for pattern, right in _RIGHT:
        message = pattern.sub(right, message, count=1)
    if match := _CHOICE.search(message):
        message = f"{message[: match.start()]}; choose from {' '.join(match['choice'].split())}"
    return _QUOTED.sub(r"`\1`", f"{message[:1].lower()}{message[1:]}")
