"""`curtainwall completion`: print a script for bash, zsh or fish that gets completions from this program."""

import shlex
import sys
from enum import StrEnum
from importlib.resources import files
from typing import Annotated

import typer


class Shell(StrEnum):
    """The supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[
        Shell, typer.Argument(help="for your profile: `source <(curtainwall completion bash)`, or `curtainwall completion fish | source`")
    ],
) -> None:
    """Print a script that lets a shell complete `curtainwall` and `cw`."""
    script = files("curtainwall.cli").joinpath("completions", f"{shell}.in").read_text(encoding="utf-8")
    print(script.replace("@PROGRAM@", _program()), end="")


def _program() -> str:
    """Return the words that start this program safely from any directory.

    Do not run what was typed: `./cw` may be an agent's file. `-P` keeps Python from importing from that directory.
    """
    return f"{shlex.quote(sys.executable)} -P -m curtainwall"
