"""`curtainwall completion`: a script for bash, zsh or fish that asks this very program what could be written next."""

import shlex
import sys
from enum import StrEnum
from importlib.resources import files
from typing import Annotated

import typer


class Shell(StrEnum):
    """The shells that a script is there for."""

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
    """Return the words that start this program, whatever the directory holds in which somebody presses a key.

    What was typed is not what is run: `./cw` may be a file of an agent's. `-P` keeps Python from importing out of that directory.
    """
    return f"{shlex.quote(sys.executable)} -P -m curtainwall"
