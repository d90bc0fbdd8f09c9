"""How a command's help names what is written after it: words that a user writes, in place of the types that a programmer reads."""

import re
from typing import TYPE_CHECKING

from typer.core import TyperArgument, TyperCommand, TyperOption

if TYPE_CHECKING:
    # The library has no public names for them.
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
