"""What the library that reads the command line complains about, in the words of this house: one line, names in backticks."""

import re
from collections.abc import Collection

_QUOTED = re.compile(r"'([^']*)'")
_COMMAND = re.compile(r"No such command '(?P<name>.*?)'\.(?: Did you mean (?P<meant>.*)\?)?", re.DOTALL)
_OPTION = re.compile(r"No such option: (?P<name>\S+)(?: \(Possible options: (?P<meant>.*)\))?", re.DOTALL)
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
    # A value may hold anything, so only what the library itself put before it is taken away.
    message = message.replace(": Value error, ", ": ", 1).rstrip(".")
    if found := _CHOICE.search(message):
        message = f"{message[: found.start()]}; choose from {' '.join(found['choice'].split())}"
    return _QUOTED.sub(r"`\1`", f"{message[:1].lower()}{message[1:]}")
