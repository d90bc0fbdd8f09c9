"""Help and complaints of the command line in words that a user writes: `FILE` in place of a type, one line, names in backticks."""

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from typer.core import TyperArgument, TyperCommand, TyperOption

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

_BY_TYPE = {"<path>": "FILE", "<list[Path]>": "FILE", "<int>": "N", "<int range>": "N", "<float>": "N"}
# How the library tells which numbers are taken.
_RANGES = (
    (re.compile(r"(; |\[)(\d+)<=x<=(\d+)\]$"), r"\1\2 to \3]"),
    (re.compile(r"(; |\[)x>=(\d+)\]$"), r"\1at least \2]"),
)


class HelpedCommand(TyperCommand):
    """A command whose help shows `TASK…` and `--policy FILE`."""

    def collect_usage_pieces(self, ctx: "Context") -> list[str]:
        """Return the parts of the line that begins with `Usage:`."""
        return ["[OPTIONS]", *(_in_usage(it, ctx) for it in self.params if isinstance(it, TyperArgument))]

    def format_options(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write what each argument and each option is."""
        for it in self.params:
            if isinstance(it, TyperOption) and not it.is_flag and it.metavar is None:
                it.metavar = _word(it, ctx)
        arguments: list[tuple[str, str]] = []
        options: list[tuple[str, str]] = []
        for it in self.get_params(ctx):
            if (told := it.get_help_record(ctx)) is None:
                continue
            if isinstance(it, TyperArgument):
                arguments.append((_shown(it, ctx), told[1]))
            else:
                options.append((told[0], _with_range(told[1])))
        for title, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _word(it: TyperArgument | TyperOption, ctx: "Context") -> str:
    """Return what stands for a value: what the command says itself, the choices there are, or a word for its kind."""
    if it.metavar is not None:
        return it.metavar
    kind = it.display_type(ctx)
    if "|" in kind:
        return kind.strip("<>")
    return _BY_TYPE.get(kind, it.opts[0].lstrip("-").upper())


def _shown(it: TyperArgument, ctx: "Context") -> str:
    word = _word(it, ctx).removesuffix("]").removeprefix("[") if it.nargs == 1 else _word(it, ctx)
    return word if it.nargs == 1 or word.endswith("…") else f"{word}…"


def _in_usage(it: TyperArgument, ctx: "Context") -> str:
    shown = _shown(it, ctx)
    if it.required:
        return shown
    return f"[{shown.removesuffix('…')}]{'…' if shown.endswith('…') else ''}"


def _with_range(told: str) -> str:
    for pattern, words in _RANGES:
        told = pattern.sub(words, told)
    return told


_QUOTED = re.compile(r"'([^']*)'")
_COMMAND = re.compile(r"No such command '(?P<name>.*?)'\.(?: Did you mean (?P<meant>.*)\?)?", re.DOTALL)
_OPTION = re.compile(r"No such option: (?P<name>\S+)(?: \(Possible options: (?P<meant>.*)\))?", re.DOTALL)
_TOO_MANY = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((?P<words>.*)\)\.?", re.DOTALL)
# What the types of parameters complain about, each with what would be right.
_RIGHT = (
    (re.compile(r"Input should be greater than or equal to (\S+)"), r"write \1 or more"),
    (re.compile(r"Input should be less than or equal to (\S+)"), r"write \1 or less"),
    (re.compile(r"Input should be a valid integer.*", re.DOTALL), "write a whole number"),
    (re.compile(r"Input should be a valid number.*", re.DOTALL), "write a number"),
)
_CHOICE = re.compile(r"\. Choose from:\s*(?P<choice>.*)", re.DOTALL)


# How other programs call what we have under another name.
_ELSEWHERE = {"--json": "--output json"}


def usage_words(message: str, path: str, options: Collection[str] = ()) -> str:
    """Return a complaint and where to read on; `path` is the command that was misused, with its options."""
    told = _in_our_words(message, options)
    return f"{told}{'' if told.endswith('?') else ';'} see `{path} --help`"


def _in_our_words(message: str, options: Collection[str]) -> str:
    for kind, pattern in (("command", _COMMAND), ("option", _OPTION)):
        if found := pattern.fullmatch(message):
            meant = [word.strip(" '") for word in (found["meant"] or "").split(",") if word.strip(" '")]
            if (known := _ELSEWHERE.get(found["name"])) and known.split()[0] in options:
                meant = [known]
            guess = f"; did you mean {' or '.join(f'`{word}`' for word in meant)}?" if meant else ""
            return f"there is no {kind} `{found['name']}`{guess}"
    if found := _TOO_MANY.fullmatch(message):
        return f"there is no place for `{found['words']}`; put what belongs together into quotes"
    # A value may hold anything, so only what the library itself put before it is taken away.
    message = message.replace(": Value error, ", ": ", 1).rstrip(".")
    for pattern, right in _RIGHT:
        message = pattern.sub(right, message, count=1)
    if found := _CHOICE.search(message):
        message = f"{message[: found.start()]}; choose from {' '.join(found['choice'].split())}"
    return _QUOTED.sub(r"`\1`", f"{message[:1].lower()}{message[1:]}")
