"""The options of the program itself, before or after its command. They are needed before the commands are imported."""

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

HOME, OUTPUT = "--home", "--output"
QUIET, VERBOSE = ("-q", "--quiet"), ("-v", "--verbose")
VERBOSITY = "CURTAINWALL_VERBOSITY"
"""The variable that carries `quiet` or `verbose` to the command."""
_JSON = ("json", "stream-json")


class BadGlobalOption(Exception):
    """An option of the program itself makes no sense."""


class GlobalOptions(NamedTuple):
    """The options of the program itself."""

    home: str | None = None
    """The home directory, absolute; None if the environment decides."""
    verbosity: str = ""
    """`quiet`, `verbose`, or nothing."""

    @property
    def environ(self) -> dict[str, str]:
        """Return the variables that pass these options on to us and to the processes that we start."""
        home = {} if self.home is None else {"CURTAINWALL_HOME": self.home}
        return home | ({VERBOSITY: self.verbosity} if self.verbosity else {})


def take_global_options(arguments: Sequence[str]) -> tuple[GlobalOptions, list[str]]:
    """Return the options of the program, and the other words; words after `--` are not looked at."""
    home: str | None = None
    verbosity = ""
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if word == "--":
            rest += [word, *words]
        elif name == HOME:
            home = _home(value if equals else next(words, None))
        elif word in (*QUIET, *VERBOSE):
            chosen = "quiet" if word in QUIET else "verbose"
            if verbosity not in ("", chosen):
                raise BadGlobalOption("give --quiet or --verbose, not both")
            verbosity = chosen
        else:
            rest.append(word)
    return GlobalOptions(home, verbosity), rest


def is_quiet() -> bool:
    """Tell whether only results, warnings and errors are wanted."""
    return os.environ.get(VERBOSITY) == "quiet"


def is_verbose() -> bool:
    """Tell whether the user wants to see more of what happens."""
    return os.environ.get(VERBOSITY) == "verbose"


def wants_json(arguments: Sequence[str]) -> bool:
    """Tell whether the command was asked for JSON; it may be misused in other ways."""
    words = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    return any(f"{OUTPUT}={kind}" in words or (OUTPUT, kind) in pairwise(words) for kind in _JSON)


def _home(value: str | None) -> str:
    if not value:
        raise BadGlobalOption(f"{HOME} needs a directory; write `{HOME} DIR`")
    path = os.path.abspath(os.path.expanduser(value))
    if os.path.lexists(path) and not os.path.isdir(path):
        raise BadGlobalOption(f"{HOME} `{value}` is no directory; name one that is yours, or one that can be made")
    return path
